"""Waiting jobs of delay scheduling, indexed so that an offer looks only at jobs that could take it."""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from math import inf

from sortedcontainers import SortedList

from dally.cluster.free import FreeGpus
from dally.jobs.job import Gang
from dally.policies.dally.timers import Timers
from dally.state import JobState

Rank = tuple[float, float, int]
"""Rank of a job, lower first: (network sensitivity, last assignment in seconds, order of arrival)."""


@dataclass(slots=True)
class QueueEntry:
    """A waiting job, its rank, and the highest level it accepts by now (its tier)."""

    job: JobState
    rank: Rank
    tier: int


@dataclass(slots=True)
class SizeClass:
    """The waiting jobs that ask for the same gang: equal in what fits, different in patience and rank.

    Attributes:
        gang: What they ask for.
        base: The lowest level that can hold the gang at all.
        top: The highest level of the tree.
        delays_s: Delay per level below the top, as last asked for.
    """

    gang: Gang
    base: int
    top: int
    delays_s: tuple[float, ...] = ()
    by_rank: list[SortedList[tuple[Rank, int]]] = field(init=False)
    by_origin: list[SortedList[tuple[float, int]]] = field(init=False)
    entries: dict[int, QueueEntry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_rank = [SortedList() for _ in range(self.top + 1)]
        self.by_origin = [SortedList() for _ in range(self.top + 1)]

    def tier(self, origin_s: float, now: float) -> int:
        """The highest level accepted by `now`: one above the highest level whose delay is over."""
        over = [level + 1 for level in range(self.base, self.top) if origin_s + self.delays_s[level] <= now]
        return max(over, default=self.base)

    def add(self, entry: QueueEntry) -> None:
        """Insert a job in the tier it states."""
        order = entry.job.order
        self.entries[order] = entry
        self.by_rank[entry.tier].add((entry.rank, order))
        self.by_origin[entry.tier].add((entry.job.origin_s, order))

    def remove(self, order: int) -> None:
        """Take a job out."""
        entry = self.entries.pop(order)
        self.by_rank[entry.tier].remove((entry.rank, order))
        self.by_origin[entry.tier].remove((entry.job.origin_s, order))

    def next_due_s(self) -> float:
        """When the next delay of any job runs out; inf if none will."""
        due = inf
        for tier in range(self.base, self.top):
            if self.by_origin[tier]:
                due = min(due, self.by_origin[tier][0][0] + min(self.delays_s[tier:]))
        return due

    def refresh(self, delays_s: tuple[float, ...], now: float) -> Iterator[str]:
        """Move the jobs whose tier has changed, because of the time or of new delays; their names."""
        if delays_s != self.delays_s:
            self.delays_s = delays_s
            moved = list(self.entries)
        else:
            moved = [order for tier in range(self.base, self.top) for order in self._due(tier, now)]
        for order in moved:
            entry = self.entries[order]
            tier = self.tier(entry.job.origin_s, now)
            if tier != entry.tier:
                self.remove(order)
                entry.tier = tier
                self.add(entry)
                yield entry.job.job_id

    def _due(self, tier: int, now: float) -> Iterator[int]:
        shortest = min(self.delays_s[tier:])
        for origin_s, order in self.by_origin[tier]:
            if origin_s + shortest > now:
                return
            yield order


class DelayQueue:
    """All waiting jobs of a delay-scheduling policy, by the gang they ask for.

    Args:
        timers: Delays by gang size.
        best_level: The lowest level that can hold a gang.
        top: The highest level of the tree.

    Attributes:
        classes: The gangs that jobs wait for, and the jobs of each.
    """

    def __init__(self, timers: Timers, best_level: Callable[[Gang], int], top: int) -> None:
        self._timers, self._best_level, self._top = timers, best_level, top
        self.classes: dict[Gang, SizeClass] = {}

    def __bool__(self) -> bool:
        return bool(self.classes)

    def add(self, job: JobState, rank: Rank, now: float) -> None:
        """A job begins to wait at `job.origin_s` with a rank."""
        gang = job.job.gang
        if gang not in self.classes:
            self.classes[gang] = SizeClass(gang, base=self._best_level(gang), top=self._top)
        size = self.classes[gang]
        if not size.delays_s:
            size.delays_s = self._timers.delays_s(gang.gpus, now)
        size.add(QueueEntry(job, rank, size.tier(job.origin_s, now)))

    def remove(self, job: JobState) -> None:
        """A job no longer waits."""
        size = self.classes[job.job.gang]
        size.remove(job.order)
        if not size.entries:
            del self.classes[size.gang]

    def refresh(self, free: FreeGpus, unexplained: Container[Gang], now: float) -> list[str]:
        """Bring the delays and tiers of all classes that matter now up to date.

        Args:
            free: What jobs could have.
            unexplained: Gangs of jobs whose wait is to be explained.
            now: The moment, seconds.

        Returns:
            Names of the jobs whose tier has changed.
        """
        moved: list[str] = []
        for size in self.classes.values():
            fits = free.total(size.gang.gpu_type) >= size.gang.gpus
            if fits or size.gang in unexplained or size.next_due_s() <= now:
                moved += size.refresh(self._timers.delays_s(size.gang.gpus, now), now)
        return moved

    def next_due_s(self) -> float:
        """When the next delay runs out; inf if none will."""
        return min((size.next_due_s() for size in self.classes.values()), default=inf)
