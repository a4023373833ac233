"""Delay timers and the auto-tuner, by the published formulas."""

import json
from statistics import mean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.policies.dally.policy import DallyKnobs, build_timers
from dally.policies.dally.timers import FixedTimers, TunedTimers, WaitHistory

LEASE_S = 3600.0


def tuner(levels: int = 2) -> TunedTimers:
    return TunedTimers(levels, LEASE_S, horizon=24)


def leases(delays_s: tuple[float, ...]) -> list[float]:
    return [delay / LEASE_S for delay in delays_s]


def test_without_history_the_floors_hold() -> None:
    assert leases(tuner().delays_s(8, now=0)) == [6, 12]


def test_mean_plus_two_population_deviations_rounded_up() -> None:
    timers = tuner()
    for waited in (8, 10, 12):
        timers.record(0, 8, waited * LEASE_S, now=0)
    # 10 + 2 * sqrt(8 / 3) = 13.27
    assert leases(timers.delays_s(8, now=0)) == [14, 12]


def test_the_machine_timer_is_capped_at_four_fifths_of_the_horizon_rounded_up() -> None:
    timers = tuner()
    timers.record(0, 8, 100 * LEASE_S, now=0)
    timers.record(1, 8, 100 * LEASE_S, now=0)
    assert leases(timers.delays_s(8, now=0)) == [20, 24]


def test_each_gang_size_learns_for_itself() -> None:
    timers = tuner()
    timers.record(0, 8, 15 * LEASE_S, now=0)
    assert leases(timers.delays_s(4, now=0)) == [6, 12]
    assert leases(timers.delays_s(8, now=0)) == [15, 12]


def test_waits_under_one_lease_teach_nothing() -> None:
    timers = tuner()
    timers.record(0, 8, 15 * LEASE_S, now=0)
    for _ in range(50):
        timers.record(0, 8, LEASE_S - 1, now=0)
    assert leases(timers.delays_s(8, now=0)) == [15, 12]


def test_a_wait_of_one_lease_counts() -> None:
    timers = tuner()
    timers.record(0, 8, LEASE_S, now=0)
    timers.record(0, 8, LEASE_S - 1, now=0)
    assert timers.observations(0, 8, now=0) == 1


def test_waits_older_than_the_horizon_are_forgotten() -> None:
    timers = tuner()
    timers.record(0, 8, 15 * LEASE_S, now=0)
    assert leases(timers.delays_s(8, now=24 * LEASE_S))[0] == 15
    assert leases(timers.delays_s(8, now=24 * LEASE_S + 1))[0] == 6
    assert timers.observations(0, 8, now=24 * LEASE_S + 1) == 0


def test_a_placement_at_the_top_teaches_nothing() -> None:
    timers = tuner()
    timers.record(2, 8, 15 * LEASE_S, now=0)
    assert timers.snapshot() == {}


def test_the_floor_grows_with_the_level_in_deeper_trees() -> None:
    assert leases(tuner(levels=3).delays_s(8, now=0)) == [6, 12, 18]


def test_what_was_learnt_survives_a_restart() -> None:
    timers, restarted = tuner(), tuner()
    timers.record(0, 8, 9.5 * LEASE_S, now=10)
    timers.record(1, 16, 20 * LEASE_S, now=20)
    restarted.restore(json.loads(json.dumps(timers.snapshot())))
    assert restarted.delays_s(8, 30) == timers.delays_s(8, 30)
    assert restarted.delays_s(16, 30) == timers.delays_s(16, 30)
    assert leases(restarted.delays_s(16, 30)) == [6, 20]


@given(waits=st.lists(st.tuples(st.integers(0, 100), st.integers(1_000_000, 30_000_000)), max_size=30))
def test_running_sums_are_those_of_a_plain_list(waits: list[tuple[int, int]]) -> None:
    history, plain = WaitHistory(), list[tuple[int, int]]()
    for time, wait in sorted(waits):
        history.add(time, wait, time - 20)
        plain = [(at, value) for at, value in [*plain, (time, wait)] if at >= time - 20]
    values = [wait / 1e6 for _, wait in plain]
    expected = mean(values) + 2 * pstdev(values) if values else 1.0
    assert history.estimate() == pytest.approx(expected)
    assert [*history.entries] == plain


def test_fixed_timers() -> None:
    assert build_timers(DallyKnobs("no-wait"), 2).delays_s(8, 0) == (0, 0)
    assert build_timers(DallyKnobs("consolidated"), 2).delays_s(8, 0) == (float("inf"),) * 2
    assert FixedTimers((1.0, 2.0)).delays_s(8, 99) == (1.0, 2.0)
