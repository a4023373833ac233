"""The state of a cluster and its jobs, kept up to date event by event in both worlds."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import inf

from dally.cluster.free import FreeGpus, placed
from dally.cluster.idle_cluster import IdleCluster
from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Gang, Job, JobKind
from dally.jobs.knowledge import EXACTLY, Known
from dally.jobs.progress import ReportedProgress
from dally.plan import Decision
from dally.profiles.costs import CostModel


class Phase(StrEnum):
    """Where a job is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class JobHistory:
    """What happened to a waiting job before anybody watched; the fields are those of `JobState`."""

    origin_s: float
    first_start_s: float = inf
    work_before_s: float = 0.0
    run_before_s: float = 0.0
    training_before_s: float = 0.0
    preemptions: int = 0
    more_before_s: float = 0.0
    progress: ReportedProgress | None = None
    priority: float = 0.0


@dataclass(slots=True, eq=False)
class JobState:
    """One job and what has happened to it so far. Times are in seconds, on the clock of its world.

    Attributes:
        job: What was asked for.
        order: Place in the order of arrival; breaks ties.
        origin_s: When the current wait began: the arrival, or the end of the last stretch of running.
        phase: Waiting, running or done.
        allocation: The GPUs held; empty unless running.
        level: The lowest level at which one domain holds them.
        since_s: Start of the current stretch of running.
        ready_s: When the stretch began to make progress, after its start or restart.
        paced_s: When it began to do so at the present speed: `ready_s`, until others changed it.
        speed: Ideal seconds of work done per second, 1 at the best placement; that of all copies if forked.
        work_paced_s: Ideal seconds of work done in this stretch before `paced_s`.
        first_start_s: Start of the first stretch; inf if it never ran.
        work_before_s: Ideal seconds of work done in earlier stretches, as checkpointed.
        run_before_s: Seconds of holding GPUs in earlier stretches.
        training_before_s: Of these, seconds of making progress, restarts left out.
        preemptions: How often its GPUs were taken, migrations included.
        more_before_s: Seconds of holding GPUs in earlier stretches beyond those asked for, in gangs: of
            copies beyond the first, summed; less than 0 where an elastic job had fewer.
        resizing: It waits only until it goes on on other GPUs, without a checkpoint.
        priority: Its priority in Slurm's sense, more goes first; of a running job that with which it started.
        protected: While it runs, nobody may take its GPUs: no job that waits for the policy has the priority
            to, or one of its machines is closed.
        progress: What it has reported; None if it reports nothing.
        whole_s: Its whole work, ideal seconds: as it reports, else that with which it came.
        believed_s: What its whole work is believed to be, ideal seconds (`dally.scheduling.beliefs`). The
            truth, unless somebody believes otherwise.
        held_s: Up to how much work done that belief holds, ideal seconds.
        expected_s: All that policies see of its length: as it reports, else what is believed.
    """

    job: Job
    order: int
    origin_s: float
    phase: Phase = Phase.WAITING
    allocation: Allocation = ()
    level: int = 0
    since_s: float = inf
    ready_s: float = inf
    paced_s: float = inf
    speed: float = 1.0
    work_paced_s: float = 0.0
    first_start_s: float = inf
    work_before_s: float = 0.0
    run_before_s: float = 0.0
    training_before_s: float = 0.0
    preemptions: int = 0
    more_before_s: float = 0.0
    resizing: bool = False
    priority: float = 0.0
    protected: bool = False
    progress: ReportedProgress | None = None
    whole_s: float = field(init=False)
    believed_s: float = field(init=False)
    held_s: float = inf
    expected_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.whole_s = self.believed_s = self.expected_s = self.job.duration_s
        self._see()

    def believe(self, whole_s: float, held_s: float) -> None:
        """Its whole work is believed to be so much, until it has done `held_s` of it; ideal seconds."""
        self.believed_s = self.expected_s = whole_s
        self.held_s = held_s
        self._see()

    def set_progress(self, progress: ReportedProgress) -> None:
        """It has reported; what it has done, `ClusterState.count_reported` puts right."""
        self.progress = progress
        self._see()

    def _see(self) -> None:
        if self.progress is not None and (told_s := self.progress.whole_s) is not None:
            self.whole_s = self.expected_s = told_s

    @property
    def job_id(self) -> str:
        """The job's name."""
        return self.job.job_id

    @property
    def preemptible(self) -> bool:
        """Whether its GPUs may be taken for others now."""
        return self.job.preemptible and not self.protected

    def work_s(self, now: float) -> float:
        """Ideal seconds of work done by `now`."""
        return self.work_before_s + self.work_paced_s + max(0.0, now - self.paced_s) * self.speed

    def run_s(self, now: float) -> float:
        """Seconds of holding GPUs by `now`, queueing left out."""
        return self.run_before_s + max(0.0, now - self.since_s)

    @property
    def copies(self) -> int:
        """How many copies run: machines held if it is forked, else one gang; 0 if it does not run."""
        return len(self.allocation) if self.job.kind is JobKind.FORKED else min(1, len(self.allocation))

    def more_s(self, now: float) -> float:
        """Seconds of holding GPUs by `now` beyond those asked for, in gangs; 0 if it is rigid.

        Those of the copies beyond the first, summed, if it is forked; less than 0 if elastic and smaller.
        """
        if self.job.kind is JobKind.RIGID or not self.allocation:
            return self.more_before_s
        held = sum(gpus for _, gpus in self.allocation)
        return self.more_before_s + (held / self.job.gpus - 1) * max(0.0, now - self.since_s)

    def attained_s(self, now: float) -> float:
        """Attained service by `now`, in GPU-seconds; those of all GPUs held."""
        return self.job.gpus * (self.run_s(now) + self.more_s(now))

    def done(self, now: float) -> float:
        """How much of its work is really done by `now`, 0 to 1: the phase that its training is in."""
        return min(1.0, self.work_s(now) / self.whole_s)

    def remaining_s(self, now: float) -> float:
        """Ideal seconds of work left at `now`, as is believed."""
        return max(0.0, self.expected_s - self.work_s(now))

    def end_s(self) -> float:
        """When a running job will have done its work, as is believed, if its speed stays."""
        return self.worked_s(self.expected_s)

    def done_s(self, part: float) -> float:
        """When a running job will really have done such a part, 0 to 1, of its work, if its speed stays."""
        return self.worked_s(part * self.whole_s)

    def worked_s(self, work_s: float) -> float:
        """When a running job will have done so many ideal seconds of work, if its speed stays."""
        return self.paced_s + (work_s - self.work_before_s - self.work_paced_s) / self.speed

    def training_s(self, now: float) -> float:
        """Seconds of making progress by `now`, queueing and restarts left out."""
        return self.training_before_s + max(0.0, now - self.ready_s)

    def network_sensitivity(self, now: float) -> float:
        """Nw_sens = work done / (T_run / T_ideal): 0 if it never ran, 1 if the network never slowed it.

        Work done is the fraction of the ideal time, so T_ideal cancels: ideal seconds done per second of
        training. Rounded to six places, so that equal jobs are equal whatever stretches they ran in.
        Source: arXiv 2401.16492.
        """
        training_s = self.training_s(now)
        return round(self.work_s(now) / training_s, 6) if training_s > 0 else 0.0


