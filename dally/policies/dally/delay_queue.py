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
    origin_s: float
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
        self.by_origin[entry.tier].add((entry.origin_s, order))

    def remove(self, order: int) -> QueueEntry:
        """Take a job out."""
        entry = self.entries.pop(order)
        self.by_rank[entry.tier].remove((entry.rank, order))
        self.by_origin[entry.tier].remove((entry.origin_s, order))
        return entry

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
            tier = self.tier(entry.origin_s, now)
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
    """

    def __init__(self, timers: Timers, best_level: Callable[[Gang], int], top: int) -> None:
        self.timers = timers
        self._best_level = best_level
        self._top = top
        self._classes: dict[Gang, SizeClass] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, job: JobState, rank: Rank, now: float) -> None:
        """A job begins to wait at `job.origin_s` with a rank."""
        gang = job.job.gang
        if gang not in self._classes:
            self._classes[gang] = SizeClass(gang, base=self._best_level(gang), top=self._top)
        size = self._classes[gang]
        if not size.delays_s:
            size.delays_s = self.timers.delays_s(gang.gpus, now)
        size.add(QueueEntry(job, rank, job.origin_s, size.tier(job.origin_s, now)))
        self._waiting += 1

    def remove(self, job: JobState) -> None:
        """A job no longer waits."""
        size = self._classes[job.job.gang]
        size.remove(job.order)
        self._waiting -= 1
        if not size.entries:
            del self._classes[size.gang]

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
        for size in self._classes.values():
            fits = free.total(size.gang.gpu_type) >= size.gang.gpus
            if fits or size.gang in unexplained or size.next_due_s() <= now:
                moved += size.refresh(self.timers.delays_s(size.gang.gpus, now), now)
        return moved

    def classes(self) -> Iterator[SizeClass]:
        """The classes in which jobs wait."""
        return iter(self._classes.values())

    def next_due_s(self) -> float:
        """When the next delay runs out; inf if none will."""
        return min((size.next_due_s() for size in self._classes.values()), default=inf)


class Offers:
    """A round of offers over a queue that stays as it is: the job of best rank that fits, again and again."""

    def __init__(self, queue: DelayQueue, free: FreeGpus) -> None:
        self._free = free
        self._cursors = [(size, [0] * (size.top + 1)) for size in queue.classes()]
        self._found: tuple[QueueEntry, int, list[int]]

    def best(self) -> tuple[QueueEntry, int] | None:
        """The best of the jobs that accept what is free, with the lowest level that holds its gang."""
        best: Rank | None = None
        for size, cursor in self._cursors:
            level = self._free.lowest_level(size.gang, size.base)
            if level is None:
                continue
            for tier in range(level, size.top + 1):
                ranked = size.by_rank[tier]
                if cursor[tier] < len(ranked):
                    rank, order = ranked[cursor[tier]]
                    if best is None or rank < best:
                        best = rank
                        self._found = size.entries[order], level, cursor
        return None if best is None else self._found[:2]

    def take(self) -> None:
        """The job that `best` returned last is served: go on behind it."""
        entry, _, cursor = self._found
        cursor[entry.tier] += 1
