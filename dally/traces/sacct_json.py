"""Jobs of `sacct --json`, as the columns that `sacct --parsable2` has for them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dally.errors import InputError
from dally.traces.rows import RowError

_COLUMNS = (
    "JobIDRaw",
    "Cluster",
    "User",
    "Account",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "ElapsedRaw",
    "State",
    "AllocTRES",
    "ReqTRES",
    "TimelimitRaw",
    "NodeList",
    "Partition",
    "JobName",
)
_MOST_MINUTES = 2**32 - 3
"""Of a time limit; the two numbers above stand for none and for the partition's."""


def json_rows(source: str, text: str) -> Iterator[tuple[int, list[str] | RowError]]:
    """Yield (number of the job, fields, or what is wrong with it), sacct's names of the columns first.

    Slurm 21.08 to 25.11 differ in how they write states (a name, or a list that begins with it), time limits
    (a number, or one that may be unset or infinite) and users (in the job's association, or in the job too).

    Raises:
        InputError: The JSON is broken, or has no list of jobs; these are counted from 1.
    """
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: broken JSON: {error}") from error
    if not isinstance(jobs := said.get("jobs"), list):
        raise InputError(f"{source}: the JSON has no list of jobs, as `sacct --json` has")
    yield 0, list(_COLUMNS)
    for at, job in enumerate(jobs, 1):
        yield at, _fields_or_fault(job)


def _fields_or_fault(job: Any) -> list[str] | RowError:
    """The fields of a job, or that it is not built like sacct's."""
    try:
        fields = _fields(job)
        if not all(isinstance(field, str) for field in fields):
            raise TypeError("a name is no text")
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
        reason = "not built like those of `sacct --json`"
        fault = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        return RowError(reason, f"{reason}: {fault}")
    return fields


def _fields(job: Mapping[str, Any]) -> list[str]:
    """The fields of a job, in the order of the columns."""
    times, owner, tres = job["time"], job.get("association") or {}, job["tres"]
    state = job["state"]["current"]
    return [
        str(job["job_id"]),
        job.get("cluster") or owner.get("cluster") or "",
        job.get("user") or owner.get("user") or "",
        job.get("account") or owner.get("account") or "",
        *(_moment(times.get(name)) for name in ("submission", "eligible", "start", "end")),
        str(_number(times["elapsed"])),
        state if isinstance(state, str) else state[0],
        _tres(tres.get("allocated") or ()),
        _tres(tres.get("requested") or ()),
        _minutes(times.get("limit")),
        job.get("nodes") or "",
        job.get("partition") or "",
        job.get("name") or "",
    ]


def _number(value: Any) -> int | None:
    """A number, which newer versions wrap to say that it is not set or infinite; None then."""
    if not isinstance(value, Mapping):
        return value if value is None else int(value)
    return int(value["number"]) if value.get("set", True) and not value.get("infinite") else None


def _moment(value: Any) -> str:
    """Seconds since 1970, or sacct's word for a moment that has not come."""
    return str(_number(value) or "Unknown")


def _minutes(value: Any) -> str:
    minutes = _number(value)
    return "" if minutes is None or minutes > _MOST_MINUTES else str(minutes)


def _tres(counted: Sequence[Mapping[str, Any]]) -> str:
    """Counted resources as a list such as `cpu=8,gres/gpu:a100=4`."""
    names = (
        (f"{each['type']}/{each['name']}" if each.get("name") else each["type"], each["count"])
        for each in counted
    )
    return ",".join(f"{name}={count}" for name, count in names)
