"""Slurm's accounting, as `sacct --parsable2`, `--parsable` or `--json` prints it."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from dally.errors import InputError
from dally.traces.rows import (
    Draft,
    JobCollector,
    Omission,
    RealRun,
    RowError,
    check_fields,
    check_header,
    number,
    time_limit,
    timestamp_s,
    whole,
)
from dally.traces.sacct_json import json_rows

REQUIRED_COLUMNS = ("Submit", "State")
_EITHER_COLUMN = (("JobIDRaw", "JobID"), ("ElapsedRaw", "Elapsed"), ("AllocTRES", "ReqTRES"))
_UNFINISHED = frozenset({"PENDING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED"})
_NO_LIMIT = frozenset({"", "0", "00:00:00", "UNLIMITED", "Partition_Limit"})
"""To sbatch, a limit of 0 is none."""
_NO_DATE = frozenset({"", "None", "Unknown"})
_SPAN = re.compile(r"(?:(?:(\d{1,9})-)?(\d{1,9}):)?(\d\d):(\d\d)", re.ASCII)
"""A time such as 1-02:03:04 or 03:04, as `Elapsed` and `Timelimit` have it."""
_KEYED = re.compile(r"(.+?)\d{10}", re.ASCII)
"""A time as SLURM_TIME_FORMAT="$key%s" has it."""
_NODES = re.compile(r"\bnode=([1-9]\d{0,8})\b")
_GPUS = re.compile(r"gres/gpu(?::(?P<type>[^=,/]+))?=(?P<count>[^,]*)")


def matches(first_line: str) -> bool:
    """Whether a file's first line is a header of sacct, or begins its JSON."""
    columns = first_line.split("|")
    return first_line.startswith("{") or (len(columns) > 1 and not {"JobIDRaw", "JobID"}.isdisjoint(columns))


def read(text: str, collector: JobCollector) -> None:
    """Read sacct's output; columns in any order, those not needed are ignored.

    A job counts as submitted when it was eligible. Left out are steps, jobs without GPUs, jobs that wait or
    run still, and jobs cancelled before they started.
    Of several records of a job, as `sacct --duplicates` lists them, the last counts.

    Raises:
        InputError: The header or a row is wrong.
    """
    rows = split_rows(collector.source, text)
    header = header_of(rows)
    check_header(collector.source, header, REQUIRED_COLUMNS)
    for either in _EITHER_COLUMN:
        if not set(either) & set(header):
            raise InputError(
                f"{collector.source}: missing columns: {' or '.join(either)}; found: {', '.join(header)}"
            )
    cluster = ""

    def build(fields: Fields) -> Draft | Omission:
        nonlocal cluster
        if isinstance(fields, RowError):
            raise fields
        if isinstance(fields, Omission):
            return fields
        check_fields(fields, len(header))
        row = dict(zip(header, fields, strict=True))
        draft = _draft(row)
        if isinstance(draft, Draft):
            cluster = cluster or row.get("Cluster", "")
            if row.get("Cluster", cluster) != cluster:
                raise RowError(
                    "of another cluster than the first job",
                    f"the job is of cluster {row['Cluster']!r}, those before are of {cluster!r}; "
                    "`sacct -M NAME` lists one cluster",
                )
        return draft

    collector.collect(rows, build, unit="job" if is_json(text) else "line", last_counts=True)


def is_json(text: str) -> bool:
    """Whether a text is what `sacct --json` prints."""
    return text.lstrip().startswith("{")


Fields = list[str] | RowError | Omission
"""The fields of a row, or what is wrong with it, or why it is none."""

Rows = Iterator[tuple[int, Fields]]
"""Places in a file, each with the row there."""


def header_of(rows: Rows) -> list[str]:
    """Take the first row, which is the header."""
    _, header = next(rows)
    assert isinstance(header, list)
    return header


