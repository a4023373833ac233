"""Changes of a managed job that the policy's state must share: both are told, or neither."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from math import inf

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
    JobPhase,
    ManagedJob,
    RunInterval,
)

Log = Callable[..., None]
"""Records an event: `log(now, event, **fields)`."""


class JobTransitions:
    """Managed jobs, and the same jobs in the policy's state.

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

    def take_up(self, managed: ManagedJob, now: float) -> str:
        """Tell the policy of a job that waits or runs since before it was built; why not, if it cannot be."""
        try:
            allocation = self._allocation(managed.gpus)
            self._state.best_level(managed.job.gang)
        except (CapacityError, KeyError):
            return "the cluster has changed and cannot hold it"
        run = managed.interval
        if run is not None and not self._state.free.holds(allocation):
            return "the cluster has changed; it runs on as it is"
        self.scheduler.submit(managed.job, now, managed.history)
        if run is not None:
            self.scheduler.resume(managed.job_id, allocation, run.since_s, run.ready_s, now, run.speed)
        return ""

    def queue(self, managed: ManagedJob, now: float) -> None:
        """Put a job into the policy's queue, if it is not there: nothing but a placement is missing."""
        if managed.phase is JobPhase.PENDING:
            return
        if managed.until_s == inf and managed.reason != NEW:  # what it waited for was not a placement
            managed.history = replace(managed.history, origin_s=now)
        self.scheduler.submit(managed.job, now, managed.history)
        self.move(managed, JobPhase.PENDING, now, "in the queue")

    def set_ineligible(self, managed: ManagedJob, now: float, why: str, until_s: float = inf) -> None:
        """Take a job out of the policy's queue until something changes."""
        if managed.phase in (JobPhase.PENDING, JobPhase.STARTING):
            managed.history = job_history(self.scheduler.withdraw(managed.job_id, now))
        self.move(managed, JobPhase.INELIGIBLE, now, why)
        managed.until_s = until_s

    def end(self, managed: ManagedJob, now: float, how: str) -> None:
        """Forget a job, whatever it was doing."""
        if managed.phase in ON_GPUS:
            self.scheduler.finish(managed.job_id, now)
        elif managed.phase in WITH_POLICY:
            self.scheduler.withdraw(managed.job_id, now)
        del self.managed_jobs[managed.job_id]
        self.changed.discard(managed.job_id)
        self.gone.add(managed.job_id)
        self._log(now, "end", job=managed.job_id, status=how)

    def stop(self, managed: ManagedJob, now: float) -> None:
        """A job lost its GPUs, as it was to or not, and waits again."""
        state = self._state.jobs[managed.job_id]
        if managed.phase is JobPhase.STOPPING and state.job.preemptible:
            self.scheduler.preempt(managed.job_id, now)
        else:
            self.scheduler.fail(managed.job_id, now, state.work_s(now))
        managed.job, managed.history = state.job, job_history(state)
        self.move(managed, JobPhase.PENDING, now, managed.reason)

    def resize(self, managed: ManagedJob, now: float) -> None:
        """A job goes on on other GPUs, which `run` is told next."""
        if managed.job.preemptible:
            state = self.scheduler.preempt(managed.job_id, now, resized=True)
        else:
            work_s = self._state.jobs[managed.job_id].work_s(now)
            state = self.scheduler.fail(managed.job_id, now, work_s)
        managed.history = job_history(state)
        self.move(managed, JobPhase.PENDING, now, managed.reason)

    def report_progress(self, managed: ManagedJob, report: ProgressReport, now: float) -> None:
        """A running job reported how far it is."""
        state = self.scheduler.report_progress(managed.job_id, report, now)
        assert managed.interval is not None, "it runs"
        managed.interval.speed, managed.interval.ready_s = state.speed, state.ready_s
        managed.history = replace(managed.history, progress=state.progress)
        self.changed.add(managed.job_id)

    def protect(self, managed: ManagedJob) -> None:
        """A waiting job is not to be stopped again, once it runs."""
        managed.job = self.scheduler.protect(managed.job_id)

    def carry_on(self, managed: ManagedJob, now: float, why: str) -> None:
        """A stopping job runs on where it is, and is not to be stopped: the policy sees a new run."""
        state = self._state.jobs[managed.job_id]
        assert managed.interval is not None, "it runs"
        start_s, allocation = managed.interval.slurm_start_s, state.allocation
        speed, gpus = state.speed, managed.gpus
        managed.phase = JobPhase.RUNNING
        self.stop(managed, now)
        self.protect(managed)
        managed.gpus, managed.migrating, managed.resizing = gpus, False, False
        self.run(managed, allocation, now, speed, start_s)
        self.move(managed, JobPhase.RUNNING, now, why)

    def fit(self, managed: ManagedJob, gpus: Mapping[str, int], now: float) -> Allocation | None:
        """Return the allocation of a job that holds these GPUs; None if they are not Dally's to give.

        Whatever it seemed to ask for, it becomes a job that asks for what Slurm gave it.
        """
        asked = managed.job
        try:
            if not asked.runs_on([*gpus.values()]):
                asked = replace(asked, gpus=sum(gpus.values()), gpus_per_machine=None, gpu_type=None)
                asked = replace(asked, kind=JobKind.RIGID, min_gpus=None, max_gpus=None, max_copies=1)
            allocation = self._allocation(gpus)
            self._state.best_level(asked.gang)
        except (KeyError, DallyError):
            return None
        for machine, _ in allocation:
            self.scheduler.withhold(machine, 0)
        if not self._state.free.holds(allocation):
            return None
        self.become(managed, asked, now)
        return allocation

    def run(
        self, managed: ManagedJob, allocation: Allocation, since_s: float, speed: float, slurm_start_s: float
    ) -> JobState:
        """The policy sees a job start."""
        state = self.scheduler.start(managed.job_id, allocation, since_s, speed)
        managed.interval = RunInterval(state.since_s, state.ready_s, state.speed, slurm_start_s)
        return state

    def become(self, managed: ManagedJob, asked: Job, now: float) -> None:
        """A job asks for something else now."""
        if asked != managed.job:
            if managed.phase in WITH_POLICY:
                managed.history = job_history(self.scheduler.withdraw(managed.job_id, now))
                self.scheduler.submit(asked, now, managed.history)
            managed.job = asked
            self.changed.add(managed.job_id)

    def move(self, managed: ManagedJob, phase: JobPhase, now: float, why: str) -> None:
        """A job enters a phase; what belonged to the phase before is forgotten."""
        managed.phase, managed.since_s, managed.reason = phase, now, why
        managed.until_s, managed.level = inf, ""
        if phase not in ON_GPUS:
            managed.interval, managed.gpus = None, {}
        self.changed.add(managed.job_id)

    def _allocation(self, gpus: Mapping[str, int]) -> Allocation:
        """GPUs by machine index; KeyError if a node is not in the cluster file."""
        return tuple(sorted((self._machines[node], count) for node, count in gpus.items()))


def job_history(state: JobState) -> JobHistory:
    """What happened to a job before the wait it is in; the fields are the same."""
    assert state.phase is not Phase.RUNNING, "a running job's history ends with its run"
    return JobHistory(**{each.name: getattr(state, each.name) for each in fields(JobHistory)})
