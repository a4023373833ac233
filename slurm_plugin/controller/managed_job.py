"""What the controller knows of a job beyond what Slurm shows, in any phase and in the one that it is in."""

import signal
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import ClassVar

from dally.jobs.job import CHECKPOINTED, Job
from dally.state import JobHistory
from slurm_plugin.client.slurm import SlurmJob, State, arrival
from slurm_plugin.request import Request


class JobPhase(StrEnum):
    """Where a job is between Slurm and the policy; operators see these words."""

    INELIGIBLE = "ineligible"
    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    RELEASED = "released"


NEW = "new"
"""The reason of an ineligible job that was not examined yet."""


class StopPurpose(StrEnum):
    """What a job is stopped for: others that need its GPUs or its time limit, other GPUs, or another size."""

    PREEMPT = "preempt"
    MIGRATE = "migrate"
    RESIZE = "resize"


class Owed(StrEnum):
    """The order that Slurm has not been seen to follow yet; it is given again until it has."""

    NOTHING = ""
    REHOLD = "rehold"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class RunInterval:
    """The run since the last start, in the fields of `JobState`; `slurm_start_s` is Slurm's start time."""

    since_s: float
    ready_s: float
    speed: float
    slurm_start_s: float


@dataclass(frozen=True, slots=True)
class PhaseRecord:
    """What every phase has.

    Attributes:
        since_s: When it began, on the controller's clock.
        reason: Why the job is in it, or what the last decision for it said, in words.
        until_s: When something comes by itself, as each phase says; inf if nothing does.
    """

    name: ClassVar[JobPhase]
    since_s: float
    reason: str
    until_s: float = field(default=inf, kw_only=True)


@dataclass(frozen=True, slots=True)
class IneligiblePhase(PhaseRecord):
    """It waits for something other than GPUs, until its back-off ends, and the policy does not know it.

    Attributes:
        held: Its user or an administrator holds it: released, it is Dally's again, and not Slurm's.
        accrues: Its wait goes on meanwhile, as its age does in Slurm: nodes, licences or limits are in
            its way. Else it begins when the job is queued.
    """

    name: ClassVar[JobPhase] = JobPhase.INELIGIBLE
    held: bool = False
    accrues: bool = False


@dataclass(frozen=True, slots=True)
class PendingPhase(PhaseRecord):
    """It is held in Slurm and waits in the policy's queue.

    Attributes:
        level: The level of placement that it insists on until then; empty if none.
    """

    name: ClassVar[JobPhase] = JobPhase.PENDING
    level: str = ""


@dataclass(frozen=True, slots=True)
class StartingPhase(PhaseRecord):
    """It was released onto nodes, to be held again if it was not seen running by then.

    Attributes:
        gpus: GPUs by node that it is to have.
    """

    name: ClassVar[JobPhase] = JobPhase.STARTING
    gpus: dict[str, int]


@dataclass(frozen=True, slots=True)
class RunningPhase(PhaseRecord):
    """It runs, to be asked then for its checkpoint, as its time limit comes too early.

    Attributes:
        gpus: GPUs by node that it holds.
        interval: The run it is in.
    """

    name: ClassVar[JobPhase] = JobPhase.RUNNING
    gpus: dict[str, int]
    interval: RunInterval


@dataclass(frozen=True, slots=True)
class StoppingPhase(PhaseRecord):
    """It runs and was asked to write its checkpoint, to be requeued then at the latest.

    Attributes:
        gpus: GPUs by node that it holds.
        interval: The run it is in.
        purpose: What it is stopped for.
        preempted_for: Jobs that it is stopped for.
        signalled: It has been sent its checkpoint signal, or has none; one that may be lost is sent again.
    """

    name: ClassVar[JobPhase] = JobPhase.STOPPING
    gpus: dict[str, int]
    interval: RunInterval
    purpose: StopPurpose
    preempted_for: tuple[str, ...] = ()
    signalled: bool = False


@dataclass(frozen=True, slots=True)
class ReleasedPhase(PhaseRecord):
    """It is Slurm's own to schedule."""

    name: ClassVar[JobPhase] = JobPhase.RELEASED


AnyPhase = IneligiblePhase | PendingPhase | StartingPhase | RunningPhase | StoppingPhase | ReleasedPhase
WITH_POLICY = (PendingPhase, StartingPhase, RunningPhase, StoppingPhase)
WAITS = (IneligiblePhase, PendingPhase)
ON_GPUS = (RunningPhase, StoppingPhase)
_WITH_GPUS = (StartingPhase, *ON_GPUS)


@dataclass(frozen=True, slots=True)
class Refusals:
    """What kept a job from starting, since it last ran or was changed.

    Attributes:
        count: Failed starts in a row.
        reason: Why Slurm last did not start it; empty if it was not refused.
        asked: What it asked for then.
        nodes: Nodes on which it did not start; it tries others first.
        declined: Why a decision for it was last not carried out; empty if none was.
    """

    count: int = 0
    reason: str = ""
    asked: str = ""
    nodes: tuple[str, ...] = ()
    declined: str = ""


