"""Running jobs by the GPU-seconds that they will still hold: the most are stopped first."""

from collections.abc import Callable, Iterator
from heapq import merge

from dally.policies.common.ranking import Ranking
from dally.state import JobState

LEAST_S = 0.001
"""No job is looked at again sooner, whatever rounding leaves of a difference."""


class RunningByRemaining:
    """Running jobs, the one that will hold most GPU-seconds first.

    What a job holds shrinks at a rate that depends on its size, so the order among jobs of one size stays
    and that of different sizes changes: jobs are kept by size, and sizes merged when somebody looks.

    Args:
        weight: What a second of a job on so many GPUs counts.
    """

    def __init__(self, weight: Callable[[int], float]) -> None:
        self._weight = weight
        self._by_weight: dict[float, Ranking] = {}

    def add(self, job: JobState) -> None:
        """A job runs, or goes on at another pace after `remove`."""
        self._by_weight.setdefault(self._weight(job.job.gpus), Ranking()).add(job, -job.end_s())

    def remove(self, job: JobState) -> None:
        """A job does not run any more."""
        weight = self._weight(job.job.gpus)
        self._by_weight[weight].remove(job)
        if not self._by_weight[weight]:
            del self._by_weight[weight]

    def most(self, now: float, weight: float = 0.0) -> float:
        """The most that any running job will hold, or would if its seconds counted `weight`; 0 if none runs.

        A gang with idle GPUs may be worth more than a job in its way that holds less than it claims.
        """
        first = (max(own, weight) * (-jobs.first_key() - now) for own, jobs in self._by_weight.items())
        return max(first, default=0.0)

    def largest(
        self, now: float, least: Callable[[float], float] = lambda weight: 0.0
    ) -> Iterator[tuple[float, JobState]]:
        """Running jobs with what they will hold, the largest first.

        Args:
            now: Seconds on the clock.
            least: Of a weight, what its jobs must hold to be among them.
        """
        sizes = []
        for weight, jobs in self._by_weight.items():
            bound = least(weight)
            if weight * (-jobs.first_key() - now) >= bound:
                sizes.append(self._of_weight(weight, now, bound))
        return ((-held, job) for held, _, job in merge(*sizes))

    def _of_weight(self, weight: float, now: float, least: float) -> Iterator[tuple[float, int, JobState]]:
        for end_s, job in self._by_weight[weight].items():
            held = weight * (end_s + now)
            if -held < least:
                return
            yield held, job.order, job
