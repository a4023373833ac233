"""Running jobs by what they still claim of the cluster: whom to stop first."""

from collections.abc import Callable, Iterator
from heapq import merge
from math import inf

from dally.mechanisms.claims.service import Service
from dally.mechanisms.ranking import Ranking
from dally.state import JobState

LEAST_S = 0.001
"""Nobody is looked at again sooner, whatever rounding leaves of a difference."""


class Holders:
    """Running jobs, the one that will hold most GPU-seconds first.

    What a job holds shrinks or grows at a rate that depends on its size, so the order among jobs of one size
    stays and that of different sizes changes: jobs are kept by size, and sizes merged when somebody looks.

    Args:
        service: How long running jobs are expected to hold their GPUs.
        weight: What a second of a job counts.
    """

    def __init__(self, service: Service, weight: Callable[[JobState], float]) -> None:
        self._service, self._weight = service, weight
        self._by_weight: dict[float, Ranking] = {}

    def add(self, job: JobState) -> None:
        """A job runs, or goes on at another pace after `remove`."""
        self._by_weight.setdefault(self._weight(job), Ranking()).add(job, self._service.key(job))

    def remove(self, job: JobState) -> None:
        """A job does not run any more."""
        weight = self._weight(job)
        self._by_weight[weight].remove(job)
        if not self._by_weight[weight]:
            del self._by_weight[weight]

    def most(self, now: float) -> float:
        """The most that any running job will hold; 0 if none runs."""
        first = (
            weight * self._service.running_s(ranking.first_key(), now)
            for weight, ranking in self._by_weight.items()
        )
        return max(first, default=0.0)

    def largest(self, now: float) -> Iterator[tuple[float, JobState]]:
        """Running jobs with what they will hold, the largest first."""
        sizes = (self._of_weight(weight, now) for weight in self._by_weight)
        return ((-held, job) for held, _, job in merge(*sizes, key=lambda entry: entry[:2]))

    def next_to_hold_s(self, enough: Callable[[JobState], float], now: float) -> float:
        """When the next job will hold enough, if what jobs hold grows with time; inf if none will."""
        return min((self._next_of(ranking, enough, now) for ranking in self._by_weight.values()), default=inf)

    def _next_of(self, ranking: Ranking, enough: Callable[[JobState], float], now: float) -> float:
        for job in ranking:
            lacks_s = enough(job) / self._weight(job) - self._service.running_s(ranking.rank(job)[0], now)
            if lacks_s > 0:
                return now + max(lacks_s, LEAST_S)
        return inf

    def _of_weight(self, weight: float, now: float) -> Iterator[tuple[float, int, JobState]]:
        ranking = self._by_weight[weight]
        for job in ranking:
            yield -weight * self._service.running_s(ranking.rank(job)[0], now), job.order, job
