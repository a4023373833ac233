"""Loads a workload by name or path: the one entry for every command that takes a trace."""

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dally.atomic_file import read_plain, read_within
from dally.bounds import check_number
from dally.errors import InputError
from dally.extensions import (
    TRACE_FORMATS,
    ExtensionError,
    blaming_extension,
    extension_names,
    load_extension,
)
from dally.spec import now_called
from dally.traces import common_csv, helios, philly, sacct, swf
from dally.traces.generators import GENERATORS, generate, is_generator
from dally.traces.rows import JobCollector, Omission
from dally.traces.workload import Workload, changes_text, in_group, rebase, window

_GZIP_MAGIC = b"\x1f\x8b"
_MOST_BYTES = 2**30
"""Of a trace, as it is stored and unpacked."""


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """One format.

    Attributes:
        name: What `--format` calls it.
        matches: Tells the format from a file's first line that is not blank.
        read: Reads the jobs of a file's text into a collector.
        dated: Whether times are dates, so that the file's clock starts at its first job.
    """

    name: str
    matches: Callable[[str], bool]
    read: Callable[[str, JobCollector], None]
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
    error = InputError(f"{source}: the first line {first[:60]!r} fits no trace format; formats: {valid}")
    error.hint = _hint(first)
    raise error


def _hint(first_line: str) -> str:
    """What may help where a file's first line fits no format."""
    if "JobID" in first_line:
        return "of sacct's output, that of `sacct -P` or `sacct --json` is read, without --delimiter"
    if first_line.count("|") > 1:
        return "if this is sacct's, its header is missing: leave out --noheader"
    needed = ", ".join(common_csv.REQUIRED_COLUMNS)
    return f"any table will do as csv, separated by commas, with the columns {needed}"


def read_source(path: Path) -> tuple[str, str]:
    """Read a UTF-8 file; gzip is recognised by its first bytes, not by its name.

    Returns:
        The text, without a byte order mark: bytes that are not UTF-8 are lone surrogates (`surrogateescape`),
        for the reader to refuse the row that they are in. And the hex digest of the bytes as stored, so of
        the compressed ones if it is compressed.

    Raises:
        InputError: The file cannot be read, is no plain file, is empty, too long, damaged gzip, or its first
            line is not UTF-8.
    """
    try:
        plain = stored = read_plain(path, _MOST_BYTES)
        if stored.startswith(_GZIP_MAGIC):
            with gzip.open(io.BytesIO(stored)) as unpacked:
                plain = read_within(unpacked, _MOST_BYTES)
    except EOFError as error:
        raise InputError(f"{path}: the gzip file ends early, it is truncated") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: damaged gzip file: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if not plain.strip():
        raise InputError(f"{path}: the file is empty")
    try:
        text = plain.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if b"\n" not in plain[: error.start].lstrip():
            line = plain.count(b"\n", 0, error.start) + 1
            raise InputError(f"{path}, line {line}: byte 0x{plain[error.start]:02x} is not UTF-8") from error
        text = plain.decode("utf-8-sig", "surrogateescape")
    return text, hashlib.sha256(stored).hexdigest()


class _Digest(io.StringIO):
    """A text stream that keeps nothing but the digest of what is written."""

    def __init__(self) -> None:
        super().__init__(newline="")
        self.sha256 = hashlib.sha256()

    def write(self, text: str) -> int:
        self.sha256.update(text.encode())
        return len(text)


