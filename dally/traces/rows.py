"""How trace readers make jobs of rows: fields parsed strictly, rows checked, clamped, counted or refused."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple, Self, TypeVar

from dally.bounds import MOST
from dally.errors import InputError
from dally.jobs.job import Job, JobKind
from dally.jobs.training_plan import TrainingPlan

_POINT_ZERO = re.compile(r"(?<=[0-9])\.0*\s*$")
"""What pandas writes behind the whole numbers of a column in which one is missing."""

Row = TypeVar("Row")


class RealRun(NamedTuple):
    """How a job of a trace really ran, as far as the trace tells.

    Attributes:
        start_s: When it started, on the clock of its `submit_s`; None if unknown.
        nodes: The nodes it had, as a host list; empty if unknown.
        machines: How many they were; None if unknown.
    """

    start_s: float | None = None
    nodes: str = ""
    machines: int | None = None

    def since(self, origin_s: float) -> Self:
        """The same on a clock that begins at `origin_s`."""
        return self if self.start_s is None else self._replace(start_s=self.start_s - origin_s)


class Draft(NamedTuple):
    """The fields of a `Job` as a row states them, not yet checked; same names and order as `Job`.

    The last, `ran`, is no field of a job: it is how the job really ran.
    """

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
    machines: frozenset[str] | None = None
    segment: int | None = None
    plan: TrainingPlan | None = None
    spread_segments: bool = False
    consolidate_segments: bool = False
    whole_blocks: bool = False
    partition: str = ""
    ran: RealRun | None = None


class Omission(StrEnum):
    """Why a sound row is no job to schedule; such rows are left out and counted, never an error."""

    NO_GPU = "uses no GPU"
    NEVER_STARTED = "never started"
    UNFINISHED = "not finished"
    STEP = "a job step"
    OLDER = "an older record of a job"
    PARTIAL = "a part of a job (status 2 to 4)"
    NOT_SACCTS = "not a row of sacct's: without the export's key"


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


class JobCollector:
    """Collects the jobs of one file in the file's order.

    Attributes:
        source: The file's name, for messages.
        jobs: The jobs taken so far; `submit_s` still on the file's own clock.
        ran: How they really ran, by job id, where the file tells; start times on the file's own clock.
        dropped: Rows left out, by reason.
        clamped: Jobs whose duration was raised to `min_duration_s`.
    """

    def __init__(self, source: str, *, skip_bad: bool = False, min_duration_s: float = 0.0) -> None:
        """Start empty.

        Args:
            source: The file's name, for messages.
            skip_bad: Count wrong rows and go on, instead of raising.
            min_duration_s: Raise durations of 0 or more to at least this, seconds.
        """
        self.source = source
        self.jobs: list[Job] = []
        self.ran: dict[str, RealRun] = {}
        self.dropped: Counter[str] = Counter()
        self.clamped = 0
        self._skip_bad = skip_bad
        self._min_duration_s = min_duration_s
        self._first: dict[str, tuple[int, int]] = {}
        """Of each job, the place of its first row, and where it is in `jobs`."""

    def collect(
        self,
        rows: Iterable[tuple[int, Row]],
        build: Callable[[Row], Draft | Omission],
        unit: str = "line",
        last_counts: bool = False,
    ) -> None:
        """Take the job of each row.

        Args:
            rows: Pairs of the row's place in the file, counted from 1, and the row.
            build: Makes a draft of a row, says why it is none, or raises RowError.
            unit: What the place counts.
            last_counts: A job may have several rows, of which the one submitted last counts, and of those as
                late the last; False: that is an error.

        Raises:
            InputError: A row is wrong and `skip_bad` is off; names file, place and fault.
        """
        for place, row in rows:
            try:
                draft = build(row)
                if isinstance(draft, Omission):
                    self.dropped[str(draft)] += 1
                    continue
                short = 0 <= draft.duration_s < self._min_duration_s
                job = _checked(draft._replace(duration_s=self._min_duration_s) if short else draft)
                first_place, at = self._first.setdefault(job.job_id, (place, len(self.jobs)))
                if first_place == place:
                    self.jobs.append(job)
                    self.clamped += short
                elif not last_counts:
                    raise RowError(
                        "duplicate job_id",
                        f"job_id {job.job_id!r} was already used on {unit} {first_place}",
                    )
                else:
                    self.dropped[str(Omission.OLDER)] += 1
                    if job.submit_s < self.jobs[at].submit_s:
                        continue
                    self.jobs[at] = job
                if draft.ran is not None:
                    self.ran[job.job_id] = draft.ran
            except RowError as error:
                if not self._skip_bad:
                    raise RowError(error.reason, f"{self.source}, {unit} {place}: {error}") from error
                self.dropped[error.reason] += 1


def _checked(draft: Draft) -> Job:
    """The job of a draft; RowError, whose reason is free of the row's own values, if its checks refuse it."""
    if not draft.job_id:
        raise RowError("job_id is empty", "job_id is empty")
    try:
        return Job(*draft[:-1])
    except InputError as error:
        reason = "min_gpus, gpus, max_gpus, max_copies, gpus_per_machine or segment out of range"
        if draft.gpus < 1:
            reason = "gpus is below 1"
        elif draft.duration_s == 0:
            reason = "duration_s is 0"
        elif not 0 < draft.duration_s <= MOST:
            reason = "duration_s is not a positive number"
        elif not 0 <= draft.submit_s <= MOST:
            reason = "submit_s is not 0 or more"
        elif draft.plan is not None:
            reason = "plan does not fit the job"
        raise RowError(reason, str(error)) from error


