"""Pollux through whole simulations: growth, rounds, resizes, who keeps its GPUs, and what it remembers."""

import json
from dataclasses import replace

import pytest

from dally.errors import InputError
from dally.jobs.job import Job, JobKind
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.profiles.goodput import Batching
from dally.state import ClusterState
from dally.testing.worlds import Result, racks, simulate
from tests.dally.policies.events import job, times

POLLUX = load_profiles("pollux")
CLUSTER = racks([[4] * 4], ("t4",))


def elastic(name: str, duration_s: float, submit_s: float = 0.0, most: int = 8, model: str = "") -> Job:
    kind = JobKind.ELASTIC
    return Job(name, submit_s, 1, duration_s, model=model, kind=kind, min_gpus=1, max_gpus=most)


def held(result: Result, name: str) -> list[int]:
    """GPUs of each start, resize and move of a job."""
    changes = ("start", "migrate", "resize")
    mine = [each for each in result.events if each["job"] == name and each["event"] in changes]
    return [sum(each["gpus"].values()) for each in mine]


def test_a_lone_job_doubles_each_round_up_to_its_most() -> None:
    result = simulate("pollux", racks([[8]]), [elastic("a", 4000.0)])
    assert held(result, "a") == [1, 2, 4, 8]
    assert times(result, "a", "resize") == [60.0, 120.0, 180.0]


def test_without_a_bound_it_has_all_at_once() -> None:
    result = simulate("pollux:growth=0", racks([[8]]), [elastic("a", 4000.0)])
    assert held(result, "a") == [8]
    assert result.by_job["a"].run_s == pytest.approx(500)


def test_a_young_job_is_not_disturbed() -> None:
    """Twice the speed pays only where 2 T / (T + 1800) is more than 1: from an age of 1800 s on."""
    result = simulate("pollux:restart_s=1800", racks([[8]]), [elastic("a", 1500.0)])
    assert held(result, "a") == [1]


def test_two_jobs_share_evenly() -> None:
    jobs = [elastic("a", 20_000.0), elastic("b", 20_000.0, 2000.0)]
    result = simulate("pollux", racks([[8]]), jobs)
    alone = held(result, "a").index(8)
    assert 4 in held(result, "a")[alone:]
    assert held(result, "b")[:3] == [1, 2, 4]


def test_arrivals_wait_for_a_round_unless_nothing_runs() -> None:
    jobs = [elastic("a", 600.0, 10.0, 1), elastic("b", 600.0, 20.0, 1)]
    result = simulate("pollux", racks([[8]]), jobs)
    assert (times(result, "a"), times(result, "b")) == ([10.0], [60.0])
    [wait] = [each for each in result.events if each["event"] == "wait"]
    assert wait["reason"] == "waits for the next round; there is one every 1 min"


def test_rigid_gangs_start_whole_or_wait() -> None:
    jobs = [job("a", 3, 500.0), job("b", 2, 500.0), replace(job("c", 1, 300.0), preemptible=False)]
    result = simulate("pollux", racks([[4]]), jobs)
    assert held(result, "a") == [3]
    assert held(result, "b") == [2]
    assert times(result, "c") == [0.0]
    assert times(result, "b")[0] >= 500


def test_who_must_not_be_preempted_keeps_its_gpus() -> None:
    jobs = [replace(elastic("a", 4000.0), preemptible=False), elastic("b", 4000.0)]
    result = simulate("pollux", racks([[4]]), jobs)
    assert held(result, "a") == [1]
    assert held(result, "b") == [1, 2, 3]


def test_a_copy_of_a_forked_job_has_a_machine_of_its_own() -> None:
    forked = Job("a", 0.0, 2, 900.0, kind=JobKind.FORKED, max_copies=3)
    result = simulate("pollux", racks([[2, 2]]), [forked])
    assert held(result, "a") == [2]


