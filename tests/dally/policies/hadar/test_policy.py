"""Hadar on cases small enough to see what is best: types, mixed gangs, rounds, and who gives way."""

import re

import pytest

from dally.cluster.topology import Topology
from dally.errors import InputError
from dally.jobs.job import Job
from dally.policies.registry import parse_policy
from dally.profiles.files import load_profiles
from dally.testing.worlds import Result, racks, simulate
from tests.dally.policies.events import job, times

GAVEL = load_profiles("gavel")
MODEL = "resnet-50"
GREEDY = "hadar:exact=0"

both = pytest.mark.parametrize("policy", ["hadar", GREEDY])


def cluster(*machines: int) -> Topology:
    """One rack: v100, p100, k80, v100, ... with so many GPUs."""
    return racks([machines], ("v100", "p100", "k80"))


def run(policy: str, topology: Topology, jobs: list[Job]) -> Result:
    return simulate(policy, topology, jobs, profiles=GAVEL)


def placed(result: Result, name: str) -> list[str]:
    """Where a job started or moved to: the machines, in order."""
    moves = [e for e in result.events if e["event"] in ("start", "migrate") and e["job"] == name]
    return ["+".join(e["gpus"]) for e in moves]


@both
def test_the_first_job_takes_the_fastest_type_and_the_next_what_is_left(policy: str) -> None:
    jobs = [job(name, 1, 4000, model=MODEL) for name in ("a", "b", "c")]
    result = run(policy, cluster(1, 1, 1), jobs)
    assert [placed(result, name)[0] for name in ("a", "b", "c")] == ["r0m0", "r0m1", "r0m2"]


@both
def test_a_job_moves_to_a_faster_type_that_came_free_if_that_is_worth_a_restart(policy: str) -> None:
    jobs = [job("short", 1, 500, model=MODEL), job("long", 1, 20_000, model=MODEL)]
    result = run(policy, cluster(1, 1), jobs)
    assert placed(result, "long") == ["r0m1", "r0m0"]
    assert times(result, "long", "migrate") == [720.0]


@both
def test_a_job_that_has_almost_ended_does_not_move(policy: str) -> None:
    """At 720 s it has some 7 s of work left, less than a restart."""
    slowdown = 0.20456910475738363 / 0.12841479138740497
    jobs = [job("short", 1, 500, model=MODEL), job("other", 1, 724 / slowdown, model=MODEL)]
    result = run(policy, cluster(1, 1), jobs)
    assert times(result, "other", "migrate") == []


@both
def test_a_gang_mixes_types_where_no_type_has_enough(policy: str) -> None:
    result = run(policy, cluster(2, 2, 1), [job("gang", 4, 1000, model=MODEL)])
    assert placed(result, "gang") == ["r0m0+r0m1"]


@pytest.mark.parametrize("policy", ["hadar:mixed=no", "hadar:mixed=no,exact=0"])
def test_without_mixing_a_gang_takes_one_type_unless_none_holds_it(policy: str) -> None:
    four, five = job("four", 4, 1000, model=MODEL), job("five", 5, 1000, model=MODEL)
    assert placed(run(policy, cluster(2, 2, 4), [four]), "four") == ["r0m2"]
    assert placed(run("hadar", cluster(2, 2, 4), [four]), "four") == ["r0m0+r0m1"]
    assert placed(run(policy, cluster(2, 2, 4), [five]), "five") == ["r0m0+r0m1+r0m2"]
    apart = Job("apart", 0, 2, 1000, model=MODEL, gpus_per_machine=1)
    assert placed(run(policy, cluster(2, 2), [apart]), "apart") == ["r0m0+r0m1"]


@pytest.mark.parametrize("policy", ["hadar:floor=0.9", "hadar:floor=0.9,exact=0"])
def test_who_cannot_pay_runs_all_the_same_on_what_nobody_pays_for(policy: str) -> None:
    """They wait so long for the first to end that none is worth nine tenths of the price."""
    jobs = [job("first", 1, 40_000), job("second", 1, 1000), job("third", 1, 1000)]
    result = run(policy, racks([[1]]), jobs)
    assert {event["job"] for event in result.events if event["event"] == "end"} == {
        "first",
        "second",
        "third",
    }


@both
def test_jobs_arrive_between_rounds_and_start_at_the_next(policy: str) -> None:
    jobs = [job("a", 1, 5000), job("b", 1, 5000, 100)]
    result = run(policy, racks([[4]]), jobs)
    assert times(result, "a") == [0.0]
    assert times(result, "b") == [360.0]


@both
def test_who_waited_long_gives_way_to_a_newcomer_whose_utility_is_higher(policy: str) -> None:
    """Work per second since arrival: b will have done 4000 s after 7900 s, c could do 1000 s after 1020 s."""
    jobs = [job("a", 1, 4000), job("b", 1, 4000, 100), job("c", 1, 1000, 4300)]
    result = run(policy, racks([[1]]), jobs)
    assert times(result, "a", "preempt") == []
    assert times(result, "b", "preempt") == times(result, "c") == [4320.0]
    assert times(result, "b") == [4000.0, 5320.0]


def test_completion_prefers_the_short_job_and_throughput_is_indifferent() -> None:
    jobs = [job("long", 1, 9000), job("short", 1, 900)]
    assert times(run("hadar:utility=completion", racks([[1]]), jobs), "short") == [0.0]
    assert times(run("hadar", racks([[1]]), jobs), "long") == [0.0]


@both
def test_jobs_that_must_not_be_preempted_keep_their_gpus(policy: str) -> None:
    fixed = Job("fixed", 0.0, 1, 9000.0, model=MODEL, preemptible=False)
    jobs = [fixed, job("late", 1, 100, 8000, model=MODEL)]
    result = run(policy, cluster(1, 1), jobs)
    assert placed(result, "late") == ["r0m1"]


@both
def test_a_round_in_which_nothing_is_better_changes_nothing(policy: str) -> None:
    jobs = [job(f"j{n}", 1, 5000 + n, model=MODEL) for n in range(5)]
    result = run(policy, cluster(2, 2, 2), jobs)
    early = [event for event in result.events if 0 < event["t"] < 5000]
    assert early == []


@both
def test_many_jobs_on_few_gpus_all_end(policy: str) -> None:
    jobs = [job(f"j{n}", 1 + n % 3, 500.0 + 700 * (n % 5), 50.0 * n, MODEL) for n in range(30)]
    result = run(policy, cluster(1, 1, 1), jobs)
    assert {record.status for record in result.outcome.records} == {"COMPLETED"}


@both
def test_reasons_give_payoff_utility_and_price(policy: str) -> None:
    result = run(policy, racks([[1]]), [job("a", 1, 9000), job("b", 1, 9000)])
    start, wait = (next(e for e in result.events if e["event"] == kind) for kind in ("start", "wait"))
    assert re.fullmatch(
        r"payoff 1 = utility 1 - price [\d.e-]+ for 1 GPU at 1.00 of its best speed; waited 0 s",
        start["reason"],
    )
    assert "utility 1 at best for each of 1 GPU" in wait["reason"]


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match="exact of policy hadar is '-1', must be: whole number, at least 0"):
        parse_policy("hadar:exact=-1")
