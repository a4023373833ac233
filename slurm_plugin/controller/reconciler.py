"""Keeps managed jobs, state and policy in step with what Slurm shows, and says what must be corrected."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf

from dally.errors import DallyError
from dally.hostlist import fold
from dally.jobs.job import Job
from dally.scheduling.scheduler import Scheduler, start_facts
from dally.state import JobHistory
from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.orders import Order, Rehold, ReleaseToSlurm, Requeue, Unreserve
from slurm_plugin.client.slurm import (
    Hold,
    Partition,
    Reservation,
    SlurmJob,
    SlurmNode,
    State,
)
from slurm_plugin.config import Config
from slurm_plugin.controller import failed_starts
from slurm_plugin.controller.admission import Admission
from slurm_plugin.controller.companions import Companions
from slurm_plugin.controller.gpu_count_watch import GpuCountWatch
from slurm_plugin.controller.job_defaults import DefaultsOfJobs
from slurm_plugin.controller.job_requests import RequestReader, release_order, shown_size
from slurm_plugin.controller.journal import GONE
from slurm_plugin.controller.managed_job import (
    NEW,
    ON_GPUS,
    WAITS,
    IneligiblePhase,
    ManagedJob,
    Owed,
    PendingPhase,
    ReleasedPhase,
    RunningPhase,
    StartingPhase,
    StoppingPhase,
    StopPurpose,
    asks_for_requeue,
    checkpointed,
    is_to_stay_held,
)
from slurm_plugin.controller.node_sets import is_pinned, with_slurms_nodes
from slurm_plugin.controller.pending_starts import PendingStarts
from slurm_plugin.controller.requeues import ForeignRequeues
from slurm_plugin.controller.segment_watch import SegmentWatch
from slurm_plugin.controller.start_conditions import StartConditions
from slurm_plugin.controller.taken_back import taken_back
from slurm_plugin.controller.time_limits import save_at_s
from slurm_plugin.controller.transitions import JobTransitions, Log
from slurm_plugin.controller.unavailable_gpus import (
    RESERVATION_PREFIX,
    closed_nodes,
    idle_reservations,
    own_reservation,
    withhold_unavailable,
)
from slurm_plugin.request import Request

_FORGOTTEN_GAPS = 2
"""For how many restart gaps a run may go on that slurmctld forgot, as it was killed just after the start.

