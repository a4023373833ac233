"""The trace formats Dally reads, and how one is picked from a file's first line."""

from collections.abc import Callable
from dataclasses import dataclass

from dally.errors import InputError
from dally.extensions import (
    TRACE_FORMATS,
    ExtensionError,
    blaming_extension,
    extension_names,
    load_extension,
)
from dally.traces import common_csv, helios, philly, sacct, swf
from dally.traces.intake import TraceIntake


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """One format.

    Attributes:
        name: What `--format` calls it.
        matches: Tells the format from a file's first line that is not blank.
        read: Reads a file's text into an intake.
        dated: Whether times are dates, so that the file's clock starts at its first job.
    """

    name: str
    matches: Callable[[str], bool]
    read: Callable[[str, TraceIntake], None]
    dated: bool


FORMATS = (
    TraceFormat("helios", helios.matches, helios.read, dated=True),
    TraceFormat("csv", common_csv.matches, common_csv.read, dated=False),
    TraceFormat("sacct", sacct.matches, sacct.read, dated=True),
    TraceFormat("swf", swf.matches, swf.read, dated=False),
    TraceFormat("philly", philly.matches, philly.read, dated=True),
)


def format_names() -> list[str]:
    """The names of all formats: ours, then those of other packages."""
    return [*(known.name for known in FORMATS), *extension_names(TRACE_FORMATS)]


def pick_format(source: str, text: str, name: str | None = None) -> TraceFormat:
    """The format of a trace file.

    Args:
        source: The file's name, for messages.
        text: The file's text, not blank.
        name: The format's name; None recognises it by the first line.

    Raises:
        InputError: The name is unknown, or the first line fits no format.
        ExtensionError: A format of another package is broken.
    """
    first = text.lstrip().partition("\n")[0].rstrip()
    for known in FORMATS:
        if name == known.name or (name is None and known.matches(first)):
            return known
    # Those of other packages are imported only where none of ours fits.
    for other in extension_names(TRACE_FORMATS):
        if name in (None, other):
            found = load_extension(TRACE_FORMATS, other)
            if not isinstance(found, TraceFormat):
                raise ExtensionError(f"{TRACE_FORMATS} {other!r} is broken: {found!r} is no TraceFormat")
            with blaming_extension(TRACE_FORMATS, other):
                if name == other or found.matches(first):
                    return found
    valid = ", ".join(format_names())
    if name is not None:
        raise InputError(f"unknown trace format {name!r}, must be one of {valid}")
    raise InputError(f"{source}: the first line {first[:60]!r} fits no trace format; formats: {valid}")
