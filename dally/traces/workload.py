"""A workload: the jobs of a run, and what is needed to say where they came from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from operator import attrgetter
from typing import overload

from dally.errors import InputError
from dally.jobs.job import Job
from dally.traces.rows import RealRun
from dally.words import plural

_FIELDS = [known.name for known in fields(Job) if known.init]
_VALUES = attrgetter(*_FIELDS)


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs sorted by submission, ties in the order of their source; the first is submitted at 0.

    Attributes:
        jobs: The jobs.
        source: The file's path or the generator's specification, as given.
        format: Name of the file's format, or `generated`.
        sha256: Hex digest of the file as stored; for a generated workload, of its common CSV.
        origin: The moment that became 0: a date (UTC where the source names no zone), or seconds on the
            source's own clock like `4062780 s`.
        dropped: Rows left out of the whole file, by reason.
        clamped: Jobs of the whole file whose duration was raised to the least one allowed.
        outside: Jobs left out because they were submitted outside the slice, or of another group.
        earlier: Jobs left out because as many as are wanted were submitted after them.
        seed: Seed of the generator; None for a file.
        ran: How jobs really ran, by job id, where the source tells.
    """

    jobs: Sequence[Job]
    source: str
    format: str
    sha256: str
    origin: str = "0 s"
    dropped: Mapping[str, int] = field(default_factory=dict)
    clamped: int = 0
    outside: int = 0
    earlier: int = 0
    seed: int | None = None
    ran: Mapping[str, RealRun] = field(default_factory=dict)


class LazyJobs(Sequence[Job]):
    """A sequence of jobs, each built anew whenever it is asked for: a million take the room of their numbers.

    Args:
        count: How many there are.
        build: Builds the one of a number, always the same.
    """

    def __init__(self, count: int, build: Callable[[int], Job]) -> None:
        self._count, self._build = count, build

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> Job: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Job]: ...
    def __getitem__(self, number: int | slice) -> Job | Sequence[Job]:
        if isinstance(number, slice):
            return [self._build(each) for each in range(self._count)[number]]
        return self._build(range(self._count)[number])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


def remade(job: Job, field: str, value: object) -> Job:
    """The job with another value in a field; three times as fast as `replace`, which counts for a million."""
    values = [*_VALUES(job)]
    values[_FIELDS.index(field)] = value
    return Job(*values)


def changed(jobs: Sequence[Job], change: Callable[[Job], Job]) -> Sequence[Job]:
    """The jobs with a change made to each: as lazy as they are."""
    if isinstance(jobs, LazyJobs):
        return LazyJobs(len(jobs), lambda number: change(jobs[number]))
    return tuple(map(change, jobs))


def window(
    jobs: Sequence[Job], start_s: float | None, end_s: float | None, zero_s: float = 0.0
) -> Sequence[Job]:
    """The jobs submitted in a span of time, sorted by submission, ties in the order given.

    Args:
        jobs: Jobs in any order, at least one.
        start_s: First moment of the span, seconds after `zero_s`; None for no bound.
        end_s: First moment after the span, seconds after `zero_s`; None for no bound.
        zero_s: Where the span's clock starts, on the jobs' clock, seconds.

    Raises:
        InputError: The span is empty, or holds no job.
    """
    whole = start_s is None and end_s is None
    if whole and all(earlier.submit_s <= later.submit_s for earlier, later in pairwise(jobs)):
        return jobs
    start_s = float("-inf") if start_s is None else start_s
    end_s = float("inf") if end_s is None else end_s
    if not start_s < end_s:
        raise InputError(f"the slice from {start_s:.15g} s to {end_s:.15g} s is empty")
    inside = [job for job in jobs if start_s <= job.submit_s - zero_s < end_s]
    if not inside:
        last_s = max(job.submit_s for job in jobs) - zero_s
        until = "on" if end_s == float("inf") else f"to {end_s:.15g} s"
        span = f"from {start_s:.15g} s {until}" if start_s > float("-inf") else f"before {end_s:.15g} s"
        raise InputError(f"no job was submitted {span}; the last one is at {last_s:.15g} s")
    inside.sort(key=lambda job: job.submit_s)
    return inside


def in_group(jobs: Sequence[Job], group: str | None) -> Sequence[Job]:
    """The jobs of a group, in their order; all if it is None.

    Raises:
        InputError: No job is of that group; the message names those that there are.
    """
    if group is None:
        return jobs
    inside = [job for job in jobs if job.group == group]
    if not inside:
        groups = ", ".join(sorted({job.group for job in jobs} - {""})) or "none"
        raise InputError(f"no job is of group {group!r}; groups: {groups}")
    return inside


def rebase(jobs: Sequence[Job]) -> Sequence[Job]:
    """Sorted jobs with all submission times shifted so that the first is 0."""
    first_s = jobs[0].submit_s
    return changed(jobs, lambda job: remade(job, "submit_s", job.submit_s - first_s) if first_s else job)


def changes_text(dropped: Mapping[str, int], clamped: int) -> str:
    """What was left out of a trace or changed, in one line; empty if nothing."""
    parts = [f"left out {count:,}: {reason}" for reason, count in dropped.items()]
    return "; ".join(parts + ([f"{plural(clamped, 'duration')} raised to the least one"] if clamped else []))
