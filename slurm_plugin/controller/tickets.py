"""What the controller knows of a job beyond what Slurm shows: its ticket, plain data for the journal."""

import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from math import inf
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from dally.jobs.job import CHECKPOINTED, Job, JobKind
from dally.jobs.progress import to_progress
from dally.state import Past
from slurm_plugin.client.slurm import SlurmJob, State
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

_KILLED = 128
"""What a shell, and srun, add to the number of the signal that ended a program."""

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
        refused: Why Slurm last did not start it, since it ran or was changed; empty if it was not refused.
        refused_as: What it asked for then.
        refused_nodes: Nodes on which it did not start, to which it does not go again first.
        left_nodes: Nodes of its previous stretch, which it must not get back at once.
        left_s: When it left them; to come, where Slurm forgot the stretch and the nodes have yet to end it.
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
        declined: Why a decision for it was last not carried out; empty if none was, since it last ran.
        limit_s: The time limit that it has, or is to have, by Dally; None: as it was submitted.
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
    refused: str = ""
    refused_as: str = ""
    refused_nodes: tuple[str, ...] = ()
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
    declined: str = ""
    limit_s: float | None = None

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
    """Whether a job that was asked to stop has ended to be put back: it said so, or that signal ended it."""
    if ticket.standing is not Standing.STOPPING:
        return False
    return wants_back(job) or _was_ended_by(ticket.request.signal, job)


def wants_back(job: SlurmJob) -> bool:
    """Whether a job has ended by itself with its checkpoint written; nobody cancelled it."""
    return _failed_with(CHECKPOINTED, job)


def _was_ended_by(name: str, job: SlurmJob) -> bool:
    """Whether a signal ended a job: nothing handled it in its script, or in what the script ran last."""
    return bool(name) and _failed_with(_KILLED + signal.Signals[f"SIG{name}"], job)


def _failed_with(code: int, job: SlurmJob) -> bool:
    return job.state is State.ENDED and job.state_name == "FAILED" and job.exit_code == code


_LATEST_S = 1e12
"""No time or span of a sound journal is longer: some thirty thousand years."""

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
    if "progress" in past:
        past["progress"] = to_progress(past["progress"])
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
            "refused_nodes": tuple(data.get("refused_nodes", ())),
            "left_s": -inf if data["left_s"] is None else data["left_s"],
            "by": tuple(data["by"]),
        }
    )
    if wrong := next(_wrong(ticket, ""), ""):
        raise ValueError(wrong)
    if (ticket.standing in ON_GPUS) != (ticket.stretch is not None):
        raise ValueError(f"it is {ticket.standing}, and its stretch is {ticket.stretch}")
    if ticket.stretch is not None and not ticket.job.runs_on([*ticket.gpus.values()]):
        raise ValueError(f"it cannot run on {ticket.gpus}")
    return ticket


def _wrong(record: Any, where: str) -> Iterator[str]:
    """What of a dataclass is of another type than it says: a damaged journal must not reach decisions."""
    hints = _hints(type(record))
    for each in fields(record):
        value, place = getattr(record, each.name), f"{where}{each.name}"
        if not _fits(hints[each.name], value):
            yield f"{place} is {value!r}"
        elif is_dataclass(value):
            yield from _wrong(value, f"{place}.")


def _fits(kind: Any, value: object) -> bool:
    parts = get_args(kind)
    if isinstance(kind, UnionType):
        return any(_fits(part, value) for part in parts)
    if isinstance(value, dict):
        return get_origin(kind) is dict and all(
            isinstance(name, str) and isinstance(count, int) and count > 0 for name, count in value.items()
        )
    if isinstance(value, tuple) and parts:
        return all(isinstance(each, parts[0]) for each in value)
    if isinstance(value, bool) or kind is bool:
        return kind is bool and isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float) and (abs(value) < _LATEST_S or abs(value) == inf)
    return isinstance(value, get_origin(kind) or kind)


_hints: Callable[[type], dict[str, Any]] = cache(get_type_hints)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return None if value in (inf, -inf) else value
