"""The waiting jobs of a policy by what they ask for: a round looks only at those that could differ."""

from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace

from dally.jobs.job import Gang
from dally.policies.common.ranking import Ranking
from dally.state import JobState

Demand = tuple[Gang, int]
"""What jobs that fit or do not fit together have in common: the gang, the highest level accepted."""


class DemandQueue:
    """Waiting jobs by demand: if the first of a demand cannot start, those behind it cannot either.

    So a round of offers costs the number of different demands and of jobs that start, not of jobs that wait.
    """

    def __init__(self) -> None:
        self._by_demand: dict[Demand, Ranking] = {}
        self._demand_of: dict[int, Demand] = {}

    def __len__(self) -> int:
        return len(self._demand_of)

    def add(self, job: JobState, highest: int, *key: float) -> None:
        """A job that accepts no placement above level `highest` begins to wait."""
        demand = job.job.gang, highest
        self._demand_of[job.order] = demand
        self._by_demand.setdefault(demand, Ranking()).add(job, *key)

    def remove(self, job: JobState) -> None:
        """A job no longer waits."""
        demand = self._demand_of.pop(job.order)
        self._by_demand[demand].remove(job)
        if not self._by_demand[demand]:
            del self._by_demand[demand]

    def rankings(self) -> Iterable[Ranking]:
        """The jobs of each demand in which somebody waits."""
        return self._by_demand.values()


class DemandRound:
    """One pass over a queue that stays as it is: again and again the first job whose demand is still open."""

    def __init__(self, queue: DemandQueue) -> None:
        self._open = [(ranking.rank(ranking.at(0)), 0, ranking) for ranking in queue.rankings()]
        heapify(self._open)

    def next(self) -> JobState | None:
        """The first job, by rank, of the open demands; None when all are closed."""
        if not self._open:
            return None
        _, place, ranking = self._open[0]
        return ranking.at(place)

    def served(self) -> None:
        """The job given last starts: go on behind it."""
        _, place, ranking = self._open[0]
        if place + 1 < len(ranking):
            heapreplace(self._open, (ranking.rank(ranking.at(place + 1)), place + 1, ranking))
        else:
            heappop(self._open)

    def refused(self) -> None:
        """The job given last cannot start: neither can others with its demand."""
        heappop(self._open)
