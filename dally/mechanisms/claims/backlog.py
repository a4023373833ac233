"""All work that a cluster has before it, and the jobs that would end last whatever the order."""

from collections.abc import Iterator
from heapq import merge

from dally.mechanisms.ranking import Ranking
from dally.state import JobState, Phase

MILLIS = 1000
"""Of a second or a GPU: sums are of whole thousandths, so that the order of adding changes nothing."""

STAYS = 1.5
"""The time left of a running job counts so many times."""


class Backlog:
    """The work left of all jobs, in ideal GPU-seconds, kept up to date as they start and stop.

    Args:
        gpus: GPUs of the cluster.
    """

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._waiting, self._running = Ranking(), Ranking()
        self._work, self._rate = 0, 0
        self._of: dict[int, tuple[int, int]] = {}

    def add(self, job: JobState) -> None:
        """A job waits or runs from now on."""
        left_s, rate = job.remaining_s(0.0), 0.0
        if job.phase is Phase.RUNNING:
            self._running.add(job, -job.end_s())
            left_s, rate = left_s + job.paced_s * job.speed, job.speed
        else:
            self._waiting.add(job, -left_s)
        counted = round(MILLIS * job.job.gpus * left_s), round(MILLIS * job.job.gpus * rate)
        self._of[job.order] = counted
        self._work, self._rate = self._work + counted[0], self._rate + counted[1]

    def remove(self, job: JobState) -> None:
        """It does not any more."""
        (self._running if job in self._running else self._waiting).remove(job)
        work, rate = self._of.pop(job.order)
        self._work, self._rate = self._work - work, self._rate - rate

    def drained_s(self, now: float) -> float:
        """How long the whole cluster would take for all work left, at the best placements, seconds."""
        return (self._work * MILLIS - self._rate * round(now * MILLIS)) / (MILLIS * MILLIS * self._gpus)

    def longest_waiting_s(self) -> float:
        """The longest time that a waiting job takes; 0 if none waits."""
        return -self._waiting.first_key() if self._waiting else 0.0

    def last(self, now: float, gpus: float) -> Iterator[JobState]:
        """Jobs that take longer than the whole cluster for all work, longest first, `gpus` GPUs at most.

        Those that run count for more than they have left, so that they do not take turns with others.
        """
        waiting = ((self._waiting.rank(job)[0], job.order, job) for job in self._waiting)
        running = ((STAYS * (self._running.rank(job)[0] + now), job.order, job) for job in self._running)
        least_s = self.drained_s(now)
        for left_s, _, job in merge(waiting, running, key=lambda entry: entry[:2]):
            gpus -= job.job.gpus
            if gpus < 0 or -left_s < least_s:
                return
            yield job
