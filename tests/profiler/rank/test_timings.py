import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.orders import Order
from profiler.rank.timings import LEAST, affordable_repetitions, keep_typical, outlier_flag, summarise
from workloads.settings import Backend

DURATIONS = st.lists(st.floats(1e-6, 1e3), min_size=3, max_size=40)


def kept(durations: list[float]) -> list[float]:
    return keep_typical(durations, duration_s=float)


def test_a_far_outlier_is_dropped() -> None:
    assert kept([1.0, 1.1, 0.9, 1.0, 1.05, 9.0]) == [1.0, 1.1, 0.9, 1.0, 1.05]


def test_what_lies_within_two_percent_of_the_median_is_no_outlier() -> None:
    durations = [1.0, 1.0, 1.0, 1.0, 1.0, 1.019]
    assert kept(durations) == durations


def test_among_few_samples_there_are_no_outliers() -> None:
    assert kept([1.0, 1.0, 1.0, 9.0]) == [1.0, 1.0, 1.0, 9.0]


@given(DURATIONS)
def test_at_least_half_of_the_samples_are_kept(durations: list[float]) -> None:
    assert len(kept(durations)) >= len(durations) / 2


@given(DURATIONS)
def test_a_summary_is_ordered_and_lies_within_the_samples(durations: list[float]) -> None:
    timing = summarise(durations)
    assert timing.p10_s is not None
    assert timing.p90_s is not None
    assert timing.p10_s <= timing.median_s <= timing.p90_s
    assert timing.p10_s >= min(durations) * (1 - 1e-9)
    assert timing.p90_s <= max(durations) * (1 + 1e-9)
    assert timing.median_s == statistics.median(durations)
    assert timing.n == len(durations)


@pytest.mark.parametrize(
    ("once_s", "repetitions"), [(0.1, 30), (0.5, 20), (2.0, 5), (60.0, LEAST), (0.0, 30)]
)
def test_repetitions_fill_the_budget_but_are_three_at_least(once_s: float, repetitions: int) -> None:
    order = Order((), Backend.GLOO, repetitions=30, budget_s=10.0)
    assert affordable_repetitions(once_s, order) == repetitions


def test_one_outlier_and_a_tenth_are_not_worth_a_flag() -> None:
    assert outlier_flag("the iteration", kept=3, made=4) == ()
    assert outlier_flag("the iteration", kept=27, made=30) == ()


def test_more_outliers_are_flagged_with_their_number() -> None:
    assert outlier_flag("the iteration", kept=26, made=30) == (
        "4 of 30 repetitions of the iteration were outliers",
    )
