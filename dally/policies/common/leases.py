"""Leases: running jobs hold their GPUs for a term at a time, renewed lazily while no job waits."""

from collections.abc import Callable, Mapping
from itertools import chain
from math import floor, inf, isfinite
from typing import Any

from sortedcontainers import SortedList

from dally.jobs.job import Gang
from dally.state import JobState

_ROUNDING_S = 1e-3
"""More than what rounding does to the end of a lease, however often it was renewed."""


class LeaseBook:
    """When the lease of each running job ends.

    A lease begins when the job makes progress (after its restart), so every lease moves the work forward.
    While no job waits leases renew without a trace: the book only looks at them again when one does.

    Args:
        lease_s: Length of a lease, seconds.
    """

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._ends: SortedList[tuple[float, int]] = SortedList()
        self._end_of: dict[int, float] = {}
        self._phases: SortedList[tuple[float, int]] = SortedList()
        self._phase_of: dict[int, float] = {}
        self._jobs: dict[int, JobState] = {}
        self._wanted = False
        self._settled_s = -inf

    def started(self, job: JobState) -> None:
        """Begin the first lease of a job; that of a job that must not be preempted never ends."""
        self._jobs[job.order] = job
        end = job.ready_s + self.lease_s if job.job.preemptible else inf
        self._set_end(job.order, end if end > self._settled_s else self._next_end(end, self._settled_s))
        if isfinite(end):
            self._phase_of[job.order] = phase_s = end % self.lease_s
            self._phases.add((phase_s, job.order))

    def stopped(self, job: JobState) -> None:
        """End the lease of a job."""
        self._ends.remove((self._end_of.pop(job.order), job.order))
        if job.order in self._phase_of:
            self._phases.remove((self._phase_of.pop(job.order), job.order))
        del self._jobs[job.order]

    def began_s(self, job: JobState, now: float) -> float:
        """Start of the lease that a running job holds, or that just ends, at `now`."""
        end = self._end_of[job.order]
        if end == inf:
            return job.ready_s
        just_ended = self._wanted and end > self._settled_s
        if end < now and not just_ended:
            end = self._next_end(end, now, strictly=False)
        return end - self.lease_s

    def expired(self, now: float) -> list[JobState]:
        """Jobs whose lease has ended, while a job was waiting, since the last settled moment."""
        if not self._wanted:
            return []
        jobs = []
        for end, order in self._ends:
            if end > now:
                break
            if end > self._settled_s:
                jobs.append(self._jobs[order])
        return jobs

    def next_end_s(self, now: float) -> float:
        """The next end of any lease after `now`; inf if no job runs."""
        if not self._ends or self._ends[0][0] > now:
            return self._ends[0][0] if self._ends else inf
        first, begin_s = inf, now - _ROUNDING_S
        # The jobs by the earliest that their next lease could end after `now`, as they end again and again.
        at = self._phases.bisect_left((begin_s % self.lease_s, -1))
        for phase_s, order in chain(self._phases.islice(at), self._phases.islice(0, at)):
            if begin_s + (phase_s - begin_s) % self.lease_s - _ROUNDING_S > first:
                break
            end = self._end_of[order]
            first = min(first, end if end > now else self._next_end(end, now))
        return first

    def settle(self, now: float, wanted: bool) -> None:
        """Leases that ended by `now` and were not taken are renewed; `wanted`: whether a job waits."""
        self._settled_s, self._wanted = now, wanted
        while wanted and self._ends and self._ends[0][0] <= now:
            end, order = self._ends.pop(0)
            self._set_end(order, self._next_end(end, now))

    def snapshot(self) -> dict[str, Any]:
        """What the book knows beyond the running jobs, as plain data."""
        return {"settled_s": None if self._settled_s == -inf else self._settled_s, "wanted": self._wanted}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave, before the running jobs are told again."""
        self._settled_s = -inf if learnt["settled_s"] is None else learnt["settled_s"]
        self._wanted = learnt["wanted"]

    def _set_end(self, order: int, end: float) -> None:
        self._end_of[order] = end
        self._ends.add((end, order))

    def _next_end(self, end: float, now: float, strictly: bool = True) -> float:
        """The first of `end`, `end` + lease, ... after `now` (or at it)."""
        terms = floor((now - end) / self.lease_s)
        following = end + terms * self.lease_s
        while following < now or (strictly and following == now):
            following += self.lease_s
        return following


class ScatteredLeases(LeaseBook):
    """The leases of jobs placed farther apart than their gangs need: at each end they may move closer.

    Unlike others these end whether or not a job waits: it is their holders that want something.

    Args:
        lease_s: Length of a lease, seconds.
        best_level: The lowest level that can hold a gang.
    """

    def __init__(self, lease_s: float, best_level: Callable[[Gang], int]) -> None:
        super().__init__(lease_s)
        self._best_level = best_level

    def started(self, job: JobState) -> None:
        """Begin the first lease of a job, if it is scattered."""
        if job.level > self._best_level(job.job.gang):
            super().started(job)

    def stopped(self, job: JobState) -> None:
        """End the lease of a job, if it had one."""
        if job.order in self._end_of:
            super().stopped(job)
