"""A-SRPT on cases small enough to compute by hand: turns, releases, and waits for a close placement."""

import pytest

from dally.errors import InputError
from dally.jobs.job import Job
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.state import ClusterState
from dally.testing.worlds import racks, simulate
from simulator.failures import Outage
from tests.dally.policies.events import job, levels, times, waits

AUTHORS = load_profiles("dally")
MODEL = "mobilenetv3"
PAIR = racks([[3, 3]])


def apart() -> float:
    """The slowdown of two GPUs on two machines of one rack."""
    return CostModel(PAIR, AUTHORS).cost(job("a", 2, 1.0, model=MODEL), ((0, 1), (1, 1))).slowdown


def test_least_work_has_its_turn_first() -> None:
    """Work is GPUs by time: 300 at 2 GPUs is less than 1000 at 1, though it is wider and came later."""
    jobs = [job("first", 2, 100), job("long", 1, 1000.0, 1), job("wide", 2, 300.0, 2)]
    result = simulate("a-srpt", racks([[2]]), jobs)
    assert (times(result, "wide"), times(result, "long")) == ([100.0], [400.0])


def test_nobody_passes_the_first_in_the_order() -> None:
    """Of three GPUs one is free; the first in order wants two, the second would fit."""
    jobs = [job("runs", 2, 100), job("first", 2, 50, 1), job("second", 1, 500, 2)]
    result = simulate("a-srpt", racks([[3]]), jobs)
    assert (times(result, "first"), times(result, "second")) == ([100.0], [100.0])


def test_who_waits_ages_on_the_virtual_machine() -> None:
    """It ends b, of 900 s, at 901 s, though GPUs for b are free at 1900 s only; c, of 150 s, comes later."""
    jobs = [job("a", 1, 1900.0), job("b", 2, 900.0, 1), job("c", 2, 150.0, 1800)]
    assert order_of(jobs, "sjf") == ["a", "c", "b"]
    assert order_of(jobs, "a-srpt") == ["a", "b", "c"]


def order_of(jobs: list[Job], policy: str) -> list[str]:
    """The jobs by their start on one machine of two GPUs."""
    result = simulate(policy, racks([[2]]), jobs)
    return [event["job"] for event in result.events if event["event"] == "start"]


def test_released_when_ended_on_the_virtual_machine() -> None:
    """One GPU for 100 s is 25 s of four GPUs."""
    jobs = [job("a", 1, 100.0), job("b", 1, 200.0)]
    result = simulate("a-srpt:release=ended", racks([[4]]), jobs)
    assert (times(result, "a"), times(result, "b")) == ([25.0], [75.0])
    early = simulate("a-srpt", racks([[4]]), jobs)
    assert (times(early, "a"), times(early, "b")) == ([0.0], [0.0])


HALVES = [job("a", 2, 9000), job("b", 2, 100)]
"""On two machines of three GPUs, one of each is free until 100 s."""


def test_a_heavy_job_waits_for_one_machine_and_lets_others_pass() -> None:
    """Apart it would take seventeen times as long, so 99 s are worth it."""
    jobs = [*HALVES, job("wide", 2, 3000, 1, MODEL), job("small", 1, 9000, 2)]
    result = simulate("a-srpt", PAIR, jobs, profiles=AUTHORS)
    assert (times(result, "wide"), levels(result, "wide")) == ([100.0], ["machine"])
    assert times(result, "small") == [2.0]
    [(since_s, until_s)] = waits(result, "wide")
    assert (since_s, until_s) == pytest.approx((1, 1 + 3000 * (apart() - 1)), abs=1e-3)


@pytest.mark.parametrize("patience", [0.0, 0.02])
def test_it_waits_no_longer_than_patience_times_what_being_apart_would_cost(patience: float) -> None:
    jobs = [*HALVES, job("wide", 2, 100, 1, MODEL)]
    result = simulate(f"a-srpt:patience={patience}", PAIR, jobs, profiles=AUTHORS)
    assert times(result, "wide") == pytest.approx([1 + patience * 100 * (apart() - 1)], abs=1e-3)
    assert levels(result, "wide") == ["rack"]


@pytest.mark.parametrize(("spec", "model"), [("a-srpt", ""), ("a-srpt:heavy=20", MODEL)])
def test_who_is_not_heavy_starts_anywhere(spec: str, model: str) -> None:
    result = simulate(spec, PAIR, [*HALVES, job("wide", 2, 100, 1, model)], profiles=AUTHORS)
    assert (times(result, "wide"), levels(result, "wide")) == ([1.0], ["rack"])


def test_after_a_failure_a_job_has_its_old_turn() -> None:
    """At 1700 s the virtual machine has 200 s left of b, less than c's 250; b fails at 1800 s."""
    jobs = [job("a", 2, 600), job("b", 2, 1300, 1), job("c", 2, 250, 1700)]
    result = simulate("a-srpt", racks([[2]]), jobs, [Outage(1800.0, 0, 1805.0)])
    assert times(result, "b") == [600.0, 1805.0]
    assert times(result, "c") == [1805.0 + 8 + 100]


def test_reasons_name_the_turn_and_the_cost_of_the_network() -> None:
    jobs = [*HALVES, job("wide", 2, 100, 1, MODEL)]
    result = simulate("a-srpt", PAIR, jobs, profiles=AUTHORS)
    [held] = [event["reason"] for event in result.events if event["event"] == "wait"]
    assert held == (
        "one rack could hold it, but the network would cost it 1620 % of 1 min 40 s; it waits for one machine"
    )
    reasons = [event["reason"] for event in result.events if event["event"] == "start"]
    assert reasons[-1] == (
        "machine has 2 free GPUs, at slowdown 1; the virtual machine has ended it, waited 1 min 39 s"
    )


def test_turns_and_waits_are_kept_over_a_restart() -> None:
    state = ClusterState(PAIR, CostModel(PAIR, AUTHORS))
    policy = parse_policy("a-srpt").build(state)
    for each in (job("a", 3, 600), job("b", 3, 400)):
        policy.submitted(state.submit(each, 0.0), 0.0)
    policy.time_passed(state, 250.0)
    learnt = policy.snapshot()
    assert learnt == {"left_us": {"a": 250_000_000}, "ended_us": {"b": 200_000_000}, "until_s": {}}
    state = ClusterState(PAIR, CostModel(PAIR, AUTHORS))
    again = parse_policy("a-srpt").build(state)
    again.restore(learnt)
    for each in (job("a", 3, 600), job("b", 3, 400)):
        again.submitted(state.submit(each, 1000.0), 1000.0)
    assert again.snapshot() == learnt


@pytest.mark.parametrize("knob", ["heavy=0.5", "patience=-1", "release=late"])
def test_wrong_knobs_are_refused(knob: str) -> None:
    with pytest.raises(InputError, match=knob.split("=")[0]):
        parse_policy(f"a-srpt:{knob}")
