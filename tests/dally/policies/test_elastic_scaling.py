"""Elastic scaling on cases small enough to compute by hand: sums of speed-ups, arrivals, ends, batches."""

from dataclasses import replace

import pytest

from dally.cluster import load_cluster
from dally.jobs.job import Job, JobKind
from dally.policies.common.elastic_speeds import Speeds
from dally.policies.elastic_scaling import ElasticScaling
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.profiles.goodput import Batching
from dally.state import ClusterState, JobState
from dally.testing.worlds import racks, simulate
from simulator.failures import Outage
from tests.dally.policies.events import job, times
from tests.dally.policies.test_optimus import elastic, held

POLLUX = load_profiles("pollux")


def learner(name: str, model: str, least: int = 1, most: int = 8) -> Job:
    return replace(elastic(name, 1, 3600.0, most=most), model=model, min_gpus=least, gpus=max(1, least))


def sizes(gpus: int, *jobs: Job) -> dict[str, int]:
    """The GPUs that jobs get at once on so many of the cluster of Pollux's models."""
    topology = load_cluster("pollux-64")
    state = ClusterState(topology, CostModel(topology, POLLUX, batching=Batching.LINEAR))
    for machine in range(gpus // 4, 16):
        state.withhold(machine, 4)
    policy = parse_policy("elastic-scaling").build(state)
    for each in jobs:
        policy.submitted(state.submit(each, 0.0), 0.0)
    starts = policy.decide(state, 0.0).decisions
    return {each.job_id: sum(count for _, count in getattr(each, "allocation", ())) for each in starts}


def test_the_batch_goes_with_the_gpus() -> None:
    assert ElasticScaling.batching is Batching.LINEAR


def test_a_lone_job_gets_all_that_it_can_use() -> None:
    result = simulate("elastic-scaling", racks([[8]]), [elastic("a", 2, 800.0, most=4)])
    assert held(result, "a") == [(0.0, 4)]


def test_no_other_split_has_a_greater_sum_of_speed_ups() -> None:
    jobs = [learner("cifar", "cifar10", most=12), learner("image", "imagenet", most=12)]
    speeds = Speeds(CostModel(load_cluster("pollux-64"), POLLUX, batching=Batching.LINEAR))
    cifar, image = (speeds.row(JobState(each, 0, 0.0), 0.0) for each in jobs)
    sums = {k: cifar[k] / cifar[1] + image[12 - k] / image[1] for k in range(1, 12)}
    given = sizes(12, *jobs)
    assert sum(given.values()) <= 12
    assert sums[given["cifar"]] == pytest.approx(max(sums.values()))


def test_arrivals_and_ends_are_answered_at_once() -> None:
    jobs = [elastic("a", 1, 4000.0, most=4), elastic("b", 1, 400.0, 10.0, most=2)]
    result = simulate("elastic-scaling", racks([[4]]), jobs)
    [(start_s, gpus)] = held(result, "b")
    assert start_s == 10.0
    end_s = 10.0 + 400 / gpus
    assert held(result, "a") == [(0.0, 4), (10.0, 4 - gpus), (end_s, 4)]


def test_who_does_not_fit_waits_in_order_of_arrival() -> None:
    jobs = [job("runs", 3, 500), job("wide", 2, 500, 1), job("narrow", 1, 50, 2)]
    result = simulate("elastic-scaling", racks([[4]]), jobs)
    assert (times(result, "wide"), times(result, "narrow")) == ([500.0], [500.0])
    waits = [each["reason"] for each in result.events if each["event"] == "wait"]
    assert waits[0] == "2 GPUs needed at least, 1 free; jobs start in order of arrival"


def test_who_is_larger_than_what_is_up_holds_nobody_up() -> None:
    topology = racks([[4, 4]])
    state = ClusterState(topology, CostModel(topology))
    policy = parse_policy("elastic-scaling").build(state)
    state.withhold(1, 4)
    for each in (job("wide", 6, 100), job("narrow", 2, 100)):
        policy.submitted(state.submit(each, 0.0), 0.0)
    kinds = {each.job_id: type(each).__name__ for each in policy.decide(state, 0.0).decisions}
    assert kinds == {"narrow": "Start", "wide": "Wait"}


def test_least_sizes_make_room_for_as_many_jobs_as_there_are_gpus() -> None:
    jobs = [elastic(f"j{number}", 2, 500.0, float(number)) for number in range(4)]
    result = simulate("elastic-scaling", racks([[4]]), jobs)
    starts = [times(result, each.job_id)[0] for each in jobs]
    assert starts[:2] == [0.0, 1.0]
    assert max(starts) < 63.0, "those who came during a resize get their GPU at the next interval"


def test_who_is_nearly_done_keeps_its_gpus() -> None:
    """At 999 s a has 1 s left, less than a resize takes."""
    result = simulate("elastic-scaling", racks([[4]]), [elastic("a", 1, 4000.0), elastic("b", 1, 9.0, 999.0)])
    assert held(result, "a") == [(0.0, 4)]
    assert times(result, "b") == [1000.0]


@pytest.mark.parametrize("policy", ["elastic-scaling", "optimus"])
def test_mixed_jobs_on_mixed_types_all_end(policy: str) -> None:
    jobs = [elastic(f"e{n}", 1 + n % 3, 2000.0, n * 150.0) for n in range(8)]
    jobs += [job(f"r{n}", 2, 1000.0, n * 400.0, "lm") for n in range(4)]
    jobs += [replace(job(f"f{n}", 2, 900.0, n * 500.0), kind=JobKind.FORKED, max_copies=2) for n in range(3)]
    jobs += [replace(elastic(f"s{n}", 2, 900.0, n * 500.0), min_gpus=2, gpus_per_machine=2) for n in range(3)]
    topology = racks([[2, 2], [4, 4]], ("k80", "v100"))
    ordered = sorted(jobs, key=lambda each: each.submit_s)
    result = simulate(policy, topology, ordered, profiles=load_profiles("gavel"))
    assert {record.status for record in result.outcome.records} == {"COMPLETED"}


@pytest.mark.parametrize("policy", ["elastic-scaling", "optimus", "drl"])
def test_a_machine_that_returns_while_all_are_kept_for_a_larger_job_ends_no_policy(policy: str) -> None:
    """The first job would have to leave its machine to the second; all are kept for the third."""
    jobs = (
        replace(elastic("first", 1, 1000.0, most=2), min_gpus=1),
        Job("second", 10.0, 1, 100.0, machines=frozenset({"r0m0"})),
        Job("third", 20.0, 2, 100.0, machines=frozenset({"r0m0", "r0m1"})),
    )
    records = simulate(policy, racks([[1, 2]]), jobs, [Outage(0.0, 1, 100.0)]).outcome.records
    assert {record.status for record in records} == {"COMPLETED"}
