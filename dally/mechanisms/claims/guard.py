"""The guard against starvation: a share of the cluster's time is for those who have waited long."""

from collections.abc import Callable, Container
from math import inf

from dally.mechanisms.ranking import Ranking
from dally.state import JobState

LONG = 10
"""A job has waited long once it waited so many times as long as it still needs."""


class Guard:
    """Who goes next before all others, and when.

    A share of the cluster's time is saved up until the guard starts somebody. Whoever is first in the order
    of `overdue_s` starts when what it is sure of then, idle GPUs left out, has been saved up since the last
    such start and since it began to wait. So however many wait however long, they take no more than that
    share of the GPU time from others; and every job starts that those before it leave time for.

    Args:
        gpus: GPUs of the cluster.
        share: Share of their time for jobs that have waited long, 0 to 1; 0: nobody goes before others.
        overdue_s: From when on a job has waited long, as seconds on the clock; the same as long as it waits.
        sure_s: How long a job that starts holds its GPUs for sure, seconds.

    Attributes:
        spent_s: When it last started a job, seconds on the clock.
    """

    def __init__(
        self,
        gpus: int,
        share: float,
        overdue_s: Callable[[JobState], float],
        sure_s: Callable[[JobState], float],
    ) -> None:
        self._rate, self._overdue_s, self._sure_s = gpus * share, overdue_s, sure_s
        self._waiting = Ranking()
        self.spent_s = 0.0

    def add(self, job: JobState) -> None:
        """A job waits."""
        if self._rate:
            self._waiting.add(job, self._overdue_s(job))

    def remove(self, job: JobState) -> None:
        """It does not any more."""
        if self._rate:
            self._waiting.remove(job)

    def started(self, job: JobState, now: float) -> None:
        """A job that waited takes its GPUs: if it was its turn, what was saved up is spent."""
        if self.first() is job and self._waiting.rank(job)[0] <= now:
            self.spent_s = now

    def first(self) -> JobState | None:
        """Whose turn is next; None if nobody waits."""
        return self._waiting.at(0) if self._waiting else None

    def next_turn_s(self, idle: int, now: float, started: Container[int] = ()) -> float:
        """When the next turn comes; inf if nobody waits.

        Args:
            idle: GPUs that nobody wants.
            now: Seconds on the clock.
            started: Orders of arrival of waiting jobs that are about to start, now.
        """
        for job in self._waiting:
            if job.order not in started:
                return self._turn_s(job, idle)
            if self._waiting.rank(job)[0] <= now:
                return now  # it spends what was saved up: whose turn is next, shows then
        return inf

    def _turn_s(self, job: JobState, idle: int) -> float:
        takes = max(0, job.job.gpus - idle)
        saved_up_s = max(self.spent_s, job.origin_s) + takes * self._sure_s(job) / self._rate
        return max(self._waiting.rank(job)[0], saved_up_s)
