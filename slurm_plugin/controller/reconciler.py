"""Keeps managed jobs, state and policy in step with what Slurm shows, and says what must be corrected."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from math import inf

from dally.errors import DallyError
from dally.jobs.job import Job
from dally.scheduling.scheduler import Scheduler, start_facts
from dally.state import JobHistory
from slurm_plugin.client.slurm import (
    HOLDS_GPUS,
    Hold,
    Order,
    Rehold,
    ReleaseToSlurm,
    Requeue,
    Reservation,
    SlurmJob,
    SlurmNode,
    State,
    Unreserve,
    arrival,
)
from slurm_plugin.config import Config
from slurm_plugin.controller import failed_starts
from slurm_plugin.controller.companions import Companions
from slurm_plugin.controller.eligibility import array_slots, ineligible_reason
from slurm_plugin.controller.job_requests import RequestReader, asked_size, release_order, shown_size
from slurm_plugin.controller.managed_job import (
    NEW,
    ON_GPUS,
    WITH_POLICY,
    JobPhase,
    ManagedJob,
    asks_for_requeue,
    checkpointed,
)
from slurm_plugin.controller.node_room import NodeResources
from slurm_plugin.controller.pending_starts import PendingStarts
from slurm_plugin.controller.start_conditions import StartConditions
from slurm_plugin.controller.time_limits import save_at_s
from slurm_plugin.controller.transitions import JobTransitions, Log
from slurm_plugin.controller.unavailable_gpus import (
    RESERVATION_PREFIX,
    closed_nodes,
    idle_reservations,
    withhold_unavailable,
)
from slurm_plugin.request import Request

_TOO_LONG = "PartitionTimeLimit"
"""Slurm's reason for a job that asks for more time than its partition allows; it starts nowhere."""

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
        managed_jobs: Our jobs, by number.
        scheduler: State and policy.
        corrections: What Slurm must be told so that it agrees with the managed jobs, as of the last view.
        changed: Numbers of managed jobs that differ from the journal's.
        gone: Numbers of jobs that the journal need not keep any longer.
        decided: Numbers of jobs that are stopping or starting, in the order in which that was decided.
        pending_starts: Starts that wait for others to leave.
        companions: Of elastic jobs.
        conditions: What Slurm would hold against a start beside GPUs.
    """

    def __init__(self, scheduler: Scheduler, config: Config, log: Log, shadow: bool = False) -> None:
        self._transitions = transitions = JobTransitions(scheduler, log)
        self.scheduler, self.state = scheduler, scheduler.state
        self.managed_jobs, self.changed, self.gone = (
            transitions.managed_jobs,
            transitions.changed,
            transitions.gone,
        )
        self.corrections: list[Order] = []
        self.decided: list[str] = []
        self.pending_starts = PendingStarts(self.managed_jobs, self.state.topology, config.restart_gap_s)
        self._config, self._log, self._shadow = config, log, shadow
        self._reader = RequestReader(config, self.state.best_level, shadow)
        self.companions = Companions(self._reader.request, config.restart_gap_s)
        self.report_progress = transitions.report_progress
        self.conditions = StartConditions(self.managed_jobs, self.state)
        self._seen: dict[str, SlurmJob] = {}
        self._before: dict[str, SlurmJob] = {}
        self._last_s = -inf

    def seen(self, job_id: str) -> SlurmJob:
        """A job as Slurm last showed it."""
        return self._seen[job_id]

    def all_seen(self) -> Mapping[str, SlurmJob]:
        """All jobs as Slurm last showed them, by number."""
        return self._seen

    def recall(self, managed_jobs: Mapping[str, ManagedJob], now: float) -> None:
        """Take up the jobs of a controller that is no more; its policy must have been restored."""
        for managed in sorted(managed_jobs.values(), key=_arrival):
            self.managed_jobs[managed.job_id] = managed
            if managed.phase in WITH_POLICY and (why := self._transitions.take_up(managed, now)):
                self._release(managed, now, why, to_slurm=managed.interval is None)

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
        jobs = jobs if self._shadow else self.companions.observe(jobs, now)
        reservations = [*reservations]
        reserved = {each.name for each in reservations}
        self._before, self._seen = self._seen, {job.job_id: job for job in jobs}
        self.corrections = []
        self._reader.nodes = nodes
        for job_id in self._in_order():
            self._observe(self.managed_jobs[job_id], now)
        running = [job_id for job_id in self._in_order() if self._seen[job_id].state in _RUNS]
        for job_id in running:
            self._observe_size(self.managed_jobs[job_id], self._seen[job_id], now)
        for job_id in running:
            self._observe_running(self.managed_jobs[job_id], self._seen[job_id], now)
        self.conditions.observe(self._seen, nodes, reservations)
        under_way = (JobPhase.STARTING, JobPhase.STOPPING)
        known = self.managed_jobs
        self.decided = [each for each in self.decided if each in known and known[each].phase in under_way]

        new = [job for job in jobs if job.job_id not in known and job.state in (State.PENDING, *_RUNS)]
        for job in sorted(new, key=lambda each: arrival(each.submit_s, each.job_id)):
            if (request := self._reader.request(job)) is not None:
                self._take_on(job, request, now)
            elif job.state is State.PENDING and job.hold is Hold.NONE and self._waits_for_ours(job, reserved):
                self.corrections.append(ReleaseToSlurm(job.job_id, job.min_nodes))
        for job in jobs:
            # It ended to be requeued, but the journal, or slurmctld after a crash, had forgotten why.
            if job.job_id not in known and asks_for_requeue(job):
                wanted = self._reader.request(job)
                if wanted and wanted.signal and job.requeue and job.restarts < self._config.max_requeues:
                    self.corrections.append(Requeue(job.job_id, ended=True))
        self._retry_refused(now)
        self._admit(now)

        closed = closed_nodes(nodes, reservations, now)
        for managed in known.values():
            if now < managed.left_s:  # a run may go on there that Slurm no longer knows of
                closed.update(managed.left_nodes)
        kept = self.pending_starts.reserved_gpus(now)
        withhold_unavailable(self.scheduler, known, kept, jobs, nodes, closed)
        self.corrections += self.companions.corrections(known)
        self.corrections += map(Unreserve, idle_reservations(reservations, known, self.pending_starts, now))
        self._last_s = now

    @staticmethod
    def _waits_for_ours(job: SlurmJob, reserved: Set[str]) -> bool:
        """Whether a job that is not ours waits for a reservation of ours that is gone, and so for ever.

        Its user took it from us while it ran, and it came back to the queue when no journal knew it.
        """
        return job.reservation.startswith(RESERVATION_PREFIX) and job.reservation not in reserved

    def _in_order(self) -> list[str]:
        """Our jobs: those with a decision under way first, so that facts come in the order of decisions."""
        decided = [job_id for job_id in self.decided if job_id in self.managed_jobs]
        return [*dict.fromkeys([*decided, *self.managed_jobs])]

    def _observe(self, managed: ManagedJob, now: float) -> None:
        """Has a job that we know gone, ended, or come back to the queue?"""
        job = self._seen.get(managed.job_id)
        request = None if job is None else self._reader.request(job)
        if job is None or not managed.same_as(job, request.tag if request else ""):
            self._transitions.end(managed, now, "GONE")
            return
        requeued = job.restarts > managed.restarts
        if job.restarts < managed.restarts and managed.phase in (JobPhase.PENDING, JobPhase.INELIGIBLE):
            managed.rehold = True  # slurmctld crashed and forgot that it was requeued
        if (managed.submit_s, managed.restarts) != (job.submit_s, job.restarts):
            managed.submit_s, managed.restarts = job.submit_s, job.restarts
            self.changed.add(managed.job_id)
        if job.state is State.PENDING:
            self._observe_pending(managed, job, now, requeued)
        elif job.state is State.ENDED and not checkpointed(managed, job):  # such a one will be requeued
            if managed.phase is JobPhase.STARTING and job.start_s is not None and job.nodes:
                self._start(managed, job, now)  # it ran, and ended between two looks
            self._transitions.end(managed, now, job.state_name)

    def _observe_pending(
        self, managed: ManagedJob, job: SlurmJob, now: float, requeued: bool = False
    ) -> None:
        """Slurm shows it in the queue: it lost its GPUs, its start failed, or it waits as before."""
        if managed.phase in ON_GPUS:
            self._lost_gpus(managed, job, now, requeued)
        elif managed.phase is JobPhase.STARTING:
            if job.reason == _TOO_LONG and job.hold is Hold.NONE:
                asks = f"asks for more time than partition {job.partition} allows ({_TOO_LONG})"
                self._release(managed, now, f"{asks}; Slurm schedules it", to_slurm=True)
                return
            if requeued:
                self.start_failed(managed, now, job.reason or "Slurm put it back")
            elif job.hold is not Hold.NONE:  # it was not released, or slurmctld forgot that it was
                self._note_left_nodes(managed, now, forgotten=True)
                self._transitions.move(managed, JobPhase.PENDING, now, "its start was interrupted")
            elif now >= managed.until_s or failed_starts.is_hopeless(job.reason):
                self.start_failed(managed, now, job.reason or failed_starts.LATE)
            else:
                return
        if managed.phase is JobPhase.RELEASED:
            self._observe_released(managed, job, now)
        elif self._shadow:
            return
        elif job.hold is not Hold.NONE:  # a job that waits for us is held, and tied to no nodes of before
            if managed.rehold:
                managed.rehold = False
                self.changed.add(managed.job_id)
            if job.hold is Hold.USER and managed.placed_once and (job.required_nodes or job.reservation):
                self.corrections.append(Rehold(managed.job_id))
        else:
            if managed.person_held:
                managed.person_held, managed.user_released, managed.rehold = False, True, True
                self.changed.add(managed.job_id)
            if managed.rehold:
                self.corrections.append(Rehold(managed.job_id))
            else:
                self._release(managed, now, "somebody released it; Slurm schedules it")

    def _observe_released(self, managed: ManagedJob, job: SlurmJob, now: float) -> None:
        """A pending job of Slurm's: it must still be released, or somebody holds it and it is ours again."""
        if job.hold is not Hold.USER:
            if managed.releasing and managed.placed_once and job.required_nodes:
                self.corrections.append(release_order(job, managed.request, managed))
            elif managed.releasing and job.hold is Hold.NONE:
                managed.releasing = False
                self.changed.add(managed.job_id)
        elif self._shadow:
            return
        elif managed.releasing:
            self.corrections.append(release_order(job, managed.request, managed))
        elif self._before.get(managed.job_id) != job and not self._cannot_place(managed, job, now):
            self._transitions.move(managed, JobPhase.INELIGIBLE, now, "held again")

    def _observe_size(self, managed: ManagedJob, job: SlurmJob, now: float) -> None:
        """A running job may have other GPUs now, by companions or `scontrol update JobId=… NumNodes=…`."""
        if managed.phase is not JobPhase.RUNNING or self._has_restarted(managed, job):
            return
        if job.gpus and dict(job.gpus) != managed.gpus:
            self._transitions.resize(managed, now)
            managed.reason = self.companions.why.pop(managed.job_id, "its nodes were changed in Slurm")
            managed.resizing = True
            self._start(managed, job, now, earliest_s=now)

    def _observe_running(self, managed: ManagedJob, job: SlurmJob, now: float) -> None:
        """Slurm shows it running: as before, anew, or against what was meant."""
        if managed.phase in ON_GPUS:
            if self._has_restarted(managed, job):
                self._lost_gpus(managed, job, now)
                self._start(managed, job, now)
            elif managed.phase is JobPhase.RUNNING:
                managed.until_s = save_at_s(managed, job, self.state.jobs[managed.job_id])
        elif managed.phase is JobPhase.RELEASED:
            return
        elif managed.phase is JobPhase.STARTING or managed.rehold or self._shadow:
            self._start(managed, job, now)
        else:
            self._release(managed, now, "somebody released it; it runs where Slurm put it")

    def _has_restarted(self, managed: ManagedJob, job: SlurmJob) -> bool:
        assert managed.interval is not None, "it runs"
        return job.start_s is not None and abs(job.start_s - managed.interval.slurm_start_s) > 1.0

    def _start(self, managed: ManagedJob, job: SlurmJob, now: float, earliest_s: float | None = None) -> None:
        """A job runs on the nodes that were chosen, with the GPUs that Slurm gave it there.

        Args:
            managed: The job.
            job: As Slurm shows it.
            now: The time.
            earliest_s: It was not running before; None: at the last look.
        """
        if managed.phase not in WITH_POLICY:
            self.scheduler.submit(managed.job, now, managed.history)
            self._transitions.move(managed, JobPhase.PENDING, now, managed.reason)
        gpus = dict(job.gpus) or managed.gpus
        allocation = self._transitions.fit(managed, gpus, now)
        if allocation is None:
            self._release(managed, now, "it runs on GPUs that are not Dally's to give")
            return
        start_s = now if job.start_s is None else job.start_s
        since_s = min(now, max(self._last_s if earliest_s is None else earliest_s, start_s))
        cost = self.state.costs.cost(managed.job, allocation, self.state.jobs[managed.job_id].done(now))
        managed.gpus, managed.rehold = gpus, False
        failed_starts.forget(managed)
        state = self._transitions.run(managed, allocation, since_s, 1 / cost.slowdown, start_s)
        event = "resize" if managed.resizing else "migrate" if managed.migrating else "start"
        self._log(now, event, job=managed.job_id, **start_facts(self.state, state, cost, managed.reason))
        self._transitions.move(managed, JobPhase.RUNNING, now, managed.reason)
        managed.until_s = save_at_s(managed, job, state)
        managed.migrating = managed.resizing = False

    def _lost_gpus(self, managed: ManagedJob, job: SlurmJob, now: float, requeued: bool = True) -> None:
        """A job lost its GPUs and waits again: by us, by an administrator, as a node or slurmctld failed."""
        stopping, reason = managed.phase is JobPhase.STOPPING, managed.reason
        self._note_left_nodes(managed, now, forgotten=not requeued)
        self._transitions.stop(managed, now)
        if max(job.restarts, managed.history.preemptions) >= self._config.max_requeues:
            self._transitions.protect(managed)
        managed.rehold = True
        if not stopping:
            reason = "was requeued, and not by Dally: by itself, by hand, or as a machine failed"
            self._log(now, "fail", job=managed.job_id, lost_s=0.0, reason=reason)
        elif not managed.migrating:
            by = list(managed.preempted_for)
            self._log(now, "preempt", job=managed.job_id, by=by, reason=reason)

    def _note_left_nodes(self, managed: ManagedJob, now: float, forgotten: bool) -> None:
        """A job has left its nodes; one that Slurm forgot will have, in a while."""
        managed.left_nodes = tuple(managed.gpus)
        managed.left_s = now + (_FORGOTTEN_GAPS * self._config.restart_gap_s if forgotten else 0.0)

    def _take_on(self, job: SlurmJob, request: Request, now: float) -> None:
        """A job that we do not know asks for us."""
        try:
            asked, unfit = self._reader.first_asked(job, request), ""
        except DallyError as error:
            asked, unfit = Job(job.job_id, job.submit_s, 1, 1.0, user=job.user), str(error)
        since_s = min(now, job.submit_s)
        managed = ManagedJob(asked, request, JobPhase.INELIGIBLE, NEW, now, history=JobHistory(since_s))
        managed.submit_s, managed.restarts = job.submit_s, job.restarts
        managed.min_nodes, managed.tasks = shown_size(job, request)
        ours = bool(job.required_nodes) or job.reservation.startswith(RESERVATION_PREFIX)
        managed.placed_once = managed.rehold = ours
        self.managed_jobs[job.job_id] = managed
        if unfit:
            self._release(managed, now, f"{unfit}; Slurm schedules it", to_slurm=True)
            return
        payer = {"user": job.user, "account": job.account}
        self._log(now, "submit", job=job.job_id, gpus=asked.gpus, model=asked.model, **payer)
        if job.state is State.PENDING:
            self._observe_pending(managed, job, now)
        else:
            managed.reason = "it ran when the controller came"
            self._start(managed, job, now, earliest_s=-inf)

    def _cannot_place(self, managed: ManagedJob, job: SlurmJob, now: float) -> str:
        """Take in what a waiting job asks for now; why Dally cannot place it, or nothing if it can."""
        request = self._reader.request(job) or managed.request
        try:
            asked = self._reader.asked(managed, job, request)
        except DallyError as error:
            return str(error)
        if job.time_limit_s != managed.limit_s:
            managed.limit_s = None
        size = asked_size(managed, job)
        if size != (managed.min_nodes, managed.tasks) or request != managed.request:
            managed.min_nodes, managed.tasks = size
            managed.request = replace(request, tag=request.tag or managed.request.tag)
            self.changed.add(managed.job_id)
        self._transitions.become(managed, asked, now)
        if managed.refused and failed_starts.asked_for(managed, job) != managed.refused_as:
            failed_starts.forget(managed)
            managed.until_s = min(managed.until_s, now)
        return ""

    def _retry_refused(self, now: float) -> None:
        """Examine refused jobs again when a job has left that may have been in their way."""
        before, seen = self._before, self._seen
        left = [
            job
            for job in before.values()
            if job.state in HOLDS_GPUS and not (job.job_id in seen and seen[job.job_id].state in HOLDS_GPUS)
        ]
        for managed in self.managed_jobs.values():
            if managed.phase is JobPhase.PENDING and managed.refused_nodes:
                pause_s = failed_starts.longer(self._config.backoff_s, managed.refusals)
                if now >= managed.since_s + pause_s:
                    managed.refused_nodes = ()
            if managed.phase is not JobPhase.INELIGIBLE or managed.until_s == inf:
                continue
            if now >= managed.until_s:
                managed.refused_nodes = ()
            elif left and (
                managed.reason == managed.declined
                or any(failed_starts.may_help(managed, seen[managed.job_id], job) for job in left)
            ):
                freed = {node for job in left for node in job.nodes}
                managed.refused_nodes = tuple(node for node in managed.refused_nodes if node not in freed)
                managed.until_s = now

    def _admit(self, now: float) -> None:
        """Put the jobs that may start now into the policy's queue, and take the others out."""
        slots = array_slots(self._seen.values(), self.managed_jobs)
        use = self.conditions.limit_use()
        phases = (JobPhase.INELIGIBLE, JobPhase.PENDING)
        waiting = [managed for managed in self.managed_jobs.values() if managed.phase in phases]
        for managed in sorted(waiting, key=_arrival):
            job, until_s = self._seen[managed.job_id], inf
            if job.state is not State.PENDING:
                why = f"Slurm shows it as {job.state_name}"
            else:
                unchanged = job == self._before.get(managed.job_id)
                if unfit := "" if unchanged else self._cannot_place(managed, job, now):
                    self._release(managed, now, f"{unfit}; Slurm schedules it", to_slurm=True)
                    continue
                request = self._reader.request(job) or managed.request
                held = job.hold is Hold.ADMIN or (request.held and not managed.user_released)
                if held != managed.person_held:
                    managed.person_held = held
                    self.changed.add(managed.job_id)
                why = ineligible_reason(managed, job, request, slots, now, self._seen)
                why = why or use.refusal(job, managed.job.least_gpus)
                if not why and (why := self._narrow(managed, now)) and managed.refused_nodes:
                    until_s = now + self._config.backoff_s
            if not why:
                use.promise(job, managed.job.least_gpus)
                self._transitions.queue(managed, now)
            elif managed.phase is JobPhase.PENDING or managed.reason != why:
                self._transitions.set_ineligible(managed, now, why, until_s)

    def _narrow(self, managed: ManagedJob, now: float) -> str:
        """Tell the policy on which nodes a waiting job may start now; why it may not, if on too few."""
        narrowed, why = self.conditions.narrowed(managed, now)
        self._transitions.become(managed, narrowed, now)
        return why

    def _release(self, managed: ManagedJob, now: float, why: str, to_slurm: bool = False) -> None:
        """From here on the job is Slurm's own; with `to_slurm` it is still to be released to it."""
        if managed.job_id in self.state.waiting:
            self.scheduler.withdraw(managed.job_id, now)
        self._transitions.move(managed, JobPhase.RELEASED, now, why)
        managed.releasing = to_slurm
        self._log(now, "released", job=managed.job_id, reason=why)
        job = self._seen.get(managed.job_id)
        if job is not None and job.state is State.PENDING:
            self._observe_released(managed, job, now)

    # What became of decisions, told by those who carry them out.

    def start_failed(self, managed: ManagedJob, now: float, reason: str) -> None:
        """Slurm would not start it there: it is held again, and tries other nodes or is left out a while."""
        failed_starts.remember(managed, self._seen[managed.job_id], reason)
        pause_s = failed_starts.pause_s(managed, self._config.backoff_s)
        why = f"could not start on {', '.join(managed.gpus)}: {reason}"
        if pause_s:
            self._transitions.set_ineligible(managed, now, why, until_s=now + pause_s)
        else:
            self._transitions.move(managed, JobPhase.PENDING, now, why)
        managed.rehold = True
        self._log(now, "start_failed", job=managed.job_id, reason=why, again_in_s=pause_s)

    def start_declined(self, managed: ManagedJob, now: float, why: str) -> None:
        """What the policy decided for it is not carried out: it is left out until a job leaves."""
        if managed.declined != why:
            self._log(now, "start_declined", job=managed.job_id, reason=why)
        self._transitions.set_ineligible(managed, now, why, until_s=now + self._config.backoff_s)
        managed.declined = why

    def nodes_full(self, managed: ManagedJob, lacking: Mapping[str, NodeResources], now: float) -> None:
        """A start was decided on nodes without the CPUs or memory for it: they are kept from the job."""
        self.conditions.exclude(managed, lacking)
        if why := self._narrow(managed, now):
            self.start_declined(managed, now, why)

    def requeue_failed(self, managed: ManagedJob, now: float, why: str) -> None:
        """Slurm will not requeue it: it goes on as it is, not to be asked again, or has ended for good."""
        job = self._seen[managed.job_id]
        if job.state is State.ENDED:
            self._transitions.end(managed, now, job.state_name)
            return
        self._transitions.carry_on(managed, now, f"it cannot be requeued: {why}")
        self._log(now, "requeue_failed", job=managed.job_id, reason=managed.reason)


def _arrival(managed: ManagedJob) -> tuple[float, tuple[int, ...]]:
    return arrival(managed.job.submit_s, managed.job_id)