def test_speed_is_that_of_the_best_batch() -> None:
    """With goodput batches cifar10 gains from more GPUs; its batch may grow up to what its noise allows."""
    result = simulate("pollux", CLUSTER, [elastic("a", 36_000.0, model="cifar10")], profiles=POLLUX)
    assert max(held(result, "a")) >= 4
    assert result.by_job["a"].jct_s < 36_000 / 2


def test_mean_time_is_less_than_that_of_fixed_sizes() -> None:
    """Four jobs that ask for two GPUs each: FIFO leaves half of the cluster idle."""
    models = ("cifar10", "bert", "cifar10", "bert")
    jobs = [elastic(f"j{n}", 6000.0, 120.0 * n, model=model) for n, model in enumerate(models)]
    wide = [replace(each, gpus=2) for each in jobs]
    times_s = {
        policy: [each.jct_s for each in simulate(policy, CLUSTER, wide, profiles=POLLUX).outcome.records]
        for policy in ("pollux", "fifo")
    }
    assert sum(times_s["pollux"]) < 0.75 * sum(times_s["fifo"])


def test_reasons_name_speed_ups() -> None:
    result = simulate("pollux", racks([[8]]), [elastic("a", 4000.0)])
    reasons = [each["reason"] for each in result.events if each["event"] == "resize"]
    assert reasons[0] == (
        "2 GPUs on 1 machine: speed-up 0.167 over a fair share of 8, 0.125 before; "
        "mean of 1 job 0.168, 0.126 before"
    )


def test_searches_that_change_nothing_grow_rare() -> None:
    policy = parse_policy("pollux:rest=4")
    state = ClusterState(CLUSTER, CostModel(CLUSTER, batching=Batching.GOODPUT))
    pollux = policy.build(state)
    pollux.submitted(state.submit(job("a", 1, 1e6), 0.0), 0.0)
    pollux.submitted(state.submit(job("b", 16, 1e6), 0.0), 0.0)
    plan = pollux.decide(state, 0.0)
    for start in plan.decisions:
        if start.job_id == "a" and hasattr(start, "allocation"):
            pollux.started(state.start("a", start.allocation, 0.0, 0.0, 1.0), 0.0)
    pollux.plan_applied(plan, state, 0.0)
    searches = []
    for number in range(1, 20):
        pollux.plan_applied(pollux.decide(state, 60.0 * number), state, 60.0 * number)
        searches.append(pollux.snapshot()["searches"])
    assert searches == [2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7]
    after_weeks = {**pollux.snapshot(), "quiet": 1100, "again_s": None}
    pollux.restore(after_weeks)
    pollux.plan_applied(pollux.decide(state, 2e6), state, 2e6)
    assert pollux.snapshot()["again_s"] == 2e6 + 4 * 60.0


def test_it_goes_on_from_plain_data_as_if_nothing_had_happened() -> None:
    state = ClusterState(CLUSTER, CostModel(CLUSTER, POLLUX, batching=Batching.GOODPUT))
    spec = parse_policy("pollux")
    first, again = spec.build(state), spec.build(state)
    jobs = [elastic(f"j{n}", 5000.0, model="cifar10") for n in range(5)]
    states = [state.submit(each, 0.0) for each in jobs]
    for each in states:
        first.submitted(each, 0.0)
    plan = first.decide(state, 0.0)
    for start in plan.decisions:
        if hasattr(start, "allocation"):
            first.started(state.start(start.job_id, start.allocation, 0.0, 0.0, 1.0), 0.0)
    first.plan_applied(plan, state, 0.0)
    again.restore(json.loads(json.dumps(first.snapshot())))
    for each in states:
        again.submitted(each, 0.0)
        if each.job.job_id in state.running:
            again.resumed(each, 0.0)
    assert again.decide(state, 600.0).decisions == first.decide(state, 600.0).decisions
    assert first.decide(state, 600.0).decisions


@pytest.mark.parametrize("knob", ["power=2", "growth=1", "restart_s=-1", "rest=0", "patience=0"])
def test_knobs_out_of_range_are_named(knob: str) -> None:
    with pytest.raises(InputError, match=knob.partition("=")[0]):
        parse_policy(f"pollux:{knob}")