It asks the nodes 3 s after it is up again, and they end the run. Before, the same job there drains a node for
a duplicate number; just after, its credential counts as revoked and it fails (docs/slurm-versions.md).
"""

_RUNS = (State.RUNNING, State.SUSPENDED)


class Reconciler:
    """Turns each view of Slurm into managed jobs and into the state that the policy decides on.

    It tells the policy facts only: a job is started when Slurm shows it running, stopped when it is back in
    the queue. Reconciling the same view twice changes nothing.

    Attributes:
        transitions: The only writer of managed jobs.
        managed_jobs: Our jobs, by number.
        scheduler: State and policy.
        corrections: What Slurm must be told so that it agrees with the managed jobs, as of the last view.
        changed: Numbers of managed jobs that differ from the journal's.
        gone: Numbers of jobs that the journal need not keep any longer.
        decided: Numbers of jobs that are stopping or starting, in the order in which that was decided.
        pending_starts: Starts that wait for others to leave.
        companions: Of elastic jobs.
        conditions: What Slurm would hold against a start beside GPUs.
        admission: Which waiting jobs the policy sees.
        gpu_counts: Where Slurm counts GPUs wrong.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        config: Config,
        log: Log,
        shadow: bool = False,
        ended_as: Callable[[SlurmJob, Request], str] = lambda job, request: "",
    ) -> None:
        self.transitions = transitions = JobTransitions(scheduler, log)
        self.scheduler, self.state = scheduler, scheduler.state
        self.managed_jobs, self.changed, self.gone = (
            transitions.managed_jobs,
            transitions.changed,
            transitions.gone,
        )
        self.corrections: list[Order] = []
        self.decided: list[str] = []
        self.pending_starts = PendingStarts(self.managed_jobs, self.state.topology, config.restart_gap_s)
        self._config, self._log, self._shadow, self._ended_as = config, log, shadow, ended_as
        self._reader = RequestReader(config, self.state, shadow)
        self.companions = Companions(self._reader.request, config.restart_gap_s)
        self.conditions = StartConditions(self.managed_jobs, self.state)
        self._requeues = ForeignRequeues(config.backoff_s)
        self.admission = Admission(
            transitions, self._reader, self.conditions, self.pending_starts, self._requeues, config, log
        )
        self._defaults = DefaultsOfJobs()
        self._segments = SegmentWatch(self.managed_jobs, log)
        self.gpu_counts = GpuCountWatch(log)
        self._seen: dict[str, SlurmJob] = {}
        self._before: dict[str, SlurmJob] = {}
        self._last_s = -inf

    def seen(self, job_id: str) -> SlurmJob:
        """A job as Slurm last showed it."""
        return self._seen[job_id]

    @property
    def all_seen(self) -> Mapping[str, SlurmJob]:
        """All jobs as Slurm last showed them, by number."""
        return self._seen

    def know_partitions(self, partitions: Iterable[Partition]) -> None:
        """Take in the partitions as they are now."""
        self.conditions.partitions = self._reader.partitions = {each.name: each for each in partitions}

    def know_blocks(self, blocks: BlockTopology) -> None:
        """Take in the blocks of topology/block as they are now."""
        self.conditions.blocks = self._reader.blocks = blocks

    def recall(self, managed_jobs: Mapping[str, ManagedJob], now: float) -> None:
        """Take up the jobs of a controller that is no more; its policy must have been restored."""
        self.transitions.recall_places(managed_jobs.values())
        for managed in sorted(managed_jobs.values(), key=_place):
            if why := self.transitions.take_up(managed, now):
                self._release(managed, now, why, to_slurm=not isinstance(managed.phase, ON_GPUS))

    def reconcile(
        self,
        jobs: Sequence[SlurmJob],
        nodes: Sequence[SlurmNode],
        reservations: Iterable[Reservation],
        now: float,
    ) -> None:
        """Take in one view of Slurm.

        The order matters: GPUs must be free in the state before another job is told to hold them, so first
        come the jobs that left or lost theirs, then those that gave some back, then those that started.
        """
        jobs = self._defaults.applied(jobs, self._reader.partitions.values())
        self.gpu_counts.observe(jobs, nodes, self.state.topology.machine_index, now)
        jobs = jobs if self._shadow else self.companions.observe(jobs, now)
        reservations = [*reservations]
        self._reader.reservations = {each.name: each for each in reservations}
        self._before = self._seen
        self._seen = {job.job_id: _same(self._before.get(job.job_id), job) for job in jobs}
        self.corrections = []
        self.admission.observe(self._seen)
        self._reader.nodes = nodes
        for job_id in self._in_order():
            self._observe(self.managed_jobs[job_id], now)
        running = [job_id for job_id in self._in_order() if self._seen[job_id].state in _RUNS]
        for job_id in running:
            self._observe_size(self.managed_jobs[job_id], self._seen[job_id], now)
        for job_id in running:
            self._observe_running(self.managed_jobs[job_id], self._seen[job_id], now)
        self.conditions.observe(self._seen, nodes, reservations, now)
        self._segments.observe(self._seen, self.conditions.blocks, now)
        under_way = (StartingPhase, StoppingPhase)
        known = self.managed_jobs
        self.decided = [
            each for each in self.decided if each in known and isinstance(known[each].phase, under_way)
        ]

        new = [job for job in jobs if job.job_id not in known and job.state in (State.PENDING, *_RUNS)]
        for job in sorted(new, key=lambda each: each.arrival):
            if (request := self._reader.request(job)) is not None:
                self._take_on(job, request, now)
            elif job.state is State.PENDING and self._waits_for_ours(job):
                self.corrections.append(ReleaseToSlurm(job.job_id, job.min_nodes))
        for job in jobs:
            # It ended to be requeued, but the journal, or slurmctld after a crash, had forgotten why.
            if job.job_id not in known and asks_for_requeue(job):
                wanted = self._reader.request(job)
                if wanted and wanted.signal and job.requeue and job.restarts < self._config.max_requeues:
                    self.corrections.append(Requeue(job.job_id, ended=True))
        self._requeues.forget_all_but(known)
        self.admission.retry_refused(now)
        for managed, why in self.admission.admit(now):
            self._release(managed, now, f"{why}; Slurm schedules it", to_slurm=True)

        wanted_names, beside_ours = self._wanted_reservations(), self._nodes_of_whole_blocks()
        closed = closed_nodes(nodes, jobs, reservations, wanted_names, beside_ours, now)
        for managed in known.values():
            if now < managed.left_s:  # a run may go on there that Slurm no longer knows of
                closed.update(managed.left_nodes)
        kept = self.pending_starts.reserved_gpus(now)
        withhold_unavailable(self.scheduler, known, kept, jobs, nodes, closed)
        self.corrections += self.companions.corrections(known)
        idle = idle_reservations(reservations, known, self.pending_starts, self._seen, now)
        self.corrections += map(Unreserve, idle)
        self._last_s = now

    def _nodes_of_whole_blocks(self) -> set[str]:
        """The nodes of blocks that jobs of ours share with nobody."""
        topology, jobs = self.state.topology, map(self.state.jobs.__getitem__, self.state.running)
        alone = [machine for job in jobs if job.job.whole_blocks for machine, _ in job.allocation]
        return {topology.machines[machine].name for machine in topology.beside(alone)}

    def _wanted_reservations(self) -> set[str]:
        """The reservations on whose nodes jobs of ours may start now."""
        known, may_start = self.managed_jobs, (PendingPhase, StartingPhase)
        naming = (job for job in self._seen.values() if job.reservation and job.job_id in known)
        names = {own_reservation(job) for job in naming if isinstance(known[job.job_id].phase, may_start)}
        return names - {""}

    def _waits_for_ours(self, job: SlurmJob) -> bool:
        """Whether a pending job of Slurm's waits for a reservation of ours that is gone, and so for ever.

        It was no longer ours to place while it ran, and came back to the queue.
        """
        ours = job.hold is Hold.NONE and job.reservation.startswith(RESERVATION_PREFIX)
        return ours and job.reservation not in self._reader.reservations

    def _in_order(self) -> list[str]:
        """Our jobs: those with a decision under way first, so that facts come in the order of decisions."""
        decided = [job_id for job_id in self.decided if job_id in self.managed_jobs]
        return [*dict.fromkeys([*decided, *self.managed_jobs])]

    def _observe(self, managed: ManagedJob, now: float) -> None:
        """Has a job that we know gone, ended, or come back to the queue?"""
        job = self._seen.get(managed.job_id)
        if job is None or not self._is_same(managed, job):
            self.transitions.end(managed, now, GONE)
            return
        requeued = job.restarts > managed.restarts
        if job.restarts < managed.restarts and isinstance(managed.phase, WAITS):
            self.transitions.owe(managed, Owed.REHOLD)  # slurmctld crashed and forgot that it was requeued
        if job.state is not State.COMPLETING:  # Slurm counts a requeue before the job has left its nodes
            self.transitions.note_submission(managed, job.submit_s, job.restarts)
        if job.state is State.PENDING:
            by_us = isinstance(managed.phase, StoppingPhase) or managed.stopped_for is not None
            if requeued and is_to_stay_held(job) and not by_us:
                self.transitions.note_requeued_held(managed)
            self._observe_pending(managed, job, now, requeued)
        elif job.state is State.ENDED and not checkpointed(managed, job):  # such a one will be requeued
            if isinstance(managed.phase, StartingPhase) and job.start_s is not None and job.nodes:
                self._start(managed, job, now)  # it ran, and ended between two looks
            self.transitions.end(managed, now, job.state_name)

    def _is_same(self, managed: ManagedJob, job: SlurmJob) -> bool:
        """Whether a number is still that of the job that we know; comments are read only if in doubt."""
        if job.submit_s == managed.submit_s:
            return True
        request = self._reader.request(job)
        return managed.same_as(job, request.tag if request else "")

    def _observe_pending(
        self, managed: ManagedJob, job: SlurmJob, now: float, requeued: bool = False
    ) -> None:
        """Slurm shows it in the queue: it lost its GPUs, its start failed, or it waits as before."""
        if isinstance(managed.phase, ON_GPUS):
            self._lost_gpus(managed, job, now, requeued)
        elif isinstance(managed.phase, StartingPhase) and not self._has_failed(managed, job, now, requeued):
            return
        if isinstance(managed.phase, ReleasedPhase):
            self._observe_released(managed, job, now)
        elif self._shadow:
            return
        elif job.hold is not Hold.NONE:  # a job that waits for us is held, and tied to no nodes of before
            self.transitions.owe(managed, Owed.NOTHING)
            if job.hold is Hold.USER and managed.placed_once:
                self._untie(managed, job)
        else:
            is_to_be_held = managed.ended_as and managed.owed is Owed.REHOLD
            if managed.held_by_person and not is_to_be_held:
                self.transitions.end_hold(managed)
            if managed.owed is Owed.REHOLD or self._requeues.explains_release(managed.job_id, now):
                self.corrections.append(_rehold(job))
            else:
                self._release(managed, now, "somebody released it; Slurm schedules it")

    def _has_failed(self, managed: ManagedJob, job: SlurmJob, now: float, requeued: bool) -> bool:
        """Whether a job that Slurm still shows in the queue does not start after all."""
        if requeued and not managed.requeued_held:
            self.admission.start_failed(managed, now, job.reason or "Slurm put it back")
        elif (
            job.hold is not Hold.NONE
        ):  # it was not released, slurmctld forgot that it was, or a person did it
            by_user = job.hold is Hold.USER and self._asks_to_be_held(job)
            if by_user:
                self.admission.taken_back.note(job.user, now)
            is_known = requeued or by_user or job.hold is Hold.ADMIN
            self._note_left_nodes(managed, now, forgotten=not is_known)
            self.transitions.start_interrupted(managed, now)
        elif why := taken_back(job, self._before.get(job.job_id), now):
            self.admission.taken_back.note(job.user, now)
            self.admission.start_failed(managed, now, why)
        elif failed_starts.hints_at_segment(job.reason, self.conditions.blocks):
            self._release(managed, now, failed_starts.WITH_SEGMENT, to_slurm=True)
            return False
        elif now >= managed.phase.until_s or failed_starts.is_hopeless(job.reason):
            self.admission.start_failed(managed, now, job.reason or failed_starts.LATE)
        else:
            return False
        return True

    def _asks_to_be_held(self, job: SlurmJob) -> bool:
        """Whether job_submit.lua has noted that its user holds a job."""
        request = self._reader.request(job)
        return request is not None and request.held

    def _untie(self, managed: ManagedJob, job: SlurmJob) -> None:
        """Clear the nodes and the reservation that a held job has from Dally; what a person set stays."""
        pinned = is_pinned(job, managed.request)
        if pinned and self._was_pinned_by_person(managed):
            size = managed.min_nodes, managed.tasks
            with suppress(DallyError):  # of more nodes than can be kept
                request = replace(managed.request, nodes=fold(job.required_nodes))
                self.transitions.note_request(managed, request, size)
                pinned = False
        if pinned or (job.reservation and not own_reservation(job)):
            self.corrections.append(_rehold(job))

    def _was_pinned_by_person(self, managed: ManagedJob) -> bool:
        """Whether a held job was on no nodes at the last look, since when Dally ordered nothing for it."""
        before = self._before.get(managed.job_id)
        was_free = before is not None and before.hold is Hold.USER and not before.required_nodes
        return was_free and isinstance(managed.phase, WAITS) and managed.phase.since_s < self._last_s

    def _observe_released(self, managed: ManagedJob, job: SlurmJob, now: float) -> None:
        """A pending job of Slurm's: it must still be released, or somebody holds it and it is ours again."""
        releasing = managed.owed is Owed.RELEASE
        if job.hold is not Hold.USER:
            pinned = releasing and managed.placed_once and is_pinned(job, managed.request)
            if pinned or self._waits_for_ours(job):
                self.corrections.append(release_order(job, managed.request, managed))
            elif releasing and job.hold is Hold.NONE:
                self.transitions.owe(managed, Owed.NOTHING)
        elif self._shadow:
            return
        elif releasing and not managed.requeued_held:
            self.corrections.append(release_order(job, managed.request, managed))
        elif self._before.get(job.job_id) is not job and not self.admission.cannot_place(managed, job, now):
            self.transitions.hold_again(managed, now)

    def _observe_size(self, managed: ManagedJob, job: SlurmJob, now: float) -> None:
        """A running job may have other GPUs now, by companions or `scontrol update JobId=… NumNodes=…`."""
        if not isinstance(managed.phase, RunningPhase) or _has_restarted(managed.phase, job):
            return
        if job.gpus and dict(job.gpus) != managed.gpus:
            why = self.companions.why.pop(managed.job_id, "its nodes were changed in Slurm")
            self.transitions.resize(managed, now, why)
            self._start(managed, job, now, earliest_s=now)

    def _observe_running(self, managed: ManagedJob, job: SlurmJob, now: float) -> None:
        """Slurm shows it running: as before, anew, or against what was meant."""
        if managed.held_by_person:  # where GPUs are free, Slurm starts it as soon as it is released
            self.transitions.end_hold(managed)
        phase = managed.phase
        if isinstance(phase, ON_GPUS):
            if _has_restarted(phase, job):
                self._lost_gpus(managed, job, now)
                self._start(managed, job, now)
            elif isinstance(phase, RunningPhase):
                self._plan_save(managed, job)
        elif isinstance(phase, ReleasedPhase):
            return
        elif (
            isinstance(phase, StartingPhase)
            or managed.owed is Owed.REHOLD
            or self._shadow
            or self._requeues.explains_release(managed.job_id, now)
        ):
            self._start(managed, job, now)
        else:
            self._release(managed, now, "somebody released it; it runs where Slurm put it")

    def _plan_save(self, managed: ManagedJob, job: SlurmJob) -> None:
        life = self.state.jobs[managed.job_id]
        self.transitions.plan_save(managed, save_at_s(managed, job, life))

    def _start(self, managed: ManagedJob, job: SlurmJob, now: float, earliest_s: float | None = None) -> None:
        """A job runs on the nodes that were chosen, with the GPUs that Slurm gave it there.

        Args:
            managed: The job.
            job: As Slurm shows it.
            now: The time.
            earliest_s: It was not running before; None: at the last look.
        """
        if isinstance(managed.phase, IneligiblePhase):
            self.transitions.meet_running(managed, now)
        gpus = dict(job.gpus) or managed.gpus
        allocation = self.transitions.fit(managed, gpus, now)
        if allocation is None:
            self._release(managed, now, "it runs on GPUs that are not Dally's to give")
            return
        start_s = now if job.start_s is None else job.start_s
        since_s = min(now, max(self._last_s if earliest_s is None else earliest_s, start_s))
        cost = self.state.costs.cost(managed.job, allocation, self.state.jobs[managed.job_id].done(now))
        purpose = managed.stopped_for
        event = "start" if purpose in (None, StopPurpose.PREEMPT) else str(purpose)
        speed = 1 / cost.slowdown
        state = self.transitions.start(managed, now, gpus, allocation, since_s, speed, start_s)
        self._log(now, event, job=managed.job_id, **start_facts(self.state, state, cost, managed.reason))
        self._plan_save(managed, job)

    def _lost_gpus(self, managed: ManagedJob, job: SlurmJob, now: float, requeued: bool = True) -> None:
        """A job lost its GPUs and waits again: by us, by an administrator, as a node or slurmctld failed."""
        phase = managed.phase
        assert isinstance(phase, ON_GPUS), "it ran"
        run_s = now - phase.interval.since_s
        self._note_left_nodes(managed, now, forgotten=not requeued)
        self.transitions.lose_gpus(managed, now)
        if max(job.restarts, managed.history.preemptions) >= self._config.max_requeues:
            self.transitions.protect(managed)
        if not isinstance(phase, StoppingPhase):
            again = self._requeues.note(managed.job_id, run_s, now)
            reason = again or "was requeued, and not by Dally: by itself, by hand, or as a machine failed"
            self._log(now, "fail", job=managed.job_id, lost_s=0.0, reason=reason)
        elif phase.purpose is StopPurpose.PREEMPT:
            by = list(phase.preempted_for)
            self._log(now, "preempt", job=managed.job_id, by=by, reason=phase.reason)

    def _note_left_nodes(self, managed: ManagedJob, now: float, forgotten: bool) -> None:
        """A job has left its nodes; one that Slurm forgot will have, in a while."""
        left_s = now + (_FORGOTTEN_GAPS * self._config.restart_gap_s if forgotten else 0.0)
        self.transitions.note_left_nodes(managed, left_s)

    def _take_on(self, job: SlurmJob, request: Request, now: float) -> None:
        """A job that we do not know asks for us."""
        try:
            request = with_slurms_nodes(job, request) if request.nodes else request
            asked, unfit = self._reader.first_asked(job, request), ""
        except DallyError as error:
            asked, unfit = Job(job.job_id, job.submit_s, 1, 1.0, user=job.user), str(error)
        since_s = min(now, job.submit_s)
        min_nodes, tasks = shown_size(job, request)
        placed_once = is_pinned(job, request) or job.reservation.startswith(RESERVATION_PREFIX)
        waits, ended_as = job.state is State.PENDING, self._ended_as(job, request)
        managed = ManagedJob(
            asked,
            request,
            IneligiblePhase(now, NEW if waits else "it ran when the controller came"),
            JobHistory(since_s),
            submit_s=job.submit_s,
            restarts=job.restarts,
            min_nodes=min_nodes,
            tasks=tasks,
            owed=Owed.REHOLD if placed_once or ended_as else Owed.NOTHING,
            placed_once=placed_once,
            requeued_held=bool(ended_as),
            ended_as=ended_as,
        )
        self.transitions.take_on(managed)
        if ended_as:
            self._log(now, "ended_job_is_back", job=job.job_id, status=ended_as)
        if unfit:
            self._release(managed, now, f"{unfit}; Slurm schedules it", to_slurm=True)
            return
        account = job.account if job.account.isascii() else ""  # users may write anything there
        payer = {"user": job.user, "account": account}
        self._log(now, "submit", job=job.job_id, gpus=asked.gpus, model=asked.model, **payer)
        if waits:
            self._observe_pending(managed, job, now)
        else:
            self._start(managed, job, now, earliest_s=-inf)

    def _release(self, managed: ManagedJob, now: float, why: str, to_slurm: bool = False) -> None:
        """From here on the job is Slurm's own; with `to_slurm` it is still to be released to it."""
        self.transitions.release(managed, now, why, Owed.RELEASE if to_slurm else Owed.NOTHING)
        self._log(now, "released", job=managed.job_id, reason=why)
        job = self._seen.get(managed.job_id)
        if job is not None and job.state is State.PENDING:
            self._observe_released(managed, job, now)

    def requeue_failed(self, managed: ManagedJob, now: float, why: str) -> None:
        """Slurm will not requeue it: it goes on as it is, not to be asked again, or has ended for good."""
        job = self._seen[managed.job_id]
        if job.state is State.ENDED:
            self.transitions.end(managed, now, job.state_name)
            return
        self.transitions.carry_on(managed, now, f"it cannot be requeued: {why}")
        self._log(now, "requeue_failed", job=managed.job_id, reason=managed.reason)


def _has_restarted(phase: RunningPhase | StoppingPhase, job: SlurmJob) -> bool:
    """Whether Slurm shows another run than the one that is known."""
    return job.start_s is not None and abs(job.start_s - phase.interval.slurm_start_s) > 1.0


def _same(before: SlurmJob | None, job: SlurmJob) -> SlurmJob:
    """A job as the object of the last look if nothing has changed: what is known of that holds for it."""
    return job if before is None or (before is not job and before != job) else before


def _rehold(job: SlurmJob) -> Rehold:
    return Rehold(job.job_id, keep_reservation=bool(own_reservation(job)))


def _place(managed: ManagedJob) -> tuple[bool, int, tuple[float, tuple[int, ...]]]:
    """What orders jobs by the places that they had in the queue, those without one last, by arrival."""
    return managed.order is None, managed.order or 0, managed.arrival
