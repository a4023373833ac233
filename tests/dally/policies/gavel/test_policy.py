"""Gavel on cases small enough to compute by hand: shares, turns, types, what stays where it is."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings

from dally.errors import InputError
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.state import ClusterState
from dally.testing.worlds import Result, World, racks, simulate, worlds
from simulator.failures import Outage
from tests.dally.policies.events import job, times

GAVEL = load_profiles("gavel")
TYPES = ("v100", "p100", "k80")


def machines(result: Result, name: str) -> list[str]:
    """Where each stretch of a job ran, by its machines."""
    starts = [e for e in result.events if e["event"] in ("start", "migrate") and e["job"] == name]
    return ["+".join(each["gpus"]) for each in starts]


def on_s(result: Result, name: str, machine: str) -> float:
    """Seconds that a job held GPUs of a machine."""
    held = [e for e in result.events if e.get("job") == name and e["event"] not in ("submit", "wait")]
    spans = (until["t"] - since["t"] for since, until in pairwise(held) if machine in since.get("gpus", {}))
    return float(sum(spans))


def test_the_fast_type_goes_to_the_job_that_gains_most_by_it() -> None:
    """On a K80 ResNet-50 takes 6.3 times as long as on a V100, A3C 2.1 times.

    Both are done soonest if A3C has x of the V100 with x + (1 - x) / 2.1 = (1 - x) + x / 6.3: x = 0.38.
    """
    jobs = [job("a3c", 1, 60_000, model="a3c"), job("resnet", 1, 60_000, model="resnet-50")]
    cluster = racks([[1, 1]], ("v100", "k80"))
    result = simulate("gavel:objective=makespan", cluster, jobs, profiles=GAVEL)
    fast_s = [on_s(result, name, "r0m0") for name in ("a3c", "resnet")]
    assert fast_s[0] / sum(fast_s) == pytest.approx(0.38, abs=0.02)


def test_unaware_of_types_jobs_have_each_in_turn() -> None:
    jobs = [job("a3c", 1, 3000, model="a3c"), job("resnet", 1, 3000, model="resnet-50")]
    result = simulate("gavel:aware=no", racks([[1, 1]], ("v100", "k80")), jobs, profiles=GAVEL)
    assert machines(result, "a3c")[:3] == ["r0m1", "r0m0", "r0m1"]
    assert machines(result, "resnet")[:3] == ["r0m0", "r0m1", "r0m0"]


def test_jobs_of_equal_claim_take_turns_each_round() -> None:
    jobs = [job("a", 1, 1000), job("b", 1, 1000)]
    result = simulate("gavel", racks([[1]]), jobs)
    assert times(result, "a")[:3] == [0.0, 720.0, 1440.0]
    assert times(result, "b")[:3] == [360.0, 1080.0, 1734.0]  # nothing runs once a has ended


def test_a_gang_of_two_has_half_as_many_turns_as_single_jobs() -> None:
    """Its share of the two GPUs is a third, theirs two thirds: 2/3 + 2/3 + 2 x 1/3 = 2."""
    jobs = [job("wide", 2, 9000), job("a", 1, 9000), job("b", 1, 9000)]
    result = simulate("gavel", racks([[2]]), jobs)
    ends = [e["t"] for e in result.events if e["event"] == "preempt" and e["job"] == "wide"]
    first = [start for start in times(result, "wide") if start < 360 * 15]
    assert len(first) == len([end for end in ends if end <= 360 * 15]) == 5


def test_shares_stay_for_a_while_though_jobs_come() -> None:
    """A newcomer has no share before those of others are 1920 s old, at 2160 s; then it is second in turn."""
    jobs = [job("a", 1, 9000), job("new", 1, 9000, submit_s=10)]
    assert times(simulate("gavel", racks([[1]]), jobs), "new")[0] == 2520.0
    assert times(simulate("gavel:hold_s=0", racks([[1]]), jobs), "new")[0] == 720.0


def test_a_turn_in_which_less_than_half_a_round_was_work_goes_on() -> None:
    """A restart takes 7 s: with rounds of 10 s, who took turns each round would hardly get anywhere."""
    jobs = [job("a", 1, 100), job("b", 1, 100)]
    result = simulate("gavel:round_s=10,turn_restarts=0", racks([[1]]), jobs)
    assert times(result, "a")[:3] == [0.0, 20.0, 60.0]  # ready at 27 s, it runs on until 40 s
    assert result.outcome.end_s < 400


def test_a_turn_is_ten_times_a_long_restart() -> None:
    jobs = [job("a", 1, 100), job("b", 1, 100)]
    result = simulate("gavel:round_s=10", racks([[1]]), jobs)
    assert times(result, "b") == [70.0, 177.0]  # a first start costs nothing
    assert times(result, "a") == [0.0, 140.0]
    with pytest.raises(InputError, match="turn_restarts of policy gavel is '-1'"):
        parse_policy("gavel:turn_restarts=-1")


def test_a_job_that_must_keep_its_gpus_is_no_part_of_the_shares() -> None:
    jobs = [replace(job("kept", 1, 5000), preemptible=False), job("a", 1, 900, 10), job("b", 1, 900, 20)]
    result = simulate("gavel", racks([[2]]), jobs)
    assert times(result, "kept", "preempt") == []
    assert times(result, "kept", "end") == [5000.0]
    assert len(times(result, "a", "preempt")) >= 1


def test_a_gang_that_no_type_holds_runs_on_all_mixed_and_gets_its_turns() -> None:
    jobs = [job("mixed", 3, 1500), *(job(f"s{n}", 1, 3000) for n in range(4))]
    result = simulate("gavel", racks([[2, 1]], ("a", "b")), jobs)
    assert machines(result, "mixed")[0] == "r0m0+r0m1"
    assert len(machines(result, "mixed")) > 1
    assert result.by_job["mixed"].status == "COMPLETED"


def test_largest_gangs_are_placed_first_so_that_they_stay_together() -> None:
    jobs = [job("a", 1, 900), job("b", 1, 900), job("four", 4, 900), job("two", 2, 900)]
    result = simulate("gavel", racks([[4, 4]]), jobs)
    assert len(machines(result, "four")[0].split("+")) == 1
    assert len(machines(result, "two")[0].split("+")) == 1


def test_reasons_say_share_turns_and_objective() -> None:
    result = simulate("gavel", racks([[1]]), [job("a", 1, 1000), job("b", 1, 1000)])
    reasons = [event["reason"] for event in result.events if "reason" in event]
    assert reasons[0] == "a 0.50, had 0 of 0 rounds; las 0.5"
    assert "of 0 rounds it had 0 on a for a share of 0.50; others go first" in reasons
    assert "turn over; its GPUs go to others" in reasons


@pytest.mark.parametrize("objective", ["las", "ftf", "makespan"])
def test_every_objective_speeds_a_mixed_cluster_up(objective: str) -> None:
    """Against the same objective that takes all types for alike."""
    names = ("resnet-50", "a3c", "transformer", "lm")
    jobs = [job(f"j{n}", 1 + n % 2, 4000, model=names[n % 4]) for n in range(12)]
    jobs = [each if each.model != "a3c" else replace(each, gpus=1) for each in jobs]
    cluster = racks([[2, 2, 2]], TYPES)
    aware, blind = (
        simulate(f"gavel:objective={objective},aware={aware}", cluster, jobs, profiles=GAVEL)
        for aware in ("yes", "no")
    )
    mean = [sum(r.jct_s for r in result.outcome.records) / len(jobs) for result in (aware, blind)]
    assert mean[0] < mean[1]


@pytest.mark.parametrize(
    "policy", ["gavel:objective=ftf,hold_s=0,spare=in-order", "gavel:objective=makespan,aware=no,round_s=500"]
)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(models=("", "resnet-50", "a3c")))
def test_every_variant_ends_every_job_alike_each_time(policy: str, world: World) -> None:
    first, second = (simulate(policy, world.topology, world.jobs, world.outages, GAVEL) for _ in range(2))
    assert {record.status for record in first.outcome.records} == {"COMPLETED"}
    assert first.log == second.log


def test_shares_follow_the_machines_at_hand() -> None:
    """While the V100 is down both jobs share the K80; afterwards the shares are renewed."""
    jobs = [job("a3c", 1, 3000, model="a3c"), job("resnet", 1, 9000, model="resnet-50")]
    outages = [Outage(100.0, 0, 5000.0)]
    result = simulate("gavel", racks([[1, 1]], ("v100", "k80")), jobs, outages, GAVEL)
    assert "r0m1" in machines(result, "resnet")
    assert machines(result, "resnet")[-1] == "r0m0"


def test_what_it_learnt_survives_as_plain_data() -> None:
    state = ClusterState(racks([[1]]), CostModel(racks([[1]])))
    spec = parse_policy("gavel")
    policy, other = spec.build(state), spec.build(state)
    for each in (job("a", 1, 1000), job("b", 1, 1000)):
        policy.submitted(state.submit(each, 0.0), 0.0)
    policy.plan_applied(policy.decide(state, 0.0), state, 0.0)
    learnt = json.loads(json.dumps(policy.snapshot()))
    assert learnt["turns"]["rounds"] == 1
    other.restore(learnt)
    assert other.snapshot() == policy.snapshot()


@pytest.mark.parametrize("knob", ["hold_s=-1", "round_s=0", "objective=fifo", "aware=maybe", "hold_s=inf"])
def test_a_wrong_knob_is_an_error(knob: str) -> None:
    state = ClusterState(racks([[1]]), CostModel(racks([[1]])))
    with pytest.raises(InputError):
        parse_policy(f"gavel:{knob}").build(state)
