"""Machines of four GPUs; `high` has priority 1,000, `mid` 800 and `low` 100, and others need 0.75 of that."""

from collections.abc import Mapping

import pytest

from dally.cluster.topology import Allocation
from dally.jobs.job import Job
from dally.plan import Decision, Migrate, Plan, Preempt, Start, Wait
from dally.profiles.costs import CostModel
from dally.scheduling.spared_jobs import spare_higher_priority
from dally.state import ClusterState
from dally.testing import racks

PRIORITIES = {"high": 1000.0, "mid": 800.0, "low": 100.0}


def cluster(running: Mapping[str, Allocation], machines: int = 3) -> ClusterState:
    topology = racks([[4] * machines])
    state = ClusterState(topology, CostModel(topology), priority_ratio=0.75)
    for name, priority in PRIORITIES.items():
        allocation = running.get(name, ())
        state.submit(Job(name, 0.0, sum(gpus for _, gpus in allocation) or 4, 3600.0), 0.0)
        state.jobs[name].priority = priority
        if allocation:
            state.start(name, allocation, 0.0, 0.0, 1.0)
    return state


def spared(state: ClusterState, *decisions: Decision) -> tuple[Decision, ...]:
    return spare_higher_priority(Plan(decisions), state, 0.75).decisions


def move(name: str, *allocation: tuple[int, int]) -> Migrate:
    return Migrate(name, allocation, 1, "closer")


def start(name: str, *allocation: tuple[int, int]) -> Start:
    return Start(name, allocation, 1, "fits")


def stop(name: str, *by: str) -> Preempt:
    return Preempt(name, by, "no target")


def test_a_job_is_not_stopped_where_one_of_much_lower_priority_only_moves() -> None:
    state = cluster({"high": ((0, 4),), "low": ((1, 4),)})
    assert spared(state, stop("high", "low"), move("low", (0, 4))) == ()


def test_a_job_is_stopped_for_one_of_its_class() -> None:
    state = cluster({"high": ((0, 4),), "low": ((1, 4),)})
    plan = stop("high", "mid"), start("mid", (0, 4))
    assert spared(state, *plan) == plan


def test_what_is_left_of_its_gpus_may_go_to_any_and_it_is_not_said_to_stop_for_these() -> None:
    state = cluster({"high": ((0, 4),), "low": ((1, 1),)})
    left = start("mid", (0, 3)), move("low", (0, 1))
    assert spared(state, stop("high", "mid", "low"), *left) == (stop("high", "mid"), *left)


def test_who_needs_the_gpus_that_the_mover_would_have_left_waits_and_is_told_why() -> None:
    state = cluster({"high": ((0, 4),), "low": ((1, 4),)}, machines=2)
    plan = stop("high", "low"), move("low", (0, 4)), start("mid", (1, 4))
    (wait,) = spared(state, *plan)
    assert isinstance(wait, Wait)
    assert wait.job_id == "mid"
    assert wait.reason == "high keeps its GPUs: those that would get them have a much lower priority"


def test_starts_on_gpus_that_are_free_anyway_stay() -> None:
    state = cluster({"high": ((0, 4),), "low": ((1, 4),)})
    plan = stop("high", "low"), move("low", (0, 4)), start("mid", (2, 4))
    assert spared(state, *plan) == (start("mid", (2, 4)),)


def test_nobody_stops_for_a_job_that_stays_where_it_is_after_all() -> None:
    state = cluster({"high": ((0, 4),), "mid": ((1, 2),), "low": ((2, 4),)})
    state.submit(Job("next", 0.0, 6, 3600.0), 0.0)
    state.jobs["next"].priority = 900.0
    plan = stop("high", "low"), move("low", (0, 4)), stop("mid", "next"), start("next", (1, 4), (2, 2))
    kept = spared(state, *plan)
    assert [(type(each), each.job_id) for each in kept] == [(Wait, "next")]


@pytest.mark.parametrize("by", [(), ("mid",)])
def test_a_plan_without_such_stops_is_left_alone(by: tuple[str, ...]) -> None:
    state = cluster({"high": ((0, 4),), "low": ((1, 4),)})
    plan = Plan((stop("high", *by), start("mid", (0, 4))), 60.0)
    assert spare_higher_priority(plan, state, 0.75) is plan
