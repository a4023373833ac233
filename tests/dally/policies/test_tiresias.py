"""Tiresias on cases small enough to compute by hand: its limits, its order, its promotions."""

import json

import pytest

from dally.costs import CostModel
from dally.cycle import Scheduler
from dally.mechanisms.skew import skew
from dally.policies.registry import parse_policy
from dally.profiles.files import load_profiles
from dally.state import ClusterState
from tests.dally.policies.events import job, levels, times
from tests.worlds import racks, simulate

REALISTIC = load_profiles("realistic")
TWO = [job("x", 1, 30_000), job("y", 1, 30_000, 1)]


@pytest.mark.parametrize(("gpus", "start_s"), [(1, 3250.0), (2, 1625.0)])
def test_a_new_job_takes_over_when_the_running_one_leaves_the_top_queue(gpus: int, start_s: float) -> None:
    jobs = [job("old", gpus, 10_000), job("new", gpus, 100, 1000)]
    result = simulate("tiresias", racks([[gpus]]), jobs)
    assert times(result, "new") == [start_s]
    assert times(result, "old", "preempt") == [start_s]


def test_with_one_queue_nobody_is_preempted() -> None:
    jobs = [job("old", 1, 10_000), job("new", 1, 100, 1000)]
    assert times(simulate("tiresias:queues=1", racks([[1]]), jobs), "new") == [10_000.0]


def test_within_a_queue_the_job_that_started_first_goes_first() -> None:
    result = simulate("tiresias:promote=0", racks([[1]]), TWO)
    # x leaves the top queue at 3250 s of service, y too, at 6500 s; x leaves the second one at 7200 s of
    # service, y too, at 14400 s; then x stays until it ends, having paid two restarts of 7 s.
    assert times(result, "x") == [0.0, 6500.0, 14_400.0]
    assert times(result, "y")[:2] == [3250.0, 10_450.0]
    assert times(result, "y")[2] == times(result, "x", "end")[0] == 14_400 + 30_000 - 7200 + 14


def test_a_third_limit_counts_with_four_queues_only() -> None:
    result = simulate("tiresias:promote=0,queues=4", racks([[1]]), TWO)
    assert times(result, "y")[2] == 14_400 + 18_000 - 7200


def test_a_job_that_waited_long_goes_back_to_the_top() -> None:
    result = simulate("tiresias:promote=2", racks([[1]]), TWO)
    # y ran for 7200 s and waited 3950 s after its start when x took over at 14400 s.
    assert times(result, "y")[2] == 14_400 + 2 * 7200 - 3950


def test_a_promoted_job_counts_as_new() -> None:
    jobs = [job("x", 1, 100_000), job("y", 1, 30_000, 1)]
    result = simulate("tiresias:promote=2", racks([[1]]), jobs)
    # x waits in the last queue, so y keeps its GPU until it is there as well, by the service since then.
    assert times(result, "y", "preempt")[2] == times(result, "y")[2] + 7200


def test_running_jobs_keep_their_gpus_from_new_ones_of_the_same_queue() -> None:
    jobs = [job("old", 1, 3000), job("new", 1, 100, 1)]
    assert times(simulate("tiresias", racks([[1]]), jobs), "old", "preempt") == []


def test_a_job_that_fits_passes_one_that_does_not() -> None:
    jobs = [job("a", 3, 1000), job("wide", 4, 100, 1), job("small", 1, 100, 2)]
    result = simulate("tiresias", racks([[4]]), jobs)
    assert times(result, "small") == [2.0]


@pytest.mark.parametrize(
    ("model", "start_s", "level"),
    [("vgg11", 3000.0, "machine"), ("resnet50", 0.0, "rack"), ("", 0.0, "rack")],
)
def test_only_skewed_models_wait_for_consolidation(model: str, start_s: float, level: str) -> None:
    jobs = [job("a", 3, 3000), job("b", 3, 3000), job("pair", 2, 500, model=model)]
    result = simulate("tiresias:queues=1", racks([[4, 4]]), jobs, profiles=REALISTIC)
    assert (times(result, "pair"), levels(result, "pair")) == ([start_s], [level])


def test_skew_counts_what_a_bucket_holds_beyond_the_size_at_which_it_is_closed() -> None:
    assert skew(job("j", 1, 1, model="vgg11"), REALISTIC) == pytest.approx(
        (411_058_176 - 25 * 2**20) / 531_453_344
    )
    assert skew(job("j", 1, 1, model="mobilenetv3"), REALISTIC) == 0
    assert skew(job("j", 1, 1, model="unheard-of"), REALISTIC) == 0


def test_a_restored_job_is_in_the_queue_that_its_service_gives() -> None:
    topology = racks([[1]])
    state = ClusterState(topology, CostModel(topology))
    policy = parse_policy("tiresias").build(state)
    scheduler = Scheduler(state, policy)
    old = scheduler.submit(job("old", 1, 10_000), 0.0)
    scheduler.start("old", ((0, 1),), 0.0, 1.0)
    scheduler.preempt("old", 4000.0)
    learnt = json.loads(json.dumps(policy.snapshot()))

    again = parse_policy("tiresias").build(state)
    again.restore(learnt)
    again.submitted(old, 4000.0)
    again.submitted(state.submit(job("new", 1, 10, 4000.0), 4000.0), 4000.0)
    assert [decision.job_id for decision in again.decide(state, 4000.0).decisions] == ["new", "old"]
    assert again.snapshot()["services"]["old"] == learnt["services"]["old"]


SCATTERED = [job("x", 3, 1000), job("y", 3, 9000), job("pair", 2, 9000)]


def test_a_scattered_job_moves_closer_after_an_hour_of_training() -> None:
    result = simulate("tiresias", racks([[4, 4]]), SCATTERED)
    assert levels(result, "pair") == ["rack"]
    assert times(result, "pair", "migrate") == [3600.0]
    assert times(result, "pair", "end") == [9000.0 + 6 + 2]


def test_it_stays_where_it_is_without_regrouping() -> None:
    result = simulate("tiresias:regroup_s=0", racks([[4, 4]]), SCATTERED)
    assert times(result, "pair", "migrate") == []
    assert times(result, "pair", "end") == [9000.0]
