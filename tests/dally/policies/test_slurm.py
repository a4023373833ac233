"""Slurm's own scheduling: the switch timer and where it counts from."""

import pytest

from tests.dally.policies.events import job, levels, times, waits
from tests.worlds import racks, simulate

# One GPU is left in each of two racks: two GPUs are free, but not under one switch.
FRAGMENTED = [job("long0", 3, 3000), job("long1", 3, 3000)]


@pytest.mark.parametrize(
    ("knobs", "start_s"), [("", 300.0), (":switch_wait_s=100", 100.0), (":switch_wait_s=0", 0.0)]
)
def test_a_job_waits_for_one_switch_until_the_timer_runs_out(knobs: str, start_s: float) -> None:
    result = simulate(f"slurm{knobs}", racks([[4], [4]]), [*FRAGMENTED, job("pair", 2, 500)])
    assert (times(result, "pair"), levels(result, "pair")) == ([start_s], ["network"])


def test_one_switch_that_comes_free_in_time_is_taken() -> None:
    jobs = [job("long0", 3, 3000), job("long1", 3, 200), job("pair", 2, 500)]
    result = simulate("slurm", racks([[4], [4]]), jobs)
    assert (times(result, "pair"), levels(result, "pair")) == ([200.0], ["machine"])
    assert waits(result, "pair") == [(0.0, 300.0)]


def test_a_gang_that_no_switch_can_hold_does_not_wait_for_one() -> None:
    result = simulate("slurm", racks([[4], [4]]), [job("wide", 6, 100)])
    assert (times(result, "wide"), levels(result, "wide")) == ([0.0], ["network"])


def test_the_timer_starts_when_the_job_is_first_looked_at() -> None:
    jobs = [*FRAGMENTED, job("wide", 8, 100), job("a", 2, 500), job("b", 2, 500)]
    result = simulate("slurm:depth=1", racks([[4], [4]]), jobs)
    assert waits(result, "a") == [(0.0, 300.0)]
    # a takes the two free GPUs at 300 s, so that b is the one behind the head from then on.
    assert times(result, "a") == [300.0]
    assert waits(result, "b") == [(0.0, None), (300.0, 600.0)]


@pytest.mark.parametrize(("duration_s", "start_s"), [(300.0, 0.0), (301.0, 800.0)])
def test_backfill_reserves_for_the_moment_when_the_timer_runs_out(duration_s: float, start_s: float) -> None:
    jobs = [*FRAGMENTED, job("pair", 2, 500), job("one", 1, duration_s)]
    result = simulate("slurm", racks([[4], [4]]), jobs)
    assert times(result, "pair") == [300.0]
    assert times(result, "one") == [start_s]
