"""Loads a workload by name or path: the one entry for every command that takes a trace."""

import hashlib
import io
import os
from datetime import UTC, datetime
from pathlib import Path

from dally.errors import InputError
from dally.extensions import TRACE_FORMATS, blaming_extension
from dally.renamed import now_called
from dally.traces import common_csv
from dally.traces.formats import pick_format
from dally.traces.generators import GENERATORS, generate, is_generator
from dally.traces.intake import TraceIntake
from dally.traces.source_file import read_source
from dally.traces.workload import Workload, in_group, rebase, window


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
    if not 0 <= min_duration_s < float("inf"):
        raise InputError(f"the least duration is {min_duration_s:g} s, must be 0 or more")
    if trace_format is None and isinstance(source, str) and is_generator(source):
        return _generated(source, seed, start_s, end_s, group)
    intake = TraceIntake(str(source), skip_bad=skip_bad, min_duration_s=min_duration_s)
    return _read(Path(source), intake, trace_format, start_s, end_s, group)


def _generated(
    spec: str, seed: int, start_s: float | None, end_s: float | None, group: str | None
) -> Workload:
    """The workload of a generator's specification."""
    everything = generate(spec, seed)
    jobs = window(in_group(everything, group), start_s, end_s)
    kept = rebase(jobs)
    csv = _Digest()
    common_csv.write(kept, csv)
    return Workload(
        jobs=kept,
        source=spec,
        format="generated",
        sha256=csv.sha256.hexdigest(),
        origin=f"{jobs[0].submit_s:.15g} s",
        outside=len(everything) - len(jobs),
        seed=seed,
    )


class _Digest(io.StringIO):
    """A text stream that keeps nothing but the digest of what is written."""

    def __init__(self) -> None:
        super().__init__(newline="")
        self.sha256 = hashlib.sha256()

    def write(self, text: str) -> int:
        self.sha256.update(text.encode())
        return len(text)


def _read(
    path: Path,
    intake: TraceIntake,
    trace_format: str | None,
    start_s: float | None,
    end_s: float | None,
    group: str | None,
) -> Workload:
    """The workload of a file."""
    if not os.path.exists(path):  # unlike Path.exists, quiet about impossible names
        raise InputError(
            f"no trace file {str(path)!r}, and no generator of that name{now_called(str(path))}; "
            f"generators: {', '.join(GENERATORS)}"
        )
    file = read_source(path)
    picked = pick_format(intake.source, file.text, trace_format)
    with blaming_extension(TRACE_FORMATS, picked.name):
        picked.read(file.text, intake)
    if not intake.jobs:
        raise InputError(f"{path}: no jobs in it{_dropped_note(intake)}")
    zero_s = min(job.submit_s for job in intake.jobs) if picked.dated else 0.0
    jobs = window(in_group(intake.jobs, group), start_s, end_s, zero_s)
    return Workload(
        jobs=rebase(jobs),
        source=intake.source,
        format=picked.name,
        sha256=file.sha256,
        origin=_origin(jobs[0].submit_s, picked.dated),
        dropped=dict(sorted(intake.dropped.items())),
        clamped=intake.clamped,
        outside=len(intake.jobs) - len(jobs),
    )


def _dropped_note(intake: TraceIntake) -> str:
    """Why nothing is left, if rows were left out."""
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(intake.dropped.items()))
    return f"; left out: {counts}" if counts else ""


def _origin(first_s: float, dated: bool) -> str:
    """The moment that becomes 0, in words."""
    if not dated:
        return f"{first_s:.15g} s"
    return datetime.fromtimestamp(first_s, UTC).isoformat(timespec="seconds")
