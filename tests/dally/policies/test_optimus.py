"""Optimus on cases small enough to compute by hand: sizes by marginal gain, at intervals, if it pays."""

from dataclasses import replace

import pytest

from dally.errors import InputError
from dally.jobs.job import Job, JobKind
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.state import ClusterState
from dally.testing.worlds import Result, racks, simulate
from tests.dally.policies.events import job, times


def elastic(name: str, gpus: int, duration_s: float, submit_s: float = 0.0, most: int = 8) -> Job:
    return replace(job(name, gpus, duration_s, submit_s), kind=JobKind.ELASTIC, min_gpus=1, max_gpus=most)


def held(result: Result, name: str) -> list[tuple[float, int]]:
    """When a job started or changed, and how many GPUs it had from then on."""
    changes = ("start", "resize", "migrate")
    return [
        (each["t"], sum(each["gpus"].values()))
        for each in result.events
        if each["event"] in changes and each["job"] == name
    ]


def test_a_lone_job_gets_all_that_it_can_use() -> None:
    result = simulate("optimus:interval_s=60", racks([[8]]), [elastic("a", 2, 800.0, most=4)])
    assert held(result, "a") == [(0.0, 4)]
    assert result.by_job["a"].run_s == pytest.approx(400)


def test_gpus_go_where_they_shorten_the_remaining_time_most() -> None:
    """On one GPU 4000 s and 900 s: further ones save 2000, 667, 333 and 450 s; of 5, a gets 3 and b 2."""
    result = simulate(
        "optimus:interval_s=60", racks([[5]]), [elastic("a", 1, 4000.0), elastic("b", 1, 900.0)]
    )
    assert held(result, "a")[0] == (0.0, 3)
    assert held(result, "b")[0] == (0.0, 2)


def test_newcomers_get_gpus_at_the_next_interval_and_leave_them_at_the_one_after_their_end() -> None:
    """B needs 100 s on two of the GPUs: from 60 s to 160 s; a has three again at 180 s."""
    jobs = [elastic("a", 1, 2000.0), elastic("b", 1, 200.0, 10.0, most=2)]
    result = simulate("optimus:interval_s=60", racks([[3]]), jobs)
    assert held(result, "b") == [(60.0, 1)]
    assert held(result, "a") == [(0.0, 3), (60.0, 2), (300.0, 3)]


def test_the_interval_is_a_knob() -> None:
    jobs = [elastic("a", 1, 4000.0), elastic("b", 1, 400.0, 10.0)]
    assert times(simulate("optimus:interval_s=60", racks([[4]]), jobs), "b") == [60.0]
    assert times(simulate("optimus", racks([[4]]), jobs), "b") == [600.0], "as published"
    with pytest.raises(InputError, match="interval_s of policy optimus is '0'"):
        parse_policy("optimus:interval_s=0").build(ClusterState(racks([[1]]), CostModel(racks([[1]]))))


def test_smaller_jobs_are_admitted_first_and_who_runs_goes_on() -> None:
    jobs = [job("runs", 3, 90), job("wide", 3, 50, 1), job("long", 1, 500, 2), job("narrow", 1, 50, 3)]
    result = simulate("optimus:interval_s=60", racks([[4]]), jobs)
    assert times(result, "long") == [60.0]
    assert times(result, "narrow") == [120.0]
    assert times(result, "wide") == [180.0]
    assert not times(result, "runs", "preempt")


def test_who_must_not_be_preempted_keeps_its_gpus() -> None:
    fixed = replace(elastic("a", 1, 4000.0, most=3), preemptible=False)
    result = simulate("optimus:interval_s=60", racks([[4]]), [fixed, elastic("b", 1, 400.0, 10.0)])
    assert held(result, "a") == [(0.0, 3)]
    assert held(result, "b") == [(60.0, 1)]


def test_a_change_that_costs_more_than_it_saves_is_left() -> None:
    """A ends at 59 s; b has five more GPUs at 60 s if at 3 s of resize they save enough of what is left."""
    jobs = [job("a", 5, 59.0), elastic("b", 1, 63.0)]
    assert held(simulate("optimus:interval_s=60", racks([[6]]), jobs), "b") == [(0.0, 1)]
    jobs = [job("a", 5, 59.0), elastic("b", 1, 68.0)]
    assert held(simulate("optimus:interval_s=60", racks([[6]]), jobs), "b") == [(0.0, 1), (60.0, 6)]


def test_waits_say_what_is_missing_and_when_sizes_are_looked_at() -> None:
    jobs = [job("runs", 4, 500), elastic("a", 1, 100.0, 10.0)]
    result = simulate("optimus:interval_s=60", racks([[4]]), jobs)
    [wait] = [each["reason"] for each in result.events if each["event"] == "wait"]
    assert wait == "waits until sizes are looked at, every 1 min"
    result = simulate("optimus:interval_s=60", racks([[4]]), [jobs[0], replace(jobs[1], submit_s=0.0)])
    [wait] = [each["reason"] for each in result.events if each["event"] == "wait"]
    assert wait == "4 GPUs needed at least, 4 free; smaller jobs go first, then those who came before"


def test_what_is_due_survives_a_restart_of_the_controller() -> None:
    topology = racks([[4]])
    state = ClusterState(topology, CostModel(topology))
    policy = parse_policy("optimus:interval_s=60").build(state)
    state.submit(job("r", 1, 100.0), 0.0)
    policy.submitted(state.jobs["r"], 0.0)
    policy.started(state.start("r", ((0, 1),), 0.0, 0.0, 1.0), 0.0)
    policy.submitted(state.submit(elastic("a", 1, 100.0), 10.0), 10.0)
    plan = policy.decide(state, 10.0)
    assert plan.wakeup_s == 60.0
    policy.plan_applied(plan, state, 10.0)
    assert policy.snapshot()["due_s"] == 60.0
    again = parse_policy("optimus:interval_s=60").build(ClusterState(topology, CostModel(topology)))
    again.restore(policy.snapshot())
    assert again.snapshot()["due_s"] == 60.0


def test_a_cluster_of_rigid_jobs_is_left_in_peace() -> None:
    """Nobody could be resized: nothing is decided between arrivals and ends but at the interval after."""
    result = simulate(
        "optimus:interval_s=60", racks([[4]]), [job("a", 2, 90_000), job("b", 2, 50_000, 100.0)]
    )
    assert result.outcome.moments <= 8