def split_rows(source: str, text: str) -> Rows:
    """Yield (line number, fields) of each line that is not blank, the header first, and only once.

    Jobs of `sacct --json` are rows, too, with sacct's names of columns, counted from 1.
    A job's name may hold line ends, and so whole rows. Where times have a key and Submit is the first column,
    lines that do not begin with the key are none: who names jobs does not know it.

    Raises:
        InputError: It is JSON, but broken or without jobs; or another header follows.
    """
    if is_json(text):
        yield from json_rows(source, text)
        return
    lines = ((at, line) for at, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1) if line.strip())
    at, first = next(lines)
    trailing = first.endswith("|")  # --parsable ends every line with the separator
    header = first.removesuffix("|").split("|")
    yield at, header
    # A job's name may hold the separator: as the last column it takes the rest of the line.
    splits = len(header) - 1 if header[-1] == "JobName" else -1
    row = next(lines, None)
    if row is None:
        return
    if header[0] == "Submit" and (keyed := _KEYED.fullmatch(row[1].partition("|")[0])):
        yield from _keyed_rows(chain([row], lines), keyed[1], splits, trailing)
        return
    for at, line in chain([row], lines):
        if line == first:  # exports of several months, one after the other
            continue
        if "Submit" in line and set(REQUIRED_COLUMNS) <= set(line.split("|")):
            raise InputError(
                f"{source}, line {at}: a header of other columns than the first, {'|'.join(header)}"
            )
        yield at, (line.removesuffix("|") if trailing else line).split("|", splits)


def _keyed_rows(lines: Iterable[tuple[int, str]], key: str, splits: int, trailing: bool) -> Rows:
    """The rows among lines of which each row begins with a key; others belong to the name before them."""
    place, row = 0, list[str]()
    for at, line in chain(lines, [(0, key)]):
        if not line.startswith(key):
            row.append(line)
            yield at, Omission.NOT_SACCTS
            continue
        if row:
            whole_row = "\n".join(row).replace(key, "")
            yield place, (whole_row.removesuffix("|") if trailing else whole_row).split("|", splits)
        place, row = at, [line]


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
    elapsed_s = (
        number(row["ElapsedRaw"], "ElapsedRaw") if "ElapsedRaw" in row else _span_s(row["Elapsed"], "Elapsed")
    )
    unplaced = elapsed_s == 0 and not row.get("AllocTRES", "unknown")
    if unplaced or row.get("Start", "unknown") in _NO_DATE:
        return Omission.NEVER_STARTED
    start_s = _moment_s(row, "Start")
    nodes = _NODES.search(row.get("AllocTRES") or row.get("ReqTRES", ""))
    return Draft(
        job_id,
        _arrival_s(row, start_s),
        gpus,
        elapsed_s,
        row.get("User", ""),
        row.get("Account", ""),
        status=status,
        gpu_type=_requested_type(row.get("ReqTRES", "")),
        time_limit_s=_limit_s(row),
        job_name=row.get("JobName", ""),
        partition=row.get("Partition", ""),
        ran=RealRun(start_s, row.get("NodeList", ""), int(nodes[1]) if nodes else None),
    )


def _moment_s(row: dict[str, str], name: str) -> float | None:
    """Seconds since 1970 of a date in field `name`; None if the row does not tell."""
    return None if (text := row.get(name, "")) in _NO_DATE else timestamp_s(text, name)


def _arrival_s(row: dict[str, str], start_s: float | None) -> float:
    """When a job became eligible, seconds since 1970.

    That is when it is submitted, and neither held nor waiting for its begin time or for another job. No
    scheduler may start it before, and Slurm counts its age from then on. A job that started earlier, as its
    record may say, counts from its submission.
    """
    submit_s, eligible_s = timestamp_s(row["Submit"], "Submit"), _moment_s(row, "Eligible")
    if eligible_s is None or (start_s is not None and eligible_s > start_s):
        return submit_s
    return max(submit_s, eligible_s)


def _limit_s(row: dict[str, str]) -> float | None:
    """A job's time limit, seconds; None if it has none, or the row does not tell."""
    minutes, span = row.get("TimelimitRaw", ""), row.get("Timelimit", "")
    if minutes not in _NO_LIMIT:
        return time_limit(minutes, 60.0)
    return None if span in _NO_LIMIT else _span_s(span, "Timelimit")


def _span_s(text: str, name: str) -> float:
    """Seconds of a time such as 1-02:03:04 in field `name`."""
    if (match := _SPAN.fullmatch(text)) is None:
        raise RowError(f"{name} is not a time", f"{name} is {text!r}, must be a time like 1-02:03:04")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


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