@dataclass(slots=True)
class ClusterState:
    """The cluster and its jobs as they are; both worlds keep it up to date event by event.

    Attributes:
        topology: The cluster.
        costs: Predicts speed and restart cost, as schedulers believe; running jobs have their true speed.
        knows: What schedulers know of how long jobs take, and how wrong their profiles are.
        priority_ratio: A job may be overtaken only by jobs of at least so much of its priority; 0: by all.
        free: Free GPUs; those of machines that are down are not free.
        jobs: Every job not yet done, by name.
        waiting: Names of the waiting jobs, in order of arrival in the queue (a dict as an ordered set). Those
            that were stopped arrive anew, until a restart: policies break ties by `order`.
        behind: Names of the waiting jobs that no policy is asked about, for their priority is too low.
        running: Names of the running jobs, in order of their start.
        unexplained: Names of the waiting jobs for whose wait no reason is on record yet, in the order in
            which they began to wait.
        withheld: GPUs that jobs cannot have though none of ours holds them, by machine: of machines that are
            down, or in others' hands.
        closed: Machines of which no GPU comes free, whoever of ours ends: down, draining or reserved.
    """

    topology: Topology
    costs: CostModel
    knows: Known = EXACTLY
    priority_ratio: float = 0.0
    free: FreeGpus = field(init=False)
    jobs: dict[str, JobState] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)
    behind: dict[str, None] = field(default_factory=dict)
    running: dict[str, None] = field(default_factory=dict)
    unexplained: dict[str, None] = field(default_factory=dict)
    withheld: dict[int, int] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    arrivals: int = 0
    _open: IdleCluster | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.free = FreeGpus(self.topology)

    def shares_links(self, job: JobState) -> bool:
        """Whether another running job's traffic leaves a machine or domain by a link that this one's does."""
        own = self.topology.crossed(job.allocation)
        others = (self.jobs[job_id] for job_id in self.running if job_id != job.job_id)
        return bool(own) and any(own & self.topology.crossed(other.allocation) for other in others)

    def submit(
        self, job: Job, now: float, past: JobHistory | None = None, order: int | None = None
    ) -> JobState:
        """A job arrives and waits, or waits on if it has a past, perhaps in the place that it had before."""
        if job.job_id in self.jobs:
            raise AssertionError(f"job {job.job_id} is here already")
        before = {} if past is None else {each.name: getattr(past, each.name) for each in fields(past)}
        order = self.arrivals if order is None else order
        self.arrivals = max(self.arrivals, order + 1)
        state = JobState(job, order, **{"origin_s": now, **before})
        self.jobs[job.job_id] = state
        self.waiting[job.job_id] = self.unexplained[job.job_id] = None
        return state

    def start(
        self, job_id: str, allocation: Allocation, now: float, restart_s: float, speed: float
    ) -> JobState:
        """A waiting job takes its whole gang of GPUs, or those of its copies; it works after `restart_s`."""
        state = self.jobs[job_id]
        allocation = placed(state.job.gang, allocation)
        shares = [gpus for _, gpus in allocation]
        if state.phase is not Phase.WAITING or not state.job.runs_on(shares):
            raise AssertionError(f"job {job_id} is {state.phase} and cannot start on {shares} GPUs")
        self.free.take(allocation)
        del self.waiting[job_id]
        self.unexplained.pop(job_id, None)
        self.running[job_id] = None
        state.phase, state.allocation = Phase.RUNNING, allocation
        state.level = self.topology.level_of(allocation)
        state.since_s, state.ready_s, state.speed = now, now + restart_s, speed
        state.paced_s, state.work_paced_s = state.ready_s, 0.0
        state.first_start_s = min(state.first_start_s, now)
        state.resizing = False
        return state

    def repace(self, job_id: str, now: float, speed: float) -> JobState:
        """A running job goes on at another speed; what it has done stays done."""
        state = self.jobs[job_id]
        if state.phase is not Phase.RUNNING:
            raise AssertionError(f"job {job_id} is {state.phase}, not running")
        if now > state.paced_s:
            state.work_paced_s += (now - state.paced_s) * state.speed
            state.paced_s = now
        state.speed = speed
        return state

    def count_reported(self, job_id: str) -> None:
        """What a running job has done is what it reported in this stretch, and what it did since then."""
        state = self.jobs[job_id]
        told = state.progress
        if told is None or told.since_s != state.since_s or (work_s := told.work_s) is None:
            return
        state.work_before_s, state.work_paced_s = work_s, 0.0
        state.ready_s, state.paced_s = min(told.heard_s, state.ready_s), told.heard_s

    def stop(self, job_id: str, now: float, kept_work_s: float) -> JobState:
        """A running job loses its GPUs and waits again with `kept_work_s` of its work done."""
        state = self._release(job_id, now)
        state.work_before_s = kept_work_s
        state.phase, state.origin_s = Phase.WAITING, now
        self.waiting[job_id] = self.unexplained[job_id] = None
        return state

    def finish(self, job_id: str, now: float) -> JobState:
        """A running job ends and leaves."""
        state = self._release(job_id, now)
        state.phase, state.work_before_s = Phase.DONE, state.whole_s
        del self.jobs[job_id]
        return state

    def _release(self, job_id: str, now: float) -> JobState:
        state = self.jobs[job_id]
        if state.phase is not Phase.RUNNING:
            raise AssertionError(f"job {job_id} is {state.phase}, not running")
        del self.running[job_id]
        self.free.give(state.allocation)
        state.more_before_s = state.more_s(now)
        state.run_before_s, state.training_before_s = state.run_s(now), state.training_s(now)
        state.allocation, state.since_s, state.ready_s = (), inf, inf
        state.protected = False
        state.paced_s, state.work_paced_s = inf, 0.0
        return state

    def withdraw(self, job_id: str) -> JobState:
        """A waiting job leaves."""
        if job_id not in self.waiting:
            raise AssertionError(f"job {job_id} is {self.jobs[job_id].phase}, not waiting")
        del self.waiting[job_id]
        self.unexplained.pop(job_id, None)
        return self.jobs.pop(job_id)

    def set_behind(self, job_id: str) -> None:
        """A waiting job is out of the policy's hands until those before it have what they want."""
        del self.waiting[job_id]
        self.behind[job_id] = None
        self.explain_again(job_id)

    def bring_forward(self, job_id: str) -> None:
        """A job that was behind is in the policy's hands again."""
        del self.behind[job_id]
        self.waiting[job_id] = None
        self.explain_again(job_id)

    def to_explain(self, decided: Iterable[Decision] = ()) -> Iterator[JobState]:
        """The waiting jobs whose wait a plan has to explain, but for those that it decides about."""
        known = {decision.job_id for decision in decided}
        return (
            self.jobs[job_id]
            for job_id in self.unexplained
            if job_id not in known and job_id not in self.behind
        )

    def explain_again(self, job_id: str) -> None:
        """A waiting job waits for another reason than the one on record."""
        self.unexplained.pop(job_id, None)
        self.unexplained[job_id] = None

    def withhold(self, machine: int, gpus: int, closed: bool = False) -> None:
        """Jobs cannot have so many GPUs of a machine beside those that our jobs hold; 0: all again.

        Args:
            machine: Which.
            gpus: So many.
            closed: No other of its GPUs comes free for a job either.
        """
        if closed != (machine in self.closed):
            self.closed ^= {machine}
            self._open = None
        self.free.withhold(machine, gpus, closed)
        self.withheld.pop(machine, None)
        if gpus:
            self.withheld[machine] = gpus

    def best_level(self, gang: Gang) -> int:
        """The lowest level at which one domain of the idle cluster holds such a gang."""
        return self.costs.best_level(gang)

    def best_open_level(self, gang: Gang) -> int:
        """The lowest such level without the machines that are closed, unless the rest is too small for it."""
        if not self.closed:
            return self.best_level(gang)
        self._open = self._open or IdleCluster(self.topology, self.closed)
        level = self._open.lowest_level(gang)
        return self.best_level(gang) if level is None else level