def whole(text: str, name: str) -> int:
    """The whole number in field `name`; RowError if it is none."""
    try:
        return int(_POINT_ZERO.sub("", text))
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
    if not 0 < limit_s <= MOST:
        said = f"time limit is {text}, must be a positive number up to {MOST / unit_s:g}"
        raise RowError("time limit is not positive", said)
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
    except (ValueError, OverflowError, OSError):  # the last from the C library, of years beyond its own
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
    if all(map(str.isascii, fields)):
        return
    for field in fields:
        wrong = next((char for char in field if "\ud800" <= char <= "\udfff"), None)
        if wrong is not None:
            byte = ord(wrong) - 0xDC00
            if 0x80 <= byte <= 0xFF:
                raise RowError("bytes that are not UTF-8", f"byte 0x{byte:02x} in {field!a} is not UTF-8")
            raise RowError("a name is not Unicode", f"{field!a} is not Unicode text")


def csv_rows(source: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of each row that is not blank, the header first.

    Raises:
        InputError: The quoting is broken, so that what follows cannot be split into rows.
    """
    # A blank behind a comma belongs to the value, unless the header has them there, too.
    is_spaced = ", " in text.partition("\n")[0]
    rows = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=is_spaced)
    try:
        for fields in rows:
            if fields:
                yield rows.line_num, fields
    except csv.Error as error:
        raise InputError(f"{source}, line {rows.line_num}: broken CSV: {error}") from error


def check_header(
    source: str, header: Sequence[str], required: Collection[str], known: Collection[str] | None = None
) -> None:
    """Check a header's columns.

    Args:
        source: The file's name, for messages.
        header: The columns found.
        required: Columns that must be there.
        known: All columns allowed; None allows any.

    Raises:
        InputError: Columns are missing, repeated or unknown; the message lists them.
    """
    if missing := [name for name in required if name not in header]:
        raise InputError(f"{source}: missing columns: {', '.join(missing)}; found: {', '.join(header)}")
    if repeated := sorted(name for name, times in Counter(header).items() if times > 1):
        raise InputError(f"{source}: columns given twice: {', '.join(repeated)}")
    if known is not None and (unknown := [repr(name) for name in header if name not in known]):
        raise InputError(f"{source}: unknown columns: {', '.join(unknown)}; known: {', '.join(known)}")
