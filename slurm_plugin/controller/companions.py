"""Companions: jobs whose ranks join an elastic job of the same user, by which it is resized while it trains.

They wait held. One that is released onto nodes joins its job, which then has the GPUs of both; asked by its
checkpoint signal it leaves, ends, and is requeued, held. All that is known of them is what Slurm shows, so a
controller that is killed leaves nothing half-done: what was released and does not run yet is held again.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from slurm_plugin.client.orders import Cancel, Order, Rehold, ReleaseOnNodes, Requeue, Signal
from slurm_plugin.client.slurm import Hold, SlurmJob, State
from slurm_plugin.controller.managed_job import IneligiblePhase, ManagedJob, PendingPhase, asks_for_requeue
from slurm_plugin.controller.unavailable_gpus import own_reservation
from slurm_plugin.request import Request

_LATER_MIN = 5
"""A companion may run for so much longer than its job, whose end is its own."""

ReadRequest = Callable[[SlurmJob], Request | None]


@dataclass(frozen=True, slots=True)
class CompanionStep:
    """What companions do next so that their job gets the GPUs that it is to have.

    Attributes:
        leave: Companions that are asked to leave; what else is to be done, is once they have.
        joins: The companion that is released; empty if none is.
        gpus: GPUs by node that it gets.
    """

    leave: tuple[str, ...] = ()
    joins: str = ""
    gpus: tuple[tuple[str, int], ...] = ()


class Companions:
    """The companions in Slurm's queue.

    Args:
        request_of: What a job asks of Dally.
        gap_s: A companion is not released for so long after it has left, seconds: Slurm may still clean up.

    Attributes:
        why: Why jobs are being resized, by number.
    """

    def __init__(self, request_of: ReadRequest, gap_s: float) -> None:
        self._request_of, self._gap_s = request_of, gap_s
        self._of: dict[str, list[SlurmJob]] = {}
        self._own: dict[str, Mapping[str, int]] = {}
        self._running: set[str] = set()
        self._left_s: dict[str, float] = {}
        self.why: dict[str, str] = {}

    def observe(self, jobs: Sequence[SlurmJob], now: float) -> list[SlurmJob]:
        """The jobs that stand for themselves; those that companions have joined, with their GPUs, too."""
        found: list[tuple[SlurmJob, str]] = []
        others: list[SlurmJob] = []
        for job in jobs:
            request = self._request_of(job)
            if request and request.companion_of:
                found.append((job, request.companion_of))
            else:
                others.append(job)
        if not found and not self._of:
            return others
        users = {job.job_id: job.user for job in others}
        self._of = {}
        for job, parent in found:
            self._of.setdefault(parent if users.get(parent) == job.user else "", []).append(job)

        numbers = {job.job_id for job, _ in found}
        running = {job.job_id for job, _ in found if job.state not in (State.PENDING, State.ENDED)}
        unknown = {job.job_id for job, _ in found if job.restarts and job.job_id not in self._left_s}
        self._left_s = {job_id: left_s for job_id, left_s in self._left_s.items() if job_id in numbers}
        self._left_s |= dict.fromkeys((self._running | unknown) & numbers - running, now)
        self._running = running
        self._own = {job.job_id: job.gpus for job in others if job.job_id in self._of}
        return [self._with_companions(job) if job.job_id in self._own else job for job in others]

    def _with_companions(self, job: SlurmJob) -> SlurmJob:
        """A job with the GPUs of those that have joined it since it was started."""
        if job.state is not State.RUNNING or not job.gpus:
            return job
        gpus = Counter(job.gpus)
        for each in self._of[job.job_id]:
            if each.state is State.RUNNING and (each.start_s or 0.0) >= (job.start_s or 0.0):
                gpus.update(each.gpus)
        return job if gpus == job.gpus else replace(job, gpus=dict(gpus), nodes=tuple(gpus))

    def corrections(self, managed_jobs: Mapping[str, ManagedJob]) -> Iterator[Order]:
        """What companions must be told as of the last view.

        Those without a job end; those that have left, or were not started at once, wait held.
        """
        waits = (PendingPhase, IneligiblePhase)
        for parent, companions in self._of.items():
            managed = managed_jobs.get(parent)
            for job in companions:
                if job.state is State.PENDING:
                    if managed is None:
                        yield Cancel(job.job_id)
                    elif job.hold is Hold.NONE:
                        yield Rehold(job.job_id, bool(own_reservation(job)))
                elif managed is None:
                    continue  # its ranks end as those of its job do
                elif job.state is State.ENDED:
                    if job.requeue and (job.state_name == "COMPLETED" or asks_for_requeue(job)):
                        yield Requeue(job.job_id, ended=True)
                elif isinstance(managed.phase, waits) and job.state is State.RUNNING:
                    yield self.leave(job.job_id)

    @property
    def starting(self) -> bool:
        """Whether any was released and does not run yet."""
        return any(
            job.state is State.PENDING and job.hold is Hold.NONE for each in self._of.values() for job in each
        )

    def next_step(self, managed: ManagedJob, target: Mapping[str, int], now: float) -> CompanionStep | None:
        """What companions do so that a running job has these GPUs by node; None if they cannot do it.

        The GPUs that the job was started with stay its own for as long as it runs.
        """
        own = self._own.get(managed.job_id)
        if not own or any(target.get(node, 0) < gpus for node, gpus in own.items()):
            return None
        left = Counter(target)
        left.subtract(own)
        leave = []
        companions = self._of[managed.job_id]
        for job in companions:
            if job.state is not State.RUNNING:
                continue
            if all(left[node] >= gpus for node, gpus in job.gpus.items()):
                left.subtract(job.gpus)
            else:
                leave.append(job.job_id)
        rest = {node: gpus for node, gpus in left.items() if gpus > 0}
        if leave or not rest:
            return CompanionStep(tuple(leave))
        for job in companions:
            rested = now >= self._left_s.get(job.job_id, -self._gap_s) + self._gap_s
            if rested and job.state is State.PENDING and job.hold is Hold.USER:
                return CompanionStep((), job.job_id, tuple(rest.items()))
        return None

    def leave(self, job_id: str) -> Signal:
        """The order by which a companion leaves."""
        job = next(each for companions in self._of.values() for each in companions if each.job_id == job_id)
        request = self._request_of(job)
        assert request is not None, "it is a companion"
        return Signal(job_id, request.signal)

    def join(self, step: CompanionStep, managed: ManagedJob, job: SlurmJob, now: float) -> ReleaseOnNodes:
        """The order by which a companion joins, in its job's reservation: as many ranks for each GPU."""
        tasks = max(1, sum(gpus for _, gpus in step.gpus) * managed.tasks // managed.job.gpus)
        limit_min = None
        if job.time_limit_s is not None and job.start_s is not None:
            limit_min = ceil(max(0.0, job.start_s + job.time_limit_s - now) / 60) + _LATER_MIN
        nodes = tuple(node for node, _ in step.gpus)
        own = own_reservation(job) or None
        return ReleaseOnNodes(step.joins, nodes, own, tasks, True, job.cpus_per_task, limit_min)
