"""What the controller knows of a job beyond what Slurm shows; plain data, as the journal keeps it."""

import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from math import inf
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from dally.jobs.job import CHECKPOINTED, Job
from dally.jobs.progress import to_progress
from dally.scheduling.recording.plain import job_data, to_job
from dally.state import JobHistory
from slurm_plugin.client.slurm import SlurmJob, State
from slurm_plugin.request import Request


class JobPhase(StrEnum):
    """Where a job is between Slurm and the policy; operators see these words.

    INELIGIBLE waits for something other than GPUs, and the policy does not know it; PENDING is held in Slurm
    and in the policy's queue; STARTING was released onto nodes and has not been seen running; RUNNING runs;
    STOPPING runs and was asked to write its checkpoint; RELEASED is Slurm's own to schedule.
    """

    INELIGIBLE = "ineligible"
    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    RELEASED = "released"


NEW = "new"
"""The reason of an ineligible job that was not examined yet."""

WITH_POLICY = (JobPhase.PENDING, JobPhase.STARTING, JobPhase.RUNNING, JobPhase.STOPPING)
ON_GPUS = (JobPhase.RUNNING, JobPhase.STOPPING)


@dataclass(slots=True)
class RunInterval:
    """The run since the last start, in the fields of `JobState`; `slurm_start_s` is Slurm's start time."""

    since_s: float
    ready_s: float
    speed: float
    slurm_start_s: float


@dataclass(slots=True)
class ManagedJob:
    """One job that asks for Dally.

    Attributes:
        job: What policies see.
        request: What its user told Dally.
        phase: See `JobPhase`.
        reason: Why it is ineligible or released, or what the last decision for it said, in words.
        since_s: When the phase began, on the controller's clock.
        until_s: End of a back-off, of a checkpoint's grace, or of the time to start; inf if there is none.
        level: While it is pending: the level of placement that it insists on until then; empty if none.
        gpus: GPUs by node: those it is to start on, or holds.
        history: What happened before its current wait or run.
        interval: The run it is in.
        refusals: Failed starts in a row.
        refused: Why Slurm last did not start it, since it ran or was changed; empty if it was not refused.
        refused_as: What it asked for then.
        refused_nodes: Nodes on which it did not start; it tries others first.
        left_nodes: Nodes of its previous run, which it must not get back at once.
        left_s: When it left them; in the future where Slurm forgot the run and the nodes have yet to end it.
        submit_s: Its submission as Slurm last gave it.
        restarts: How often Slurm had requeued it when last seen.
        min_nodes: Fewest nodes it asks for; once it was placed, Slurm shows how many it was given.
        tasks: Its tasks on these.
        preempted_for: Jobs that it is stopped for.
        migrating: It is stopped to start elsewhere.
        resizing: It is stopped to go on with more or fewer GPUs.
        person_held: Its user or an administrator held it when last seen: released, it is Dally's again.
        user_released: Its user released it: the hold that its comment still speaks of is over.
        releasing: It is to be released to Slurm, and Slurm has not shown it released yet.
        placed_once: Dally released it onto nodes once: its node list and begin time may be of Dally's making.
        rehold: It is to be held again, and Slurm has not shown it held yet.
        signalled: It has been sent its checkpoint signal.
        declined: Why a decision for it was last not carried out; empty if none was, since it last ran.
        limit_s: The time limit that it has, or is to have, by Dally; None: as it was submitted.
    """

    job: Job
    request: Request
    phase: JobPhase
    reason: str
    since_s: float
    until_s: float = inf
    level: str = ""
    gpus: dict[str, int] = field(default_factory=dict)
    history: JobHistory = field(default_factory=lambda: JobHistory(0.0))
    interval: RunInterval | None = None
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
    preempted_for: tuple[str, ...] = ()
    migrating: bool = False
    resizing: bool = False
    person_held: bool = False
    user_released: bool = False
    releasing: bool = False
    placed_once: bool = False
    rehold: bool = False
    signalled: bool = False
    declined: str = ""
    limit_s: float | None = None

    @property
    def job_id(self) -> str:
        """The job's number."""
        return self.job.job_id

    @property
    def stops_to_migrate(self) -> bool:
        """Whether it writes its checkpoint to go on elsewhere."""
        return self.phase is JobPhase.STOPPING and self.migrating

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
    if managed.phase is not JobPhase.STOPPING:
        return False
    name = managed.request.signal
    return asks_for_requeue(job) or (bool(name) and _failed_with(128 + signal.Signals[f"SIG{name}"], job))


