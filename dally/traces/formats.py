"""The trace formats Dally reads, and how one is picked from a file's first line."""

from collections.abc import Callable
from dataclasses import dataclass

from dally.errors import InputError
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
FORMAT_NAMES = tuple(known.name for known in FORMATS)


def pick_format(source: str, text: str, name: str | None = None) -> TraceFormat:
    """The format of a trace file.

    Args:
        source: The file's name, for messages.
        text: The file's text, not blank.
        name: The format's name; None recognises it by the first line.

    Raises:
        InputError: The name is unknown, or the first line fits no format.
    """
    for known in FORMATS:
        if name == known.name or (name is None and known.matches(text.lstrip().partition("\n")[0].rstrip())):
            return known
    valid = ", ".join(FORMAT_NAMES)
    if name is not None:
        raise InputError(f"unknown trace format {name!r}, must be one of {valid}")
    first = text.lstrip().partition("\n")[0].rstrip()[:60]
    raise InputError(f"{source}: the first line {first!r} fits no trace format; formats: {valid}")