def load_trace(
    source: str | Path,
    *,
    seed: int = 0,
    trace_format: str | None = None,
    skip_bad: bool = False,
    min_duration_s: float = 0.0,
    start_s: float | None = None,
    end_s: float | None = None,
    group: str | None = None,
) -> Workload:
    """Load a trace file, or generate a workload.

    The slice counts from the source's own zero: the column's 0 in CSV and SWF, the first submission where
    times are dates. The jobs kept are then shifted so that the first of them is submitted at 0.

    Args:
        source: Path of a trace file, or `NAME[:knob=value,...]` of a generator; a file that is called like a
            generator needs a path like `./batch`.
        seed: Seed of a generator; files ignore it.
        trace_format: Name of the file's format; None recognises it by its contents.
        skip_bad: Leave wrong rows out and count them by reason, instead of raising.
        min_duration_s: Raise shorter durations, 0 included, to this and count them, seconds; files only.
        start_s: Keep jobs submitted at this time or later, seconds; None for no bound.
        end_s: Keep jobs submitted before this time, seconds; None for no bound.
        group: Keep jobs of this group; None for all.

    Raises:
        InputError: The file, a row, the specification or an option is wrong, or no job is left.
    """
    check_number("min_duration_s", min_duration_s, 0)
    if trace_format is None and isinstance(source, str) and is_generator(source):
        everything = generate(source, seed)
        jobs = window(in_group(everything, group), start_s, end_s)
        kept = rebase(jobs)
        csv = _Digest()
        common_csv.write(kept, csv)
        return Workload(
            jobs=kept,
            source=source,
            format="generated",
            sha256=csv.sha256.hexdigest(),
            origin=f"{jobs[0].submit_s:.15g} s",
            outside=len(everything) - len(jobs),
            seed=seed,
        )
    if not os.path.exists(source):  # unlike Path.exists, quiet about impossible names
        raise InputError(
            f"no trace file {str(source)!r}, and no generator of that name{now_called(str(source))}; "
            f"generators: {', '.join(GENERATORS)}"
        )
    text, digest = read_source(Path(source))
    return parse_trace(
        str(source),
        text,
        digest,
        trace_format=trace_format,
        skip_bad=skip_bad,
        min_duration_s=min_duration_s,
        start_s=start_s,
        end_s=end_s,
        group=group,
    )


def parse_trace(
    source: str,
    text: str,
    digest: str,
    *,
    trace_format: str | None = None,
    skip_bad: bool = False,
    min_duration_s: float = 0.0,
    start_s: float | None = None,
    end_s: float | None = None,
    group: str | None = None,
    most_jobs: int | None = None,
) -> Workload:
    """What `load_trace` makes of a file whose text and digest `read_source` has given.

    With `most_jobs` only so many of its jobs are kept, those submitted last.

    Raises:
        InputError: The text, a row or an option is wrong, or no job is left.
    """
    picked = pick_format(source, text, trace_format)
    found = JobCollector(source, skip_bad=skip_bad, min_duration_s=min_duration_s)
    with blaming_extension(TRACE_FORMATS, picked.name):
        picked.read(text, found)
    if not found.jobs:
        left_out = changes_text(found.dropped, 0)
        error = InputError(f"{source}: no jobs in it" + (f"; {left_out}" if left_out else ""))
        if picked.name == "sacct" and Omission.NO_GPU in found.dropped:
            error.hint = "Slurm accounts for GPUs where AccountingStorageTRES in slurm.conf has gres/gpu"
        raise error
    zero_s = min(job.submit_s for job in found.jobs) if picked.dated else 0.0
    inside = window(in_group(found.jobs, group), start_s, end_s, zero_s)
    jobs = inside if most_jobs is None else inside[-most_jobs:]
    first_s = jobs[0].submit_s
    date = datetime.fromtimestamp(first_s, UTC).isoformat(timespec="seconds") if picked.dated else ""
    return Workload(
        jobs=rebase(jobs),
        source=source,
        format=picked.name,
        sha256=digest,
        origin=date or f"{first_s:.15g} s",
        dropped=dict(sorted(found.dropped.items())),
        clamped=found.clamped,
        outside=len(found.jobs) - len(inside),
        earlier=len(inside) - len(jobs),
        ran={job.job_id: found.ran[job.job_id].since(first_s) for job in jobs if job.job_id in found.ran},
    )