@dataclass(slots=True)
class ManagedJob:
    """One job that asks for Dally; only `transitions.JobTransitions` writes to it.

    Attributes:
        job: What policies see.
        request: What its user told Dally.
        phase: Where it is, with all that is true only there.
        history: What happened before its current wait or run.
        refusals: What kept it from starting.
        left_nodes: Nodes of its previous run, which it must not get back at once.
        left_s: When it left them; in the future where Slurm forgot the run and the nodes have yet to end it.
        submit_s: Its submission as Slurm last gave it.
        restarts: How often Slurm had requeued it when last seen.
        min_nodes: Fewest nodes it asks for; once it was placed, Slurm shows how many it was given.
        tasks: Its tasks on these.
        limit_s: The time limit that it has, or is to have, by Dally; None: as it was submitted.
        owed: What Slurm must still be told.
        stopped_for: What it was last stopped for by Dally, until it runs again; None if it was not.
        user_released: Its user released it: the hold that its comment still speaks of is over.
        requeued_held: Somebody requeued it to be held (`scontrol requeuehold`), and nobody has released it.
        ended_as: How it had ended, in Slurm's words, before slurmctld came back with an older state; it is
            then held (`requeued_held`). Empty for all others, and once it is released.
        placed_once: Dally released it onto nodes once: its node list and begin time may be of Dally's making.
        order: Its place in the policy's queue; None before it is first there, and once a person holds it.
        switches_since_s: When it began to wait for its `--switches`, since it last ran; None if it has not.
        job_id: The job's number, which stays. A cycle asks for it a dozen times a job.
    """

    job: Job
    request: Request
    phase: AnyPhase
    history: JobHistory = field(default_factory=lambda: JobHistory(0.0))
    refusals: Refusals = Refusals()
    left_nodes: tuple[str, ...] = ()
    left_s: float = -inf
    submit_s: float = 0.0
    restarts: int = 0
    min_nodes: int = 1
    tasks: int = 1
    limit_s: float | None = None
    owed: Owed = Owed.NOTHING
    stopped_for: StopPurpose | None = None
    user_released: bool = False
    requeued_held: bool = False
    ended_as: str = ""
    placed_once: bool = False
    order: int | None = None
    switches_since_s: float | None = None
    job_id: str = field(init=False)

    def __post_init__(self) -> None:
        self.job_id = self.job.job_id

    @property
    def held_by_person(self) -> bool:
        """Its user or an administrator held it at the last look, or its user since before the first one."""
        return isinstance(self.phase, IneligiblePhase) and (self.phase.held or self.held_by_its_user)

    @property
    def held_by_its_user(self) -> bool:
        """Its user holds it, or whoever requeued it; Slurm shows both as it shows Dally's own holds."""
        return self.requeued_held or (self.request.held and not self.user_released)

    @property
    def arrival(self) -> tuple[float, tuple[int, ...]]:
        """What orders jobs by arrival."""
        return arrival(self.job.submit_s, self.job_id)

    @property
    def reason(self) -> str:
        """Why it is in its phase, in words."""
        return self.phase.reason

    @property
    def gpus(self) -> dict[str, int]:
        """GPUs by node that it is to have, or holds; none in other phases."""
        return self.phase.gpus if isinstance(self.phase, _WITH_GPUS) else {}

    @property
    def stops_to_migrate(self) -> bool:
        """Whether it writes its checkpoint to go on elsewhere, or with more or fewer GPUs."""
        return isinstance(self.phase, StoppingPhase) and self.phase.purpose is not StopPurpose.PREEMPT

    def same_as(self, job: SlurmJob, tag: str) -> bool:
        """Whether a job with this number is the same job: Slurm may have given the number a second time.

        A requeue counts as a new submission. Its user may have changed the comment, and so the tag.
        """
        if job.submit_s == self.submit_s:
            return True
        if tag and self.request.tag:
            return tag == self.request.tag
        return job.restarts > self.restarts


def checkpointed(managed: ManagedJob, job: SlurmJob) -> bool:
    """Whether a job that was asked to stop has ended to be requeued.

    Its exit code says so; or the signal ended it, as nothing handled that in its script, or in what the
    script ran last. A shell, and srun, then add 128 to the number of the signal.
    """
    if not isinstance(managed.phase, StoppingPhase):
        return False
    name = managed.request.signal
    return asks_for_requeue(job) or (bool(name) and _failed_with(128 + signal.Signals[f"SIG{name}"], job))


def asks_for_requeue(job: SlurmJob) -> bool:
    """Whether a job has ended by itself with its checkpoint written; nobody cancelled it."""
    return _failed_with(CHECKPOINTED, job)


def is_to_stay_held(job: SlurmJob) -> bool:
    """Whether whoever requeued a job wants it held: not if its checkpoint is written (RequeueExitHold=85)."""
    has_checkpoint = "SPECIAL_EXIT" in job.state_name and job.exit_code == CHECKPOINTED
    return job.requeued_held and not has_checkpoint


def _failed_with(code: int, job: SlurmJob) -> bool:
    return job.state is State.ENDED and job.state_name == "FAILED" and job.exit_code == code