def asks_for_requeue(job: SlurmJob) -> bool:
    """Whether a job has ended by itself with its checkpoint written; nobody cancelled it."""
    return _failed_with(CHECKPOINTED, job)


def _failed_with(code: int, job: SlurmJob) -> bool:
    return job.state is State.ENDED and job.state_name == "FAILED" and job.exit_code == code


# To the journal and back.

_LATEST_S = 1e12
"""No time or span of a sound journal is longer: some thirty thousand years."""

_FIELDS_OF_SCHEMA_1 = {
    "standing": "phase",
    "why": "reason",
    "past": "history",
    "stretch": "interval",
    "by": "preempted_for",
    "moving": "migrating",
    "unheld": "user_released",
    "handed_back": "releasing",
    "released": "placed_once",
    "hold_back": "rehold",
}
_PHASES_OF_SCHEMA_1 = {
    "aside": JobPhase.INELIGIBLE,
    "waiting": JobPhase.PENDING,
    "left": JobPhase.RELEASED,
}


def from_schema_1(data: Mapping[str, Any]) -> dict[str, Any]:
    """A job of a journal of schema 1 (Dally 0.1), in today's names."""
    renamed = {_FIELDS_OF_SCHEMA_1.get(name, name): value for name, value in data.items()}
    renamed["phase"] = _PHASES_OF_SCHEMA_1.get(renamed["phase"], renamed["phase"])
    return renamed


def job_to_data(managed: ManagedJob) -> dict[str, Any]:
    """A job as plain data; infinite times become None."""
    data = asdict(managed)
    data["job"] = job_data(managed.job)
    return {name: _finite(value) for name, value in data.items()}


def job_from_data(data: Mapping[str, Any]) -> ManagedJob:
    """Take back what `job_to_data` gave.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    history = {name: value for name, value in data["history"].items() if value is not None}
    if "progress" in history:
        history["progress"] = to_progress(history["progress"])
    managed = ManagedJob(
        **{
            **data,
            "job": to_job(data["job"]),
            "request": Request(**data["request"]),
            "phase": JobPhase(data["phase"]),
            "until_s": inf if data["until_s"] is None else data["until_s"],
            "history": JobHistory(**history),
            "interval": None if data["interval"] is None else RunInterval(**data["interval"]),
            "left_nodes": tuple(data["left_nodes"]),
            "refused_nodes": tuple(data.get("refused_nodes", ())),
            "left_s": -inf if data["left_s"] is None else data["left_s"],
            "preempted_for": tuple(data["preempted_for"]),
        }
    )
    if wrong := next(_wrong_types(managed, ""), ""):
        raise ValueError(wrong)
    if (managed.phase in ON_GPUS) != (managed.interval is not None):
        raise ValueError(f"it is {managed.phase}, and its interval is {managed.interval}")
    if managed.interval is not None and not managed.job.runs_on([*managed.gpus.values()]):
        raise ValueError(f"it cannot run on {managed.gpus}")
    return managed


def _wrong_types(record: Any, where: str) -> Iterator[str]:
    """The values of a dataclass of another type than declared: a damaged journal must not reach decisions."""
    hints = _hints(type(record))
    for each in fields(record):
        value, place = getattr(record, each.name), f"{where}{each.name}"
        if not _fits(hints[each.name], value):
            yield f"{place} is {value!r}"
        elif is_dataclass(value):
            yield from _wrong_types(value, f"{place}.")


def _fits(kind: Any, value: object) -> bool:
    parts = get_args(kind)
    if isinstance(kind, UnionType):
        return any(_fits(part, value) for part in parts)
    if isinstance(value, dict):
        return get_origin(kind) is dict and all(
            isinstance(name, str) and isinstance(count, int) and count > 0 for name, count in value.items()
        )
    if isinstance(value, tuple | frozenset) and parts:
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
