"""The common CSV: the one format that Dally reads and writes without loss."""

import csv
import gzip
import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

from dally.atomic_file import write_atomically
from dally.errors import InputError
from dally.hostlist import expand, fold
from dally.jobs.job import Job, JobKind
from dally.jobs.training_plan import TrainingPlan
from dally.traces.rows import (
    Draft,
    JobCollector,
    RowError,
    check_fields,
    check_header,
    csv_rows,
    number,
    time_limit,
    whole,
)

NAME = "name"
"""The column of what users call their jobs."""

BASE_COLUMNS = ("job_id", "submit_s", "gpus", "duration_s", "user", "group", "model", "status")
REQUIRED_COLUMNS = BASE_COLUMNS[:4]


def matches(first_line: str) -> bool:
    """Whether a file's first line names one of this format's required columns."""
    names = (name.strip(' "') for name in first_line.split(","))
    return not set(REQUIRED_COLUMNS).isdisjoint(names)


def read(text: str, collector: JobCollector) -> None:
    """Read the common CSV; columns may come in any order, and all but the first four may be absent.

    Raises:
        InputError: The header or a row is wrong.
    """
    rows = csv_rows(collector.source, text)
    _, header = next(rows)
    check_header(collector.source, header, REQUIRED_COLUMNS, (*BASE_COLUMNS, *_EXTRA_COLUMNS))
    width = len(header)
    base = itemgetter(*(header.index(name) if name in header else width for name in BASE_COLUMNS))
    extras = [(name, header.index(name), parse) for name, parse in _EXTRA_COLUMNS.items() if name in header]

    def build(fields: list[str]) -> Draft:
        check_fields(fields, width)
        fields.append("")  # where an absent column is looked up
        job_id, submit, gpus, duration, user, group, model, status = base(fields)
        draft = Draft(
            job_id,
            number(submit, "submit_s"),
            whole(gpus, "gpus"),
            number(duration, "duration_s"),
            user,
            group,
            model,
            status,
        )
        more = {_field(name): parse(fields[at]) for name, at, parse in extras}
        return draft._replace(**more) if more else draft

    collector.collect(rows, build)


def write(jobs: Sequence[Job], stream: TextIO) -> None:
    """Write jobs as the common CSV, row by row.

    Columns beyond the base ones are written only if some job needs them. Whole numbers are written without a
    fraction, others in the shortest form that reads back as the same float.

    Args:
        jobs: The jobs, in the order to write.
        stream: Text stream opened with `newline=""`.
    """
    usual = [(name, _field(name), Draft._field_defaults[_field(name)]) for name in _EXTRA_COLUMNS]
    used = {name for job in jobs for name, field, value in usual if getattr(job, field) != value}
    columns = BASE_COLUMNS + tuple(name for name in _EXTRA_COLUMNS if name in used)
    table = csv.writer(stream, lineterminator="\n")
    quoted = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
    table.writerow(columns)
    shown = [_field(name) for name in columns]
    for job in jobs:
        row = [_text(getattr(job, name)) for name in shown]
        # Python before 3.13 leaves a lone carriage return unquoted, and would read it as the row's end.
        (quoted if any("\r" in text for text in row) else table).writerow(row)


def write_workload(jobs: Sequence[Job], path: Path) -> None:
    """Write jobs to a file, compressed if the name ends in `.gz`; the same jobs give the same bytes.

    The file appears under its name when it is complete; before that an older one stays as it is.

    Raises:
        InputError: The file cannot be written, or the name is taken by something other than a file.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is not a regular file")
    text = io.StringIO(newline="")
    write(jobs, text)
    content = text.getvalue().encode()
    try:
        write_atomically(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror or error}") from error


def _text(value: object) -> str:
    """A field as written: whole floats without a fraction, truth as yes or no, None as nothing."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, frozenset):
        return fold(sorted(value))
    return "" if value is None else str(value)


def _field(column: str) -> str:
    """The field of a job that a column holds."""
    return "job_name" if column == NAME else column


def _kind(text: str) -> JobKind:
    """The kind named in a field; rigid if empty."""
    try:
        return JobKind(text or "rigid")
    except ValueError:
        valid = ", ".join(JobKind)
        raise RowError("unknown kind", f"kind is {text!r}, must be one of {valid}") from None


def _yes_or_no(column: str, default: bool, text: str) -> bool:
    if text not in ("", "yes", "no"):
        raise RowError(f"{column} is not yes or no", f"{column} is {text!r}, must be yes or no")
    return text == "yes" if text else default


def _machines(text: str) -> frozenset[str] | None:
    """The names in a host list; any machine if empty."""
    try:
        return frozenset(expand(text)) if text else None
    except InputError as error:
        raise RowError("machines is no host list", f"machines is {text!r}: {error}") from error


def _plan(text: str) -> TrainingPlan | None:
    """The plan in a field; None if empty."""
    try:
        return TrainingPlan.parse(text) if text else None
    except InputError as error:
        raise RowError("plan is not valid", str(error)) from None


_EXTRA_COLUMNS: Mapping[str, Callable[[str], Any]] = {
    "gpu_type": lambda text: text or None,
    "kind": _kind,
    "min_gpus": lambda text: whole(text, "min_gpus") if text else None,
    "max_gpus": lambda text: whole(text, "max_gpus") if text else None,
    "max_copies": lambda text: whole(text, "max_copies") if text else 1,
    "time_limit_s": time_limit,
    "gpus_per_machine": lambda text: whole(text, "gpus_per_machine") if text else None,
    "preemptible": partial(_yes_or_no, "preemptible", True),
    "batch": lambda text: whole(text, "batch") if text else None,
    NAME: str,
    "machines": _machines,
    "segment": lambda text: whole(text, "segment") if text else None,
    "plan": _plan,
    "spread_segments": partial(_yes_or_no, "spread_segments", False),
    "consolidate_segments": partial(_yes_or_no, "consolidate_segments", False),
    "whole_blocks": partial(_yes_or_no, "whole_blocks", False),
    "partition": str,
}
