"""The gate every row of a trace passes: checked, clamped, counted or refused, with its place named."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from dally.errors import InputError
from dally.jobs.job import Job
from dally.traces.rows import Draft, Omission, RowError

Row = TypeVar("Row")


class TraceIntake:
    """Collects the jobs of one file in the file's order.

    Attributes:
        source: The file's name, for messages.
        jobs: The jobs taken so far; `submit_s` still on the file's own clock.
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
        self.dropped: Counter[str] = Counter()
        self.clamped = 0
        self._skip_bad = skip_bad
        self._min_duration_s = min_duration_s
        self._places: dict[str, int] = {}

    def collect(
        self,
        rows: Iterable[tuple[int, Row]],
        build: Callable[[Row], Draft | Omission],
        unit: str = "line",
    ) -> None:
        """Take the job of each row.

        Args:
            rows: Pairs of the row's place in the file, counted from 1, and the row.
            build: Makes a draft of a row, says why it is none, or raises RowError.
            unit: What the place counts.

        Raises:
            InputError: A row is wrong and `skip_bad` is off; names file, place and fault.
        """
        for place, row in rows:
            try:
                draft = build(row)
                if isinstance(draft, Omission):
                    self.dropped[str(draft)] += 1
                else:
                    self._take(place, draft, unit)
            except RowError as error:
                if not self._skip_bad:
                    raise RowError(error.reason, f"{self.source}, {unit} {place}: {error}") from error
                self.dropped[error.reason] += 1

    def _take(self, place: int, draft: Draft, unit: str) -> None:
        """Add the job of a draft, or raise RowError."""
        short = 0 <= draft.duration_s < self._min_duration_s
        job = _checked(draft._replace(duration_s=self._min_duration_s) if short else draft)
        if self._places.setdefault(job.job_id, place) != place:
            raise RowError(
                "duplicate job_id",
                f"job_id {job.job_id!r} was already used on {unit} {self._places[job.job_id]}",
            )
        self.jobs.append(job)
        self.clamped += short


def _checked(draft: Draft) -> Job:
    """The job of a draft; RowError if the job's own checks refuse it."""
    if not draft.job_id:
        raise RowError("job_id is empty", "job_id is empty")
    try:
        return Job(*draft)
    except InputError as error:
        raise RowError(_fault(draft), str(error)) from error


def _fault(draft: Draft) -> str:
    """Which of the job's checks a refused draft failed, free of the row's own values."""
    if draft.gpus < 1:
        return "gpus is below 1"
    if draft.duration_s == 0:
        return "duration_s is 0"
    if not 0 < draft.duration_s < float("inf"):
        return "duration_s is not a positive number"
    if not 0 <= draft.submit_s < float("inf"):
        return "submit_s is not 0 or more"
    return "min_gpus, gpus, max_gpus, max_copies or gpus_per_machine out of range"
