"""Facts and plans as plain data for JSON, and back to the last bit; a time that never comes is null."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from math import inf
from typing import Any

from dally.cluster.topology import Allocation
from dally.jobs.job import Job, JobKind
from dally.jobs.progress import to_progress
from dally.jobs.training_plan import TrainingPlan
from dally.plan import Decision, Migrate, Plan, Preempt, Resize, Start, Wait
from dally.state import JobHistory

_JOB_FIELDS = tuple(each for each in fields(Job) if each.init)
_KINDS: Mapping[str, type[Decision]] = {
    kind.__name__.lower(): kind for kind in (Start, Wait, Preempt, Migrate, Resize)
}


def job_data(job: Job) -> dict[str, Any]:
    """A job; what has its default is left out."""
    values = {each.name: (getattr(job, each.name), each.default) for each in _JOB_FIELDS}
    data = {name: value for name, (value, default) in values.items() if value != default}
    if job.machines is not None:
        data["machines"] = sorted(job.machines)
    if job.plan is not None:
        data["plan"] = str(job.plan)
    return data


def to_job(data: Mapping[str, Any]) -> Job:
    """Take back what `job_data` gave."""
    machines = data.get("machines")
    plan = data.get("plan")
    special = {
        "kind": JobKind(data.get("kind", JobKind.RIGID)),
        "machines": None if machines is None else frozenset(machines),
        "plan": None if plan is None else TrainingPlan.parse(plan),
    }
    return Job(**{**data, **special})


def past_data(past: JobHistory) -> dict[str, Any]:
    """What happened to a job before; a first start, and reports, that never were are left out."""
    return {name: value for name, value in asdict(past).items() if value not in (inf, None)}


def to_past(data: Mapping[str, Any]) -> JobHistory:
    """Take back what `past_data` gave."""
    told = data.get("progress")
    return JobHistory(**{**data, "progress": None if told is None else to_progress(told)})


def to_allocation(data: Sequence[Sequence[int]]) -> Allocation:
    """An allocation out of lists."""
    return tuple((machine, gpus) for machine, gpus in data)


def plan_data(plan: Plan) -> dict[str, Any]:
    """A plan."""
    return {
        "wakeup_s": _finite(plan.wakeup_s),
        "decisions": [decision_data(decision) for decision in plan.decisions],
    }


def to_plan(data: Mapping[str, Any]) -> Plan:
    """Take back what `plan_data` gave."""
    return Plan(tuple(map(to_decision, data["decisions"])), _time(data["wakeup_s"]))


def decision_data(decision: Decision) -> dict[str, Any]:
    """A decision, its kind under `do`."""
    values = {each.name: _finite(getattr(decision, each.name)) for each in fields(decision)}
    return {"do": type(decision).__name__.lower(), **values}


def to_decision(data: Mapping[str, Any]) -> Decision:
    """Take back what `decision_data` gave."""
    values = {name: value for name, value in data.items() if name != "do"}
    if "allocation" in values:
        values["allocation"] = to_allocation(values["allocation"])
    if "by" in values:
        values["by"] = tuple(values["by"])
    if "until_s" in values:
        values["until_s"] = _time(values["until_s"])
    return _KINDS[data["do"]](**values)


def _finite(value: Any) -> Any:
    return None if value == inf else value


def _time(value: float | None) -> float:
    return inf if value is None else value
