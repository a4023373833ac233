"""Managed jobs to the journal's plain data and back, also of the journals that earlier versions wrote."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from math import inf
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from dally.jobs.progress import to_progress
from dally.scheduling.recording.plain import job_data, to_job
from dally.state import JobHistory
from slurm_plugin.controller.managed_job import (
    ON_GPUS,
    AnyPhase,
    IneligiblePhase,
    JobPhase,
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
from slurm_plugin.request import Request

_LATEST_S = 1e12
"""No time or span of a sound journal is longer: some thirty thousand years."""

_RECORDS: Mapping[str, type[AnyPhase]] = {
    each.name: each
    for each in (IneligiblePhase, PendingPhase, StartingPhase, RunningPhase, StoppingPhase, ReleasedPhase)
}


def job_to_data(managed: ManagedJob) -> dict[str, Any]:
    """A job as plain data; infinite times become None."""
    data: dict[str, Any] = _finite(asdict(managed))
    del data["job_id"]  # it is in the job
    data["job"] = job_data(managed.job)
    data["phase"] = {"name": managed.phase.name, **data["phase"]}
    return data


def job_from_data(data: Mapping[str, Any]) -> ManagedJob:
    """Take back what `job_to_data` gave.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    history = {name: value for name, value in data["history"].items() if value is not None}
    if "progress" in history:
        history["progress"] = to_progress(history["progress"])
    refusals, stopped_for = data["refusals"], data["stopped_for"]
    managed = ManagedJob(
        **{
            **data,
            "job": to_job(data["job"]),
            "request": Request(**data["request"]),
            "phase": _to_phase(data["phase"]),
            "history": JobHistory(**history),
            "refusals": Refusals(**{**refusals, "nodes": tuple(refusals["nodes"])}),
            "left_nodes": tuple(data["left_nodes"]),
            "left_s": -inf if data["left_s"] is None else data["left_s"],
            "owed": Owed(data["owed"]),
            "stopped_for": None if stopped_for is None else StopPurpose(stopped_for),
        }
    )
    if wrong := next(_wrong_types(managed, ""), ""):
        raise ValueError(wrong)
    phase = managed.phase
    if isinstance(phase, ON_GPUS) and not managed.job.runs_on([*phase.gpus.values()]):
        raise ValueError(f"it cannot run on {phase.gpus}")
    return managed


def _to_phase(data: Mapping[str, Any]) -> AnyPhase:
    values = {**data, "until_s": inf if data["until_s"] is None else data["until_s"]}
    record = _RECORDS[values.pop("name")]
    if "interval" in values:
        values["interval"] = RunInterval(**values["interval"])
    if "purpose" in values:
        values["purpose"] = StopPurpose(values["purpose"])
        values["preempted_for"] = tuple(values["preempted_for"])
    return record(**values)


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


# What earlier versions wrote.

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

_KEPT_FROM_SCHEMA_2 = (
    *("job", "request", "history", "left_nodes", "left_s", "submit_s", "restarts", "min_nodes", "tasks"),
    *("limit_s", "user_released", "placed_once"),
)


_DEFAULTS_OF_SCHEMA_2: Mapping[str, Any] = {
    **{"until_s": None, "level": "", "gpus": {}, "interval": None, "left_nodes": (), "left_s": None},
    **{"refusals": 0, "refused": "", "refused_as": "", "refused_nodes": (), "declined": "", "limit_s": None},
    **{"submit_s": 0.0, "restarts": 0, "min_nodes": 1, "tasks": 1, "preempted_for": ()},
    **dict.fromkeys(("migrating", "resizing", "person_held", "user_released", "releasing"), False),
    **dict.fromkeys(("placed_once", "rehold", "signalled"), False),
}
"""Of fields that came later."""


def in_todays_form(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A job of any journal as this version would write it: 1 (Dally 0.1) has no phase, 2 only its name.

    Raises:
        AttributeError, KeyError, TypeError: It is no such job.
    """
    if "phase" not in data:
        data = _from_schema_1(data)
    return _from_schema_2(data) if isinstance(data["phase"], str) else data


def _from_schema_1(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields, with other names."""
    renamed = {_FIELDS_OF_SCHEMA_1.get(name, name): value for name, value in data.items()}
    renamed["phase"] = _PHASES_OF_SCHEMA_1.get(renamed["phase"], renamed["phase"])
    return renamed


def _from_schema_2(data: Mapping[str, Any]) -> dict[str, Any]:
    """All fields were kept in every phase; those of other phases said nothing."""
    data = {**_DEFAULTS_OF_SCHEMA_2, **data}
    name, purpose = JobPhase(data["phase"]), StopPurpose.PREEMPT
    if data["migrating"]:
        purpose = StopPurpose.MIGRATE
    if data["resizing"]:
        purpose = StopPurpose.RESIZE
    phase = {"name": name, "since_s": data["since_s"], "reason": data["reason"], "until_s": data["until_s"]}
    own: Mapping[JobPhase, tuple[str, ...]] = {
        JobPhase.PENDING: ("level",),
        JobPhase.STARTING: ("gpus",),
        JobPhase.RUNNING: ("gpus", "interval"),
        JobPhase.STOPPING: ("gpus", "interval", "preempted_for", "signalled"),
    }
    phase |= {field: data[field] for field in own.get(name, ())}
    if name is JobPhase.INELIGIBLE:
        phase["held"] = data["person_held"]
    if name is JobPhase.STOPPING:
        phase["purpose"] = purpose
    owed = Owed.NOTHING
    if name is JobPhase.RELEASED and data["releasing"]:
        owed = Owed.RELEASE
    elif name in (JobPhase.INELIGIBLE, JobPhase.PENDING) and data["rehold"]:
        owed = Owed.REHOLD
    return {
        **{field: data[field] for field in _KEPT_FROM_SCHEMA_2},
        "phase": phase,
        "refusals": {
            "count": data["refusals"],
            "reason": data["refused"],
            "asked": data["refused_as"],
            "nodes": data["refused_nodes"],
            "declined": data["declined"],
        },
        "owed": owed,
        "stopped_for": None if purpose is StopPurpose.PREEMPT or name is JobPhase.STOPPING else purpose,
    }
