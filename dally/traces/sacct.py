"""Slurm's accounting, as `sacct --parsable2` or `--parsable` prints it."""

import re
from collections.abc import Iterator

from dally.errors import InputError
from dally.traces.rows import (
    Draft,
    JobCollector,
    Omission,
    RowError,
    check_fields,
    check_header,
    number,
    time_limit,
    timestamp_s,
    whole,
)

REQUIRED_COLUMNS = ("Submit", "ElapsedRaw", "State")
_UNFINISHED = frozenset({"PENDING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED"})
_NO_LIMIT = frozenset({"", "UNLIMITED", "Partition_Limit"})
_NO_DATE = frozenset({"", "None", "Unknown"})
_GPUS = re.compile(r"gres/gpu(?::(?P<type>[^=,]+))?=(?P<count>[^,]*)")


def matches(first_line: str) -> bool:
    """Whether a file's first line is a header of sacct."""
    return "|" in first_line and not {"JobIDRaw", "JobID"}.isdisjoint(first_line.split("|"))


def read(text: str, collector: JobCollector) -> None:
    """Read sacct's output; columns in any order, those not needed are ignored.

    Steps, jobs without GPUs, jobs that wait or run still and jobs cancelled before they started are left out.

    Raises:
        InputError: The header or a row is wrong.
    """
    rows = split_rows(text)
    _, header = next(rows)
    check_header(collector.source, header, REQUIRED_COLUMNS)
    for either in (("JobIDRaw", "JobID"), ("AllocTRES", "ReqTRES")):
        if not set(either) & set(header):
            raise InputError(
                f"{collector.source}: missing columns: {' or '.join(either)}; found: {', '.join(header)}"
            )

    def build(fields: list[str]) -> Draft | Omission:
        check_fields(fields, len(header))
        return _draft(dict(zip(header, fields, strict=True)))

    collector.collect(rows, build)


def split_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of each line that is not blank, the header first."""
    lines = ((at, line) for at, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1) if line.strip())
    at, first = next(lines)
    trailing = first.endswith("|")  # --parsable ends every line with the separator
    header = first.removesuffix("|").split("|")
    yield at, header
    # A job's name may hold the separator: as the last column it takes the rest of the line.
    splits = len(header) - 1 if header[-1] == "JobName" else -1
    for at, line in lines:
        yield at, (line.removesuffix("|") if trailing else line).split("|", splits)


def _draft(row: dict[str, str]) -> Draft | Omission:
    """The draft of a finished GPU job, or why the row is none."""
    job_id = row.get("JobIDRaw") or row.get("JobID", "")
    if "." in job_id:
        return Omission.STEP
    gpus = _gpus(row.get("AllocTRES", "")) or _gpus(row.get("ReqTRES", ""))
    if gpus == 0:
        return Omission.NO_GPU
    status = row["State"].partition(" ")[0]
    if status in _UNFINISHED:
        return Omission.UNFINISHED
    unplaced = row["ElapsedRaw"] == "0" and not row.get("AllocTRES", "unknown")
    if unplaced or row.get("Start", "unknown") in _NO_DATE:
        return Omission.NEVER_STARTED
    limit = row.get("TimelimitRaw", "")
    return Draft(
        job_id,
        timestamp_s(row["Submit"], "Submit"),
        gpus,
        number(row["ElapsedRaw"], "ElapsedRaw"),
        row.get("User", ""),
        row.get("Account", ""),
        status=status,
        gpu_type=_requested_type(row.get("ReqTRES", "")),
        time_limit_s=None if limit in _NO_LIMIT else time_limit(limit, 60.0),
        job_name=row.get("JobName", ""),
    )


def _gpus(tres: str) -> int:
    """GPUs in a TRES list: the untyped entry if there is one, else the sum of the typed ones."""
    entries = list(_GPUS.finditer(tres))
    untyped = [entry for entry in entries if entry["type"] is None]
    return sum(whole(entry["count"], "gres/gpu") for entry in untyped or entries)


def _requested_type(tres: str) -> str | None:
    """The GPU type a request names; None if it names none; RowError for several."""
    types = sorted({entry["type"] for entry in _GPUS.finditer(tres) if entry["type"]})
    if len(types) > 1:
        raise RowError("several GPU types", f"ReqTRES names several GPU types: {', '.join(types)}")
    return types[0] if types else None
