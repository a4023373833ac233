"""The guard against starvation: a job that has waited long gets a part of its equal share."""

from collections.abc import Container, Iterator
from math import ceil, inf, log2

from dally.policies.common.ranking import Ranking
from dally.state import JobState

LONG = 10
"""A job has waited long once it waited so many times as long as it still needs."""


class StarvationGuard:
    """The job that goes before all others because it has waited long, and when.

    If all jobs that wait or run shared the GPUs equally, each would have an n-th of their time. Whoever has
    waited long is sure of a part of that: its turn comes when that part, since its wait began, makes up for
    what a start takes, its GPUs as long as it is sure of them. So nobody is starved, and the more jobs there
    are that a start would delay, the longer they are spared it. Each wait counts by itself.

    Jobs that have waited long are kept by what they take, in powers of two, each sorted by the begin of its
    wait: then nothing has to be sorted anew when the number of jobs changes.

    Args:
        gpus: GPUs of the cluster.
        share: The part of an equal share, 0 to 1; 0: nobody goes before others.
    """

    def __init__(self, gpus: int, share: float) -> None:
        self._rate = gpus * share
        self._soon = Ranking()
        self._long: dict[float, Ranking] = {}

    def add(self, job: JobState, overdue_s: float, sure_s: float) -> None:
        """A job waits.

        Args:
            job: The job.
            overdue_s: From when on it has waited long, seconds on the clock.
            sure_s: How long it holds its GPUs for sure if it starts, seconds.
        """
        if self._rate:
            takes = 2.0 ** ceil(log2(job.job.gpus * sure_s))  # GPU-seconds
            self._soon.add(job, overdue_s, takes)

    def remove(self, job: JobState) -> None:
        """A job no longer waits."""
        if job in self._soon:
            self._soon.remove(job)
        for takes, ranking in self._long.items():
            if job in ranking:
                ranking.remove(job)
                if not ranking:
                    del self._long[takes]
                return

    def settle(self, now: float) -> None:
        """Sort the jobs that have waited long by now; what is told of turns stays the same."""
        while self._soon and self._soon.first_key() <= now:
            job = self._soon.at(0)
            _, takes, _ = self._soon.rank(job)
            self._soon.remove(job)
            self._long.setdefault(takes, Ranking()).add(job, job.origin_s)

    def due(self, jobs: int, now: float) -> JobState | None:
        """The job whose turn it is at `now`, with so many jobs that wait or run; None if there is none."""
        turns = ((turn_s, job.order, job) for turn_s, job in self._turns(jobs, now, ()))
        turn_s, _, job = min(turns, key=lambda turn: turn[:2], default=(inf, 0, None))
        return job if turn_s <= now else None

    def next_turn_s(self, jobs: int, now: float, started: Container[int] = ()) -> float:
        """When somebody's turn comes, or is to be asked for again; inf if nobody waits.

        Args:
            jobs: How many wait or run.
            now: Seconds on the clock.
            started: Orders of arrival of waiting jobs that are about to start, now.
        """
        turn_s = min((turn_s for turn_s, _ in self._turns(jobs, now, started)), default=inf)
        soon_s = (self._soon.rank(job)[0] for job in self._soon if job.order not in started)
        return min(turn_s, next((each_s for each_s in soon_s if each_s > now), inf))

    def _turns(self, jobs: int, now: float, started: Container[int]) -> Iterator[tuple[float, JobState]]:
        """When their turn comes, of the jobs that have waited long the first of all that take as much."""
        for takes, ranking in self._long.items():
            job = next((job for job in ranking if job.order not in started), None)
            if job is not None:
                yield job.origin_s + takes * jobs / self._rate, job
        for job in self._soon:
            overdue_s, takes, _ = self._soon.rank(job)
            if overdue_s > now:
                return
            if job.order not in started:
                yield job.origin_s + takes * jobs / self._rate, job
