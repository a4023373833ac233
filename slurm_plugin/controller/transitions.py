"""The only writer of managed jobs: each event changes the job and the policy's state together, or neither."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from math import inf

from dally.cluster.free import placed
from dally.cluster.topology import Allocation
from dally.errors import CapacityError, DallyError
from dally.jobs.job import Job, JobKind
from dally.jobs.progress import ProgressReport
from dally.scheduling.scheduler import Scheduler
from dally.state import JobHistory, JobState, Phase
from slurm_plugin.controller.managed_job import (
    NEW,
    ON_GPUS,
    WITH_POLICY,
    AnyPhase,
    IneligiblePhase,
    ManagedJob,
    Owed,
    PendingPhase,
    Refusals,
    ReleasedPhase,
    RunInterval,
    RunningPhase,
    StartingPhase,
    StoppingPhase,
    StopPurpose,
)
from slurm_plugin.controller.transition_table import JobEvent, next_phase
from slurm_plugin.request import Request

Log = Callable[..., None]
"""Records an event: `log(now, event, **fields)`."""


class JobTransitions:
    """Managed jobs, and the same jobs in the policy's state.

    Methods named as a `JobEvent` take the job from phase to phase, as `transition_table` says; the others set
    facts of any phase.

    Attributes:
        scheduler: State and policy.
        managed_jobs: Our jobs, by number.
        changed: Numbers of managed jobs that differ from the journal's.
        gone: Numbers of jobs that the journal need not keep any longer.
    """

    def __init__(self, scheduler: Scheduler, log: Log) -> None:
        self.scheduler = scheduler
        self.managed_jobs: dict[str, ManagedJob] = {}
        self.changed: set[str] = set()
        self.gone: set[str] = set()
        self._log, self._state = log, scheduler.state
        self._machines = scheduler.state.topology.machine_index

    # Jobs come and go.

    def take_on(self, managed: ManagedJob) -> None:
        """Slurm shows a job that is not known."""
        assert managed.phase.name is next_phase(None, JobEvent.TAKE_ON), "a new job is ineligible"
        self.managed_jobs[managed.job_id] = managed
        self.changed.add(managed.job_id)

    def recall_places(self, managed_jobs: Iterable[ManagedJob]) -> None:
        """Keep the places of the journal's jobs: new ones come behind them, in the queue or not.

        Of two jobs with one place, as only a damaged journal has them, the second gets a new one.
        """
        taken: set[int] = set()
        for managed in managed_jobs:
            if managed.order is None or managed.order in taken:
                managed.order = None
            else:
                taken.add(managed.order)
        self._state.arrivals = max(self._state.arrivals, max(taken, default=-1) + 1)

    def take_up(self, managed: ManagedJob, now: float) -> str:
        """Go on with a job of the journal, and tell the policy of it; why it cannot be told, if so."""
        self.managed_jobs[managed.job_id] = managed
        phase = managed.phase
        if not isinstance(phase, WITH_POLICY):
            return ""
        try:
            allocation = self._allocation(managed.gpus)
            self._state.best_level(managed.job.gang)
        except (CapacityError, KeyError):
            return "the cluster has changed and cannot hold it"
        on_gpus = isinstance(phase, ON_GPUS)
        if on_gpus and not self._state.free.holds(placed(managed.job.gang, allocation)):
            return "the cluster has changed; it runs on as it is"
        self._submit(managed, now)
        if isinstance(phase, ON_GPUS):
            run = phase.interval
            self.scheduler.resume(managed.job_id, allocation, run.since_s, run.ready_s, now, run.speed)
        return ""

    def end(self, managed: ManagedJob, now: float, how: str) -> None:
        """Forget a job, whatever it was doing."""
        next_phase(managed.phase.name, JobEvent.END)
        if isinstance(managed.phase, ON_GPUS):
            self.scheduler.finish(managed.job_id, now)
        elif isinstance(managed.phase, WITH_POLICY):
            self.scheduler.withdraw(managed.job_id, now)
        del self.managed_jobs[managed.job_id]
        self.changed.discard(managed.job_id)
        self.gone.add(managed.job_id)
        which = {"submit_s": managed.submit_s, "restarts": managed.restarts, "tag": managed.request.tag}
        self._log(now, "end", job=managed.job_id, status=how, **which)

    # Waiting.

    def queue(self, managed: ManagedJob, now: float) -> None:
        """Put a job into the policy's queue: nothing but a placement is missing.

        The priority that it had is of before, and others may have new ones by now.
        """
        self._begin_wait(managed, now)
        managed.history = replace(managed.history, priority=0.0)
        self._submit(managed, now)
        self._enter(managed, JobEvent.QUEUE, PendingPhase(now, "in the queue"))

    @staticmethod
    def _begin_wait(managed: ManagedJob, now: float) -> None:
        """A job begins to wait for GPUs if until now something else was in its way."""
        phase = managed.phase
        other = isinstance(phase, IneligiblePhase) and phase.until_s == inf and not phase.accrues
        if other and managed.reason != NEW:
            managed.history = replace(managed.history, origin_s=now)

    def meet_running(self, managed: ManagedJob, now: float) -> None:
        """Slurm runs a job that the policy does not know; it is told of it, before `start`."""
        self._submit(managed, now)
        self._enter(managed, JobEvent.MEET_RUNNING, PendingPhase(now, managed.reason))

    def set_ineligible(
        self,
        managed: ManagedJob,
        now: float,
        why: str,
        until_s: float = inf,
        held: bool = False,
        accrues: bool = False,
    ) -> None:
        """Take a job out of the policy's queue until something changes.

        It keeps its place there, but for one that a person holds, as with Slurm: that comes last again.
        """
        self._withdraw(managed, now)
        if held:
            managed.order = None
        if accrues:
            self._begin_wait(managed, now)
        record = IneligiblePhase(now, why, held, accrues, until_s=until_s)
        self._enter(managed, JobEvent.SET_INELIGIBLE, record)

    def retry(self, managed: ManagedJob, now: float) -> None:
        """A job need not wait for the end of its back-off."""
        until_s = min(managed.phase.until_s, now)
        self._enter(managed, JobEvent.RETRY, replace(managed.phase, until_s=until_s))

    def end_hold(self, managed: ManagedJob) -> None:
        """Who held a job has released it: it waits for the policy's word again, and so held."""
        assert isinstance(managed.phase, IneligiblePhase), "nobody holds it"
        managed.user_released, managed.requeued_held, managed.owed = True, False, Owed.REHOLD
        managed.ended_as = ""
        self._enter(managed, JobEvent.END_HOLD, replace(managed.phase, held=False))

    def explain_wait(self, managed: ManagedJob, why: str, level: str, until_s: float) -> None:
        """The policy says why a job waits, and until when it insists on a level."""
        since_s = managed.phase.since_s
        self._enter(managed, JobEvent.EXPLAIN_WAIT, PendingPhase(since_s, why, level, until_s=until_s))

    # Starting.

    def begin_start(
        self,
        managed: ManagedJob,
        now: float,
        why: str,
        allocation: Allocation,
        limit_s: float | None,
        until_s: float,
    ) -> None:
        """A job is about to be released: its GPUs are no longer free, though it does not run yet."""
        gpus = self._state.topology.named(allocation)
        managed.placed_once, managed.limit_s, managed.owed = True, limit_s, Owed.NOTHING
        self._enter(managed, JobEvent.BEGIN_START, StartingPhase(now, why, gpus, until_s=until_s))
        for machine, count in self._state.free.taken_by(allocation):
            withheld = self._state.withheld.get(machine, 0) + count
            self.scheduler.withhold(machine, withheld, machine in self._state.closed)

    def start_interrupted(self, managed: ManagedJob, now: float) -> None:
        """A job that was to start is held after all."""
        self._enter(managed, JobEvent.START_INTERRUPTED, PendingPhase(now, "its start was interrupted"))

    def try_elsewhere(self, managed: ManagedJob, now: float, why: str) -> None:
        """Slurm did not start a job; it is to be held, and may start on other nodes at once."""
        managed.owed = Owed.REHOLD
        self._enter(managed, JobEvent.TRY_ELSEWHERE, PendingPhase(now, why))

    def back_off(self, managed: ManagedJob, now: float, why: str, until_s: float) -> None:
        """Slurm did not start a job; it is to be held, and is left out for a while."""
        self._withdraw(managed, now)
        managed.owed = Owed.REHOLD
        self._enter(managed, JobEvent.BACK_OFF, IneligiblePhase(now, why, until_s=until_s))

    def fit(self, managed: ManagedJob, gpus: Mapping[str, int], now: float) -> Allocation | None:
        """Return the allocation of a job that holds these GPUs; None if they are not Dally's to give.

        Whatever it seemed to ask for, it becomes a job that asks for what Slurm gave it.
        """
        asked = managed.job
        try:
            if not asked.runs_on([*gpus.values()]):
                asked = replace(asked, segment=None, spread_segments=False, consolidate_segments=False)
                asked = replace(asked, gpus=sum(gpus.values()), gpus_per_machine=None, gpu_type=None)
                asked = replace(asked, kind=JobKind.RIGID, min_gpus=None, max_gpus=None, max_copies=1)
            allocation = self._allocation(gpus)
            self._state.best_level(asked.gang)
        except (KeyError, DallyError):
            return None
        own = {machine for machine, _ in allocation}
        for machine in self._state.topology.beside(own) if asked.whole_blocks else own:
            if machine in own or machine not in self._state.closed:
                self.scheduler.withhold(machine, 0)
        if not self._state.free.holds(placed(asked.gang, allocation)):
            return None
        self.become(managed, asked, now)
        return allocation

    def start(
        self,
        managed: ManagedJob,
        now: float,
        gpus: dict[str, int],
        allocation: Allocation,
        since_s: float,
        speed: float,
        slurm_start_s: float,
    ) -> JobState:
        """A job runs, there and since then; the policy sees it start."""
        state, interval = self._run(managed, allocation, since_s, speed, slurm_start_s)
        managed.owed, managed.refusals, managed.stopped_for = Owed.NOTHING, Refusals(), None
        managed.switches_since_s = None
        self._enter(managed, JobEvent.START, RunningPhase(now, managed.reason, gpus, interval))
        return state

    # Running.

    def plan_save(self, managed: ManagedJob, until_s: float) -> None:
        """It is known when a running job is to be asked for its checkpoint, as its limit comes too early."""
        if managed.phase.until_s != until_s:
            self._enter(managed, JobEvent.PLAN_SAVE, replace(managed.phase, until_s=until_s))

    def report_progress(self, managed: ManagedJob, report: ProgressReport, now: float) -> None:
        """A running job reported how far it is."""
        phase = managed.phase
        assert isinstance(phase, ON_GPUS), "it runs"
        state = self.scheduler.report_progress(managed.job_id, report, now)
        interval = replace(phase.interval, speed=state.speed, ready_s=state.ready_s)
        managed.history = replace(managed.history, progress=state.progress)
        self._enter(managed, JobEvent.REPORT_PROGRESS, replace(phase, interval=interval))

    def resize(self, managed: ManagedJob, now: float, why: str) -> None:
        """A job goes on on other GPUs, which `start` is told next."""
        if managed.job.preemptible:
            state = self.scheduler.preempt(managed.job_id, now, resized=True)
        else:
            work_s = self._state.jobs[managed.job_id].work_s(now)
            state = self.scheduler.fail(managed.job_id, now, work_s)
        managed.history, managed.stopped_for = job_history(state), StopPurpose.RESIZE
        self._enter(managed, JobEvent.RESIZE, PendingPhase(now, why))

    def lose_gpus(self, managed: ManagedJob, now: float) -> None:
        """A job lost its GPUs, as it was to or not, and waits again, to be held."""
        phase, state = managed.phase, self._state.jobs[managed.job_id]
        if isinstance(phase, StoppingPhase):
            managed.stopped_for = phase.purpose
        if isinstance(phase, StoppingPhase) and state.job.preemptible:
            self.scheduler.preempt(managed.job_id, now)
        else:
            self.scheduler.fail(managed.job_id, now, state.work_s(now))
        managed.job, managed.history, managed.owed = state.job, job_history(state), Owed.REHOLD
        self._enter(managed, JobEvent.LOSE_GPUS, PendingPhase(now, managed.reason))

    # Stopping.

    def request_checkpoint(
        self, managed: ManagedJob, now: float, why: str, purpose: StopPurpose, preempted_for: tuple[str, ...]
    ) -> None:
        """A running job is to write its checkpoint and leave its GPUs."""
        phase = managed.phase
        assert isinstance(phase, RunningPhase), "it runs"
        record = StoppingPhase(
            now,
            why,
            phase.gpus,
            phase.interval,
            purpose,
            preempted_for,
            signalled=not managed.request.signal,
            until_s=now,
        )
        self._enter(managed, JobEvent.REQUEST_CHECKPOINT, record)

    def signal(self, managed: ManagedJob, now: float) -> None:
        """A job was sent its checkpoint signal: its grace begins."""
        assert isinstance(managed.phase, StoppingPhase), "it was asked to stop"
        until_s = now + managed.request.grace_s
        self._enter(managed, JobEvent.SIGNAL, replace(managed.phase, signalled=True, until_s=until_s))

    def carry_on(self, managed: ManagedJob, now: float, why: str) -> None:
        """A stopping job runs on where it is, and is not to be stopped: the policy sees a new run."""
        phase, state = managed.phase, self._state.jobs[managed.job_id]
        assert isinstance(phase, StoppingPhase), "it was asked to stop"
        speed, allocation = state.speed, state.allocation
        self.scheduler.fail(managed.job_id, now, state.work_s(now))
        managed.history = job_history(state)
        self.protect(managed)
        _, interval = self._run(managed, allocation, now, speed, phase.interval.slurm_start_s)
        self._enter(managed, JobEvent.CARRY_ON, RunningPhase(now, why, phase.gpus, interval))

    # Slurm's own.

    def release(self, managed: ManagedJob, now: float, why: str, owed: Owed) -> None:
        """From here on a job is Slurm's own, to which it may still have to be released."""
        if managed.job_id in self._state.waiting:
            self.scheduler.withdraw(managed.job_id, now)
        if isinstance(managed.phase, StoppingPhase):
            managed.stopped_for = managed.phase.purpose
        managed.owed = owed
        self._enter(managed, JobEvent.RELEASE, ReleasedPhase(now, why))

    def hold_again(self, managed: ManagedJob, now: float) -> None:
        """Its user holds a job that was released: it is ours again."""
        self._enter(managed, JobEvent.HOLD_AGAIN, IneligiblePhase(now, "held again"))

    # Facts of any phase.

    def protect(self, managed: ManagedJob) -> None:
        """A waiting job is not to be stopped again, once it runs."""
        managed.job = self.scheduler.protect(managed.job_id)
        self.changed.add(managed.job_id)

    def become(self, managed: ManagedJob, asked: Job, now: float) -> None:
        """A job asks for something else now."""
        if asked is not managed.job and asked != managed.job:
            if isinstance(managed.phase, WITH_POLICY):
                managed.history = job_history(self.scheduler.withdraw(managed.job_id, now))
            managed.job = asked
            if isinstance(managed.phase, WITH_POLICY):
                self._submit(managed, now)
            self.changed.add(managed.job_id)

    def owe(self, managed: ManagedJob, owed: Owed) -> None:
        """Slurm is to be told this, or has been seen to have followed."""
        if owed is not managed.owed:
            managed.owed = owed
            self.changed.add(managed.job_id)

    def note_submission(self, managed: ManagedJob, submit_s: float, restarts: int) -> None:
        """Slurm gives a job this submission, and has requeued it so often."""
        if (managed.submit_s, managed.restarts) != (submit_s, restarts):
            managed.submit_s, managed.restarts = submit_s, restarts
            self.changed.add(managed.job_id)

    def note_requeued_held(self, managed: ManagedJob) -> None:
        """Somebody has requeued a job to be held: it waits until it is released."""
        managed.requeued_held = True
        self.changed.add(managed.job_id)

    def note_request(self, managed: ManagedJob, request: Request, size: tuple[int, int]) -> None:
        """A waiting job asks for this, with so many nodes and tasks."""
        if size != (managed.min_nodes, managed.tasks) or request != managed.request:
            managed.min_nodes, managed.tasks = size
            if request.held and not managed.request.held:  # by job_submit.lua, which tells its end, too
                managed.requeued_held = False
            managed.request = replace(request, tag=request.tag or managed.request.tag)
            self.changed.add(managed.job_id)

    def note_own_limit(self, managed: ManagedJob) -> None:
        """The time limit of a job is its own, not one that Dally gave it."""
        if managed.limit_s is not None:
            managed.limit_s = None
            self.changed.add(managed.job_id)

    def begin_switch_wait(self, managed: ManagedJob, now: float) -> None:
        """A job waits for nodes: so long as its user said, only for those of few switches."""
        if managed.request.switches and managed.switches_since_s is None:
            managed.switches_since_s = now
            self.changed.add(managed.job_id)

    def note_refusals(self, managed: ManagedJob, refusals: Refusals) -> None:
        """This has kept a job from starting."""
        if refusals != managed.refusals:
            managed.refusals = refusals
            self.changed.add(managed.job_id)

    def note_left_nodes(self, managed: ManagedJob, left_s: float) -> None:
        """A job leaves its nodes, or will have left them then."""
        managed.left_nodes, managed.left_s = tuple(managed.gpus), left_s
        self.changed.add(managed.job_id)

    def _enter(self, managed: ManagedJob, event: JobEvent, record: AnyPhase) -> None:
        """A job enters a phase, or changes within it; what belonged to the phase before is forgotten."""
        after = next_phase(managed.phase.name, event)
        assert record.name is after, f"{event} leads to {after}, not to {record.name}"
        managed.phase = record
        self.changed.add(managed.job_id)

    def _submit(self, managed: ManagedJob, now: float) -> None:
        """Tell the policy of a waiting job, in the place that it had, if it had one."""
        state = self.scheduler.submit(managed.job, now, managed.history, managed.order)
        if state.order != managed.order:
            managed.order = state.order
            self.changed.add(managed.job_id)

    def _withdraw(self, managed: ManagedJob, now: float) -> None:
        """Take a job out of the policy's queue, if it is there."""
        if isinstance(managed.phase, PendingPhase | StartingPhase):
            managed.history = job_history(self.scheduler.withdraw(managed.job_id, now))

    def _run(
        self, managed: ManagedJob, allocation: Allocation, since_s: float, speed: float, slurm_start_s: float
    ) -> tuple[JobState, RunInterval]:
        """The policy sees a job start."""
        state = self.scheduler.start(managed.job_id, allocation, since_s, speed)
        return state, RunInterval(state.since_s, state.ready_s, state.speed, slurm_start_s)

    def _allocation(self, gpus: Mapping[str, int]) -> Allocation:
        """GPUs by machine index; KeyError if a node is not in the cluster file."""
        return tuple(sorted((self._machines[node], count) for node, count in gpus.items()))


def job_history(state: JobState) -> JobHistory:
    """What happened to a job before the wait it is in; the fields are the same."""
    assert state.phase is not Phase.RUNNING, "a running job's history ends with its run"
    return JobHistory(**{each.name: getattr(state, each.name) for each in fields(JobHistory)})
