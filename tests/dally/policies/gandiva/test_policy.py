"""Gandiva on cases small enough to compute by hand: affinity, slices, migration."""

import pytest

from dally.profiles.files import load_profiles
from dally.testing.worlds import Result, racks, simulate
from tests.dally.policies.events import job, times

REALISTIC = load_profiles("realistic")


def machines(result: Result, name: str) -> str:
    return str(next(e["gpus"] for e in result.events if e["event"] == "start" and e["job"] == name))


def test_gangs_of_one_size_share_machines() -> None:
    jobs = [job("two", 2, 900), job("one", 1, 900), job("two2", 2, 900), job("one2", 1, 900)]
    result = simulate("gandiva", racks([[8, 8]]), jobs)
    assert machines(result, "two") == machines(result, "two2") == "{'r0m0': 2}"
    assert machines(result, "one") == machines(result, "one2") == "{'r0m1': 1}"


def test_without_an_idle_machine_the_one_with_most_free_gpus_is_shared() -> None:
    jobs = [job("two", 2, 900), job("one", 1, 900), job("four", 4, 900)]
    result = simulate("gandiva", racks([[8, 8]]), jobs)
    assert machines(result, "four") == "{'r0m1': 4}"


def test_a_machine_stays_dedicated_to_the_size_that_it_took_first() -> None:
    jobs = [job("two", 2, 900), job("one", 1, 900), job("three", 3, 900, 1), job("three2", 3, 900, 2)]
    result = simulate("gandiva", racks([[8, 8]]), jobs)
    assert machines(result, "three") == "{'r0m1': 3}"
    assert machines(result, "three2") == "{'r0m0': 3}"


def test_an_idle_machine_is_no_longer_dedicated() -> None:
    jobs = [job("two", 2, 100), job("one", 1, 900), job("four", 4, 900, 200)]
    result = simulate("gandiva", racks([[8, 8]]), jobs)
    assert machines(result, "four") == "{'r0m0': 4}"


def test_jobs_take_turns_by_slices_of_work() -> None:
    jobs = [job("a", 1, 10_000), job("b", 1, 10_000, 100)]
    result = simulate("gandiva", racks([[1]]), jobs)
    # A slice is 3600 s of work; whoever ran before first pays a restart of 7 s. At 17221 s a has ended.
    assert times(result, "a") == [0.0, 7200.0, 14_414.0]
    assert times(result, "b") == [3600.0, 10_807.0, 17_221.0]


def test_a_wide_gang_gets_its_turn_before_those_behind_it_slice() -> None:
    jobs = [
        job("a", 1, 20_000),
        job("b", 1, 20_000, 1000),
        job("wide", 2, 100, 2000),
        job("small", 1, 100, 2500),
    ]
    result = simulate("gandiva", racks([[2]]), jobs)
    assert times(result, "wide") == [4600.0]
    assert times(result, "small") == [4700.0]


def test_a_job_whose_slice_is_over_keeps_its_gpus_while_nobody_waits() -> None:
    jobs = [job("a", 1, 10_000), job("b", 1, 100, 5000)]
    result = simulate("gandiva", racks([[1]]), jobs)
    assert times(result, "a", "preempt") == times(result, "b") == [5000.0]


@pytest.mark.parametrize(("duration_s", "moves"), [(20_000.0, [1000.0]), (1001.0, [])])
def test_a_scattered_job_moves_closer_together_if_that_saves_time(
    duration_s: float, moves: list[float]
) -> None:
    jobs = [job("a", 3, 1000), job("b", 3, 50_000), job("pair", 2, duration_s, model="vgg11")]
    result = simulate("gandiva", racks([[4, 4]]), jobs, profiles=REALISTIC)
    assert times(result, "pair", "migrate") == moves
