"""What a trace reader makes of one row, and the strict parsing of a row's fields."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from dally.errors import InputError
from dally.jobs.job import JobKind


class Draft(NamedTuple):
    """The fields of a `Job` as a row states them, not yet checked; same names and order as `Job`."""

    job_id: str
    submit_s: float
    gpus: int
    duration_s: float
    user: str = ""
    group: str = ""
    model: str = ""
    status: str = ""
    gpu_type: str | None = None
    kind: JobKind = JobKind.RIGID
    min_gpus: int | None = None
    max_gpus: int | None = None
    max_copies: int = 1
    time_limit_s: float | None = None
    gpus_per_machine: int | None = None
    preemptible: bool = True
    batch: int | None = None
    job_name: str = ""
    epochs: float | None = None
    epoch_samples: int | None = None


class Omission(StrEnum):
    """Why a sound row is no job to schedule; such rows are left out and counted, never an error."""

    NO_GPU = "uses no GPU"
    NEVER_STARTED = "never started"
    UNFINISHED = "not finished"
    STEP = "a job step"
    PARTIAL = "a part of a job (status 2 to 4)"


class RowError(InputError):
    """One row cannot be a job.

    Attributes:
        reason: The kind of fault, the same for all rows with it, by which skipped rows are counted.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        clamp = "; --min-duration-s raises short durations" if reason == "duration_s is 0" else ""
        self.hint = f"--skip-bad leaves such rows out{clamp}"


def whole(text: str, name: str) -> int:
    """The whole number in field `name`; RowError if it is none."""
    try:
        return int(text)
    except ValueError:
        raise RowError(
            f"{name} is not a whole number", f"{name} is {text!r}, must be a whole number"
        ) from None


def number(text: str, name: str) -> float:
    """The number in field `name`; RowError if it is none."""
    try:
        return float(text)
    except ValueError:
        raise RowError(f"{name} is not a number", f"{name} is {text!r}, must be a number") from None


def time_limit(text: str, unit_s: float = 1.0) -> float | None:
    """The time limit in a field that counts in units of `unit_s` seconds, in seconds; None if empty."""
    if not text:
        return None
    limit_s = number(text, "time limit") * unit_s
    if not 0 < limit_s < float("inf"):
        raise RowError("time limit is not positive", f"time limit is {text}, must be a positive number")
    return limit_s


def timestamp_s(text: str, name: str) -> float:
    """Seconds since 1970 of a date in field `name`: ISO 8601, or seconds since 1970 already.

    A date without a zone is taken as UTC: only differences matter.
    """
    try:
        if text.isdecimal():
            datetime.fromtimestamp(seconds := float(text), UTC)
            return seconds
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise RowError(
            f"{name} is not a date", f"{name} is {text!r}, must be a date like 2024-05-01T13:00:00"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def check_fields(fields: list[str], width: int) -> None:
    """Raise RowError unless a row has as many fields as the header, all of them text."""
    if len(fields) != width:
        raise RowError(
            "wrong number of fields", f"the row has {len(fields)} fields, must have {width} like the header"
        )
    if not all(map(str.isascii, fields)):
        _check_text(fields)


def _check_text(fields: list[str]) -> None:
    for field in fields:
        wrong = next((char for char in field if "\udc80" <= char <= "\udcff"), None)
        if wrong is not None:
            byte = ord(wrong) - 0xDC00
            raise RowError("bytes that are not UTF-8", f"byte 0x{byte:02x} in {field!a} is not UTF-8")
