"""What the controller knows of a job beyond what Slurm shows: its ticket, plain data for the journal."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from math import inf
from typing import Any

from dally.job import CHECKPOINTED, Job, JobKind
from dally.state import Past
from slurm_plugin.access.slurm import SlurmJob, State
from slurm_plugin.request import Request


class Standing(StrEnum):
    """Where a job stands between Slurm and the policy.

    ASIDE waits for something that is not Dally's to give, and the policy does not know it; WAITING is held
    and in the policy's queue; STARTING was released onto nodes and has not been seen running; RUNNING runs;
    STOPPING runs and was asked to write its checkpoint; LEFT is Slurm's own to schedule.
    """

    ASIDE = "aside"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    LEFT = "left"


NEW = "new"
"""Why a job is aside that was not looked at yet."""

WITH_POLICY = (Standing.WAITING, Standing.STARTING, Standing.RUNNING, Standing.STOPPING)
ON_GPUS = (Standing.RUNNING, Standing.STOPPING)


@dataclass(slots=True)
class Stretch:
    """One stretch of running, in the fields of `JobState`; `slurm_start_s` is when Slurm says it began."""

    since_s: float
    ready_s: float
    speed: float
    slurm_start_s: float


@dataclass(slots=True)
class Ticket:
    """One job of Dally's.

    Attributes:
        job: What policies see.
        request: What its user told Dally.
        standing: Where it stands.
        why: Why it is aside or left, or what the last decision said, in words.
        since_s: Since when it stands there, on the controller's clock.
        until_s: End of a back-off, of a checkpoint's grace, or of the time to start; inf if there is none.
        level: Level of placement that it insists on until then, while it waits; empty if nothing was decided.
        gpus: GPUs by node: those it is to start on, or holds.
        past: What happened before its current wait or stretch.
        stretch: The stretch it runs in.
        refusals: Starts in a row that came to nothing.
        left_nodes: Nodes of its previous stretch, which it must not get back at once.
        left_s: When it left them.
        submit_s: Its submission as Slurm last gave it.
        restarts: How often Slurm had requeued it when last seen.
        min_nodes: Fewest nodes it asks for; once it was released, Slurm shows how many it was given.
        tasks: Its tasks on these.
        by: Jobs that it is stopped for.
        moving: It is stopped to start elsewhere.
        resizing: It is stopped to go on with more or fewer GPUs.
        person_held: Its user or an administrator held it when last seen: released, it waits for Dally again.
        unheld: Its user released it: a hold that its comment still speaks of is over.
        handed_back: It is left because Dally cannot place it, and Slurm has not shown it released yet.
        released: Dally released it once: its node list and begin time may be of Dally's making.
        hold_back: It is to be held again, and Slurm has not shown it held yet.
        signalled: It has been sent its checkpoint signal.
    """

    job: Job
    request: Request
    standing: Standing
    why: str
    since_s: float
    until_s: float = inf
    level: str = ""
    gpus: dict[str, int] = field(default_factory=dict)
    past: Past = field(default_factory=lambda: Past(0.0))
    stretch: Stretch | None = None
    refusals: int = 0
    left_nodes: tuple[str, ...] = ()
    left_s: float = -inf
    submit_s: float = 0.0
    restarts: int = 0
    min_nodes: int = 1
    tasks: int = 1
    by: tuple[str, ...] = ()
    moving: bool = False
    resizing: bool = False
    person_held: bool = False
    unheld: bool = False
    handed_back: bool = False
    released: bool = False
    hold_back: bool = False
    signalled: bool = False

    @property
    def job_id(self) -> str:
        """The job's number."""
        return self.job.job_id

    @property
    def leaves_to_move(self) -> bool:
        """Whether it writes its checkpoint to go on elsewhere."""
        return self.standing is Standing.STOPPING and self.moving

    def same_as(self, job: SlurmJob, tag: str) -> bool:
        """Whether a job with this number is the same job: Slurm may have given the number a second time.

        A requeue counts as a new submission. Its user may have changed the comment, and so the tag.
        """
        if job.submit_s == self.submit_s:
            return True
        if tag and self.request.tag:
            return tag == self.request.tag
        return job.restarts > self.restarts


def checkpointed(ticket: Ticket, job: SlurmJob) -> bool:
    """Whether a job that was asked to stop has ended to be put back."""
    return ticket.standing is Standing.STOPPING and wants_back(job)


def wants_back(job: SlurmJob) -> bool:
    """Whether a job has ended by itself with its checkpoint written; nobody cancelled it."""
    return job.state is State.ENDED and job.exit_code == CHECKPOINTED and job.state_name == "FAILED"


_JOB_FIELDS = tuple(each.name for each in fields(Job) if each.init)


def to_data(ticket: Ticket) -> dict[str, Any]:
    """A ticket as plain data; infinite times become None."""
    data = asdict(ticket)
    data["job"] = {name: data["job"][name] for name in _JOB_FIELDS}
    return {name: _finite(value) for name, value in data.items()}


def from_data(data: Mapping[str, Any]) -> Ticket:
    """Take back what `to_data` gave.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    past = {name: value for name, value in data["past"].items() if value is not None}
    ticket = Ticket(
        **{
            **data,
            "job": Job(**{**data["job"], "kind": JobKind(data["job"]["kind"])}),
            "request": Request(**data["request"]),
            "standing": Standing(data["standing"]),
            "until_s": inf if data["until_s"] is None else data["until_s"],
            "past": Past(**past),
            "stretch": None if data["stretch"] is None else Stretch(**data["stretch"]),
            "left_nodes": tuple(data["left_nodes"]),
            "left_s": -inf if data["left_s"] is None else data["left_s"],
            "by": tuple(data["by"]),
        }
    )
    if (ticket.standing in ON_GPUS) != (ticket.stretch is not None):
        raise ValueError(f"it is {ticket.standing}, and its stretch is {ticket.stretch}")
    return ticket


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return None if value in (inf, -inf) else value
