"""Tiresias on cases small enough to compute by hand: its limits, its order, its promotions."""

import json
from dataclasses import replace

import pytest

from dally.errors import InputError
from dally.policies.registry import parse_policy
from dally.policies.tiresias.skew import skew
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.testing.worlds import racks, simulate
from tests.dally.policies.events import job, levels, times

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
    assert times(simulate("tiresias:limits=none", racks([[1]]), jobs), "new") == [10_000.0]


def test_within_a_queue_the_job_that_started_first_goes_first() -> None:
    result = simulate("tiresias:promote=0", racks([[1]]), TWO)
    # x leaves the top queue at 3250 s of service, y too, at 6500 s; x leaves the second one at 7200 s of
    # service, y too, each after a restart of 7 s; then x stays until it ends, having paid another one.
    assert times(result, "x") == [0.0, 6500.0, 14_414.0]
    assert times(result, "y")[:2] == [3250.0, 10_457.0]
    assert times(result, "y")[2] == times(result, "x", "end")[0] == 14_414 + 7 + 30_000 - 7200


def test_limits_are_named_or_said() -> None:
    said = simulate("tiresias:promote=0,limits=3250+7200+18000", racks([[1]]), TWO)
    assert times(said, "y")[2] == 14_414 + 7 + 18_000 - 7200
    named = simulate("tiresias:promote=0,limits=pollux", racks([[1]]), TWO)
    assert times(named, "y") == [30_000.0], "x ends before it has had 16 GPU-hours"


@pytest.mark.parametrize("said", ["ours", "7200+3250", "0+10", "3250+nan"])
def test_limits_that_are_none_are_refused(said: str) -> None:
    with pytest.raises(InputError, match=r"must be published, pollux, none, or rising GPU-seconds"):
        parse_policy(f"tiresias:limits={said}")


def test_a_job_is_sure_of_a_quantum_of_training_after_each_start() -> None:
    jobs = [job("old", 64, 2000), job("new", 64, 500, 100)]
    result = simulate("tiresias:quantum_s=800,promote=0", racks([[64]]), jobs)
    assert times(result, "old", "preempt") == [800.0], "it left the top queue after 51 s"
    assert times(result, "old") == [0.0, 1300.0]
    soon = simulate("tiresias:quantum_s=0,promote=0", racks([[64]]), jobs)
    assert times(soon, "old", "preempt")[0] == 100.0


def test_a_start_is_sure_of_ten_times_its_restart() -> None:
    """A gang of 64 restarts for 70 s."""
    jobs = [job("old", 64, 5000), job("new", 64, 500, 100)]
    result = simulate("tiresias:promote=0", racks([[64]]), jobs)
    assert times(result, "old", "preempt") == [700.0]
    less = simulate("tiresias:promote=0,quantum_restarts=0", racks([[64]]), jobs)
    assert times(less, "old", "preempt") == [600.0]
    none = simulate("tiresias:promote=0,quantum_s=0", racks([[64]]), jobs)
    assert times(none, "old", "preempt")[0] == 100.0, "whatever restarts cost"


def test_gangs_as_large_as_the_cluster_all_get_done() -> None:
    jobs = [job(f"j{number}", 64, 20_000, number) for number in range(12)]
    for policy in ("tiresias", "tiresias:limits=pollux", "tiresias:promote=0"):
        outcome = simulate(policy, racks([[8] * 8]), jobs).outcome
        assert outcome.complete
        assert outcome.end_s < 1.15 * 12 * 20_000, "a restart of 70 s per quantum of 600 s, at most"


def test_by_arrival_a_waiting_job_stops_later_ones_of_its_queue() -> None:
    jobs = [job("a", 3, 1000), job("wide", 4, 100, 1), job("late", 1, 5000, 2)]
    first = simulate("tiresias:limits=none", racks([[4]]), jobs)
    assert times(first, "wide") == [5002.0]
    arrival = simulate("tiresias:limits=none,order=arrival", racks([[4]]), jobs)
    assert times(arrival, "wide") == [1000.0]
    assert times(arrival, "late", "preempt") == [1000.0]


def test_it_decides_at_multiples_of_its_interval_if_it_has_one() -> None:
    jobs = [job("a", 1, 100, 5), job("b", 1, 100, 6)]
    assert times(simulate("tiresias:interval_s=60", racks([[1]]), jobs), "a") == [60.0]
    assert times(simulate("tiresias:interval_s=60", racks([[1]]), jobs), "b") == [180.0]
    assert times(simulate("tiresias:interval_s=0.1", racks([[1]]), jobs), "b")[0] == pytest.approx(105.0)


def test_a_job_that_waited_long_goes_back_to_the_top() -> None:
    result = simulate("tiresias:promote=2", racks([[1]]), TWO)
    # y trained for 7200 s and waited 3957 s after its start when x took over at 14414 s.
    assert times(result, "y")[2] == 14_414 + 2 * 7200 - 3957


def test_a_promoted_job_counts_as_new() -> None:
    jobs = [job("x", 1, 100_000), job("y", 1, 30_000, 1)]
    result = simulate("tiresias:promote=2", racks([[1]]), jobs)
    # x waits in the last queue, so y keeps its GPU until it is there as well, by the service since then.
    assert times(result, "y", "preempt")[2] == times(result, "y")[2] + 7 + 7200


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
    result = simulate("tiresias:limits=none", racks([[4, 4]]), jobs, profiles=REALISTIC)
    assert (times(result, "pair"), levels(result, "pair")) == ([start_s], [level])


def test_skew_counts_what_a_bucket_holds_beyond_the_size_at_which_it_is_closed() -> None:
    mine = [each for each in REALISTIC.profiles if each.model.name == "vgg11"]
    renamed = ProfileSet(
        "mine", tuple(replace(each, model=replace(each.model, name="my-net")) for each in mine)
    )
    assert skew(job("j", 1, 1, model="my-net"), renamed) == pytest.approx(
        (411_058_176 - 25 * 2**20) / 531_453_344
    )
    assert skew(job("j", 1, 1, model="unheard-of"), REALISTIC) == 0


@pytest.mark.parametrize(("model", "share"), [("vgg11", 0.773), ("alexnet", 0.618), ("resnet50", 0.092)])
def test_well_known_models_are_skewed_though_their_profile_has_equal_buckets(
    model: str, share: float
) -> None:
    assert skew(job("j", 1, 1, model=model), load_profiles("dally")) == pytest.approx(share, abs=0.001)


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
