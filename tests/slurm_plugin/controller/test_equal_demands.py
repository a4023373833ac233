"""Waiting jobs that ask for the same have one number, and others have others."""

from dataclasses import fields, replace

import pytest

from dally.jobs.job import Job
from slurm_plugin.client.slurm import Hold, SlurmJob, State
from slurm_plugin.controller.equal_demands import EqualDemands
from slurm_plugin.controller.managed_job import ManagedJob, PendingPhase
from slurm_plugin.request import Request

JOB = SlurmJob("1", 5.0, State.PENDING, tres_per_node="gres:gpu:8", min_nodes=2, tres={"node": 2.0})
OTHERS: dict[str, object] = {
    "job_id": "2",
    "state": State.UNKNOWN,
    "hold": Hold.ADMIN,
    "required_nodes": ("n1",),
    "excluded_nodes": ("n1",),
    "nodes": ("n1",),
    "gpus": {"n1": 8},
    "tres": {"node": 3.0},
}
"""Values that are not those of `JOB`, where none can be made from its own."""

ITS_OWN = {
    *("job_id", "submit_s", "job_name", "comment", "admin_comment", "nice", "dependency", "begin_s"),
    *("state", "state_name", "reason", "hold", "requeued_held", "restarts", "requeue", "exit_code"),
    *("start_s", "nodes", "gpus", "array_id", "array_throttle"),
}


def managed(job_id: str = "1", /, **values: object) -> ManagedJob:
    asked = Job(job_id, 5.0, 16, 60.0, gpus_per_machine=8)
    made = ManagedJob(asked, Request(model="resnet50"), PendingPhase(0.0, ""), min_nodes=2)
    for name, value in values.items():
        setattr(made, name, value)
    return made


def other(name: str) -> object:
    value = getattr(JOB, name)
    if name in OTHERS:
        return OTHERS[name]
    if isinstance(value, bool):
        return not value
    return f"{value}x" if isinstance(value, str) else (value or 0) + 1


@pytest.mark.parametrize("name", [each.name for each in fields(SlurmJob)])
def test_all_that_a_job_asks_for_counts_and_nothing_else(name: str) -> None:
    changed = replace(JOB, **{"job_id": "2", name: other(name)})  # type: ignore[arg-type]
    equal_demands = EqualDemands()
    is_same = equal_demands.number(managed(), JOB) == equal_demands.number(managed("2"), changed)
    assert is_same is (name in ITS_OWN)


@pytest.mark.parametrize(
    "values",
    [
        {"request": Request(model="resnet50", nodes="n[1-2]")},
        {"request": Request(model="resnet50", switches=1)},
        {"job": Job("1", 5.0, 16, 60.0, gpus_per_machine=8, machines=frozenset({"n1", "n2"}))},
        {"job": Job("1", 5.0, 16, 60.0, gpus_per_machine=8, time_limit_s=60.0)},
        {"min_nodes": 1, "placed_once": True},
        {"limit_s": 0.0},
    ],
)
def test_a_job_that_comes_to_ask_for_something_else_gets_another_number(values: dict[str, object]) -> None:
    equal_demands, job = (
        EqualDemands(),
        replace(JOB, tres_per_node="", tres_per_job="gres:gpu:16", time_limit_s=0.0),
    )
    before = equal_demands.number(managed(), job)
    assert equal_demands.number(managed("1", **values), job) != before
    assert equal_demands.number(managed(), job) == before


def test_what_is_known_of_jobs_that_have_left_does_not_stay() -> None:
    equal_demands = EqualDemands()
    for number in range(100):
        equal_demands.number(managed(str(number)), replace(JOB, job_id=str(number), nice=number))
    equal_demands.tidy(60)
    assert len(equal_demands._known) == 100
    equal_demands.tidy(40)
    assert len(equal_demands._known) == 0


def test_a_job_that_is_as_it_was_keeps_its_number_without_being_read() -> None:
    equal_demands, job = EqualDemands(), managed()
    before = equal_demands.number(job, JOB)
    equal_demands._numbers.clear()
    assert equal_demands.number(job, JOB) == before
