"""The waiting jobs of a policy by what they ask for: a round looks only at those that could differ."""

from collections.abc import Callable, Hashable, ItemsView, Iterable
from heapq import heapify, heappop, heapreplace
from typing import Any

from dally.jobs.job import Gang
from dally.policies.common.ranking import Ranking
from dally.state import JobState

Demand = tuple[Gang, Hashable]
"""What jobs that fit or do not fit together have in common: the gang, and whatever else counts."""


class DemandQueue:
    """Waiting jobs by demand: if the first of a demand cannot start, those behind it cannot either.

    So a round of offers costs the number of different demands and of jobs that start, not of jobs that wait.
    """

    def __init__(self) -> None:
        self._by_demand: dict[Demand, Ranking] = {}
        self._demand_of: dict[int, Demand] = {}

    def __len__(self) -> int:
        return len(self._demand_of)

    def add(self, job: JobState, kind: Hashable, *key: float) -> None:
        """A job begins to wait; those of one gang and kind fit or do not fit together."""
        demand = job.job.gang, kind
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

    def items(self) -> ItemsView[Demand, Ranking]:
        """The demands in which jobs wait, and the jobs of each."""
        return self._by_demand.items()


class DemandRound:
    """A round of offers over a queue that stays as it is: again and again the first job that is still open.

    Args:
        rankings: The jobs of each demand.
        priority: What jobs of different demands are ordered by, lower first; None: their ranks.
    """

    def __init__(
        self, rankings: Iterable[Ranking], priority: Callable[[JobState], Any] | None = None
    ) -> None:
        self._priority = priority
        self._open = [self._entry(ranking, 0) for ranking in rankings]
        heapify(self._open)

    def next(self) -> JobState | None:
        """The first job, by priority, of the open demands; None when all are closed."""
        if not self._open:
            return None
        _, _, place, ranking = self._open[0]
        return ranking.at(place)

    def postpone(self, priority: Any) -> bool:
        """The job given last has a lower priority where it could start now: whether others go before it."""
        _, order, place, ranking = self._open[0]
        heapreplace(self._open, (priority, order, place, ranking))
        return self._open[0][1] != order

    def served(self) -> None:
        """The job given last starts: go on behind it."""
        _, _, place, ranking = self._open[0]
        if place + 1 < len(ranking):
            heapreplace(self._open, self._entry(ranking, place + 1))
        else:
            heappop(self._open)

    def refused(self) -> None:
        """The job given last cannot start: neither can others with its demand."""
        heappop(self._open)

    def _entry(self, ranking: Ranking, place: int) -> tuple[Any, int, int, Ranking]:
        job = ranking.at(place)
        return self._priority(job) if self._priority else ranking.rank(job), job.order, place, ranking
