"""Microsoft Philly as published: the JSON list `cluster_job_log`."""

import json
from typing import Any

from dally.errors import InputError
from dally.traces.rows import Draft, JobCollector, Omission, RowError, timestamp_s

_STATUS = {"Pass": "COMPLETED", "Failed": "FAILED", "Killed": "CANCELLED"}
_NO_DATE = (None, "", "None")
"""What stands for a date that was not recorded."""


def matches(first_line: str) -> bool:
    """Whether a file's first line begins a JSON list."""
    return first_line.startswith("[")


def read(text: str, collector: JobCollector) -> None:
    """Read Philly's job log.

    A job's duration is the sum of its attempts' running times, its GPUs are those of its last attempt, its
    group is the virtual cluster. Jobs without an attempt, without GPUs or still running are left out.

    Raises:
        InputError: The text is no JSON list, or a job in it is wrong; jobs are counted from 1.
    """
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{collector.source}: broken JSON: {error}") from error
    if not isinstance(entries, list):
        raise InputError(f"{collector.source}: the JSON is no list of jobs")
    collector.collect(enumerate(entries, 1), _draft, unit="job")


def _draft(entry: Any) -> Draft | Omission:
    """The draft of one entry; any missing key or wrong type in it is a RowError."""
    try:
        attempts = entry["attempts"]
        if not attempts:
            return Omission.NEVER_STARTED
        if attempts[-1]["end_time"] in _NO_DATE:
            return Omission.UNFINISHED
        gpus = sum(len(machine["gpus"]) for machine in attempts[-1]["detail"])
        if gpus == 0:
            return Omission.NO_GPU
        if (status := entry["status"]) not in _STATUS:
            raise RowError("unknown status", f"status is {status!r}, must be one of {', '.join(_STATUS)}")
        return Draft(
            _text(entry["jobid"]),
            timestamp_s(entry["submitted_time"], "submitted_time"),
            gpus,
            sum(_attempt_s(attempt) for attempt in attempts),
            _text(entry["user"]),
            _text(entry["vc"]),
            status=_STATUS[status],
        )
    except KeyError as error:
        raise RowError(f"lacks key {error}", f"the entry lacks the key {error} of Philly's log") from error
    except (TypeError, AttributeError) as error:
        raise RowError("wrong structure", f"the entry is not built like Philly's: {error}") from error


def _text(value: object) -> str:
    """A name, empty where it is null."""
    if not isinstance(value, str | None):
        raise TypeError(f"{value!r} is no text")
    text = value or ""
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can name halves of characters
        raise RowError("a name is not Unicode", f"{value!r} is not Unicode text") from None
    return text


def _attempt_s(attempt: Any) -> float:
    """Running time of one attempt, seconds."""
    for name in ("start_time", "end_time"):
        if attempt[name] in _NO_DATE:
            raise RowError(f"an attempt without {name}", f"an attempt has no {name}")
    span_s = timestamp_s(attempt["end_time"], "end_time") - timestamp_s(attempt["start_time"], "start_time")
    if span_s < 0:
        raise RowError("an attempt ends before it starts", "an attempt ends before it starts")
    return span_s
