"""A virtual machine that does the work of a whole cluster, always that of the job with the least left.

Source: Luo et al., arXiv 2501.05563, whose real cluster starts jobs in the order in which they end here.
"""

from collections.abc import Iterator, Mapping
from itertools import takewhile
from math import inf
from typing import Any

from dally.policies.common.ranking import Rank, Ranking
from dally.state import JobState

MICROS = 1_000_000
"""Of a second: times in here are whole microseconds, so that how often they are asked changes nothing."""


class VirtualSrpt:
    """One machine under preemptive shortest remaining processing time first.

    Jobs that have ended go first, by their end; the others go by what is left of them, the order in which
    they will end if none arrives. A new job comes in between them; it never changes the order of others.
    """

    def __init__(self) -> None:
        self._clock = 0
        self._pending = Ranking()
        self._ended: dict[str, int] = {}
        self._known_left: dict[str, int] = {}

    def add(self, job: JobState, left_s: float) -> None:
        """A job arrives, after `advance` to that moment.

        Args:
            job: The job.
            left_s: Seconds of this machine that it takes, if it was not here before `restore`.
        """
        left = self._known_left.pop(job.job_id, round(left_s * MICROS))
        if job.job_id not in self._ended:
            self._pending.add(job, left)

    def remove(self, job: JobState) -> None:
        """A job leaves, whether it has ended here or not."""
        if self._ended.pop(job.job_id, None) is None:
            self._pending.remove(job)

    def advance(self, now: float) -> list[JobState]:
        """Work until `now`; the jobs whose rank has changed, in order."""
        moment, changed = round(now * MICROS), []
        while self._pending and self._clock < moment:
            first = self._pending.at(0)
            end = self._clock + int(self._pending.first_key())
            self._pending.remove(first)
            if end <= moment:
                self._ended[first.job_id] = end
            else:
                self._pending.add(first, end - moment)
            self._clock = min(end, moment)
            changed.append(first)
        self._clock = max(self._clock, moment)
        return changed

    def end_s(self, job: JobState, now: float) -> float | None:
        """When a job ended, by `now`; None if it did not."""
        if job.job_id in self._ended:
            return self._ended[job.job_id] / MICROS
        moment = round(now * MICROS)
        by_now = takewhile(lambda each: each[1] <= moment, self._ends())
        return next((end / MICROS for other, end in by_now if other is job), None)

    def left_s(self, job: JobState, now: float) -> float:
        """Seconds left at `now` of a job that has not ended."""
        moment = round(now * MICROS)
        first, end = next((each for each in self._ends() if each[1] > moment), (job, inf))
        left = end - moment if first is job else self._pending.rank(job)[0]
        return left / MICROS

    def next_end_s(self, now: float) -> float:
        """When the next job ends after `now`, if none arrives; inf if none is at work."""
        moment = round(now * MICROS)
        return next((end / MICROS for _, end in self._ends() if end > moment), inf)

    def rank(self, job: JobState) -> Rank:
        """What sorts jobs by their turn: whether it has still to end here, and its end or what is left."""
        if job.job_id in self._ended:
            return 0, self._ended[job.job_id]
        return 1, self._pending.rank(job)[0]

    def snapshot(self) -> dict[str, Any]:
        """What is left, or the end, of each job by name, microseconds; plain data."""
        left = {job.job_id: int(self._pending.rank(job)[0]) for job in self._pending}
        return {"left_us": {**self._known_left, **left}, "ended_us": dict(self._ended)}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave, before the jobs arrive again; till then it stands still."""
        self._known_left, self._ended = dict(learnt["left_us"]), dict(learnt["ended_us"])

    def _ends(self) -> Iterator[tuple[JobState, int]]:
        """Jobs and when they end, in order, if none arrives."""
        end = self._clock
        for job in self._pending:
            end += int(self._pending.rank(job)[0])
            yield job, end
