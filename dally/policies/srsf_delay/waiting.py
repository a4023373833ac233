"""Waiting jobs by the GPU-seconds that they need until they end: the fewer, the sooner a job starts."""

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heapreplace

from dally.cluster.free import FreeGpus
from dally.jobs.job import Gang
from dally.policies.common.ranking import Ranking
from dally.state import JobState

Kind = tuple[str, str]
"""What jobs of one gang have in common that have the same choice of placements: model, and whose they are."""


class WaitingByRemaining:
    """Waiting jobs by gang and kind, each kind sorted by what its jobs need.

    Jobs of one kind that ask for the same gang fit or do not fit together, at the same slowdowns, so a round
    of offers costs the number of kinds and of starts, not of jobs that wait.

    Args:
        remaining: What a job needs at its best placement until it ends, in GPU-seconds.
        kind: The kind of a job.
    """

    def __init__(self, remaining: Callable[[JobState], float], kind: Callable[[JobState], Kind]) -> None:
        self._remaining, self._kind = remaining, kind
        self._gangs: dict[Gang, dict[Kind, Ranking]] = {}
        self._jobs = 0

    def __len__(self) -> int:
        return self._jobs

    def add(self, job: JobState) -> None:
        """A job begins to wait."""
        kinds = self._gangs.setdefault(job.job.gang, {})
        kinds.setdefault(self._kind(job), Ranking()).add(job, self._remaining(job))
        self._jobs += 1

    def remove(self, job: JobState) -> None:
        """A job no longer waits."""
        kind, kinds = self._kind(job), self._gangs[job.job.gang]
        kinds[kind].remove(job)
        if not kinds[kind]:
            del kinds[kind]
        if not kinds:
            del self._gangs[job.job.gang]
        self._jobs -= 1

    def move(self, job: JobState) -> None:
        """A waiting job needs more than was believed, or less."""
        self._gangs[job.job.gang][self._kind(job)].move(job, self._remaining(job))

    def candidates(self, free: FreeGpus, most: Callable[[Gang], float]) -> Iterator[Ranking]:
        """The kinds whose first job may start: it fits, or claims less than it might take from others."""
        for gang, kinds in self._gangs.items():
            if free.lowest_level(gang) is not None:
                yield from kinds.values()
                continue
            held = most(gang)
            for ranking in kinds.values():
                if ranking.first_key() < held:
                    yield ranking


Priority = tuple[bool, float]
"""Whether its owner has a fair share already, and the GPU-seconds that a job needs; lower goes first."""


class OffersByPriority:
    """A round of offers over waiting jobs that stay as they are: again and again to the least priority.

    Args:
        kinds: Jobs of one kind each, by priority.
        priority: What a job claims at its best placement.
    """

    def __init__(self, kinds: Iterable[Ranking], priority: Callable[[JobState], Priority]) -> None:
        self._priority = priority
        self._heap = [self._entry(ranking, 0) for ranking in kinds]
        heapify(self._heap)

    def next(self) -> JobState | None:
        """The job with the least priority of those still open; None if there is none."""
        if not self._heap:
            return None
        _, _, place, ranking = self._heap[0]
        return ranking.at(place)

    def postpone(self, priority: Priority) -> bool:
        """The job given last claims more where it could start now: whether others go before it."""
        _, order, place, ranking = self._heap[0]
        heapreplace(self._heap, (priority, order, place, ranking))
        return self._heap[0][1] != order

    def served(self) -> None:
        """The job given last starts: go on behind it."""
        _, _, place, ranking = self._heap[0]
        if place + 1 < len(ranking):
            heapreplace(self._heap, self._entry(ranking, place + 1))
        else:
            heappop(self._heap)

    def refused(self) -> None:
        """The job given last cannot start: neither can others of its kind."""
        heappop(self._heap)

    def _entry(self, ranking: Ranking, place: int) -> tuple[Priority, int, int, Ranking]:
        job = ranking.at(place)
        return self._priority(job), job.order, place, ranking
