import itertools
import statistics
from collections.abc import Iterable
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from profiler.rank import timings
from profiler.rank.clocks import Clock
from profiler.rank.exchange import RankExchange
from profiler.rank.timings import (
    LEAST,
    Warmth,
    affordable_repetitions,
    keep_typical,
    outlier_flag,
    summarise,
    warm_up,
    warmth_flag,
)
from profiler.spec import MeasurementSpec
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
    spec = MeasurementSpec((), Backend.GLOO, repetitions=30, budget_s=10.0)
    assert affordable_repetitions(once_s, spec) == repetitions


def test_one_outlier_and_a_tenth_are_not_worth_a_flag() -> None:
    assert outlier_flag("the iteration", kept=3, made=4) == ()
    assert outlier_flag("the iteration", kept=27, made=30) == ()


def test_more_outliers_are_flagged_with_their_number() -> None:
    assert outlier_flag("the iteration", kept=26, made=30) == (
        "4 of 30 repetitions of the iteration were outliers",
    )


def warmed(
    monkeypatch: pytest.MonkeyPatch, durations_s: Iterable[float], warmup_s: float = 10.0, least: int = 1
) -> tuple[Warmth, int]:
    """A warm-up of something that lasts so long each time, and how often it was done."""
    now_s, done = 0.0, 0
    durations = iter(durations_s)

    def once() -> None:
        nonlocal now_s, done
        now_s += next(durations)
        done += 1

    monkeypatch.setattr(timings, "time", SimpleNamespace(perf_counter=lambda: now_s))
    spec = MeasurementSpec((), Backend.GLOO, repetitions=1000, budget_s=10.0, warmup_s=warmup_s)
    return warm_up(once, Clock(torch.device("cpu")), RankExchange(0, 1), spec, least), done


def test_a_warm_up_lasts_until_times_settle_however_many_repetitions_that_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    falling = (max(0.05, 0.2 * 0.98**step) for step in itertools.count())
    warmth, done = warmed(monkeypatch, falling)
    assert warmth == Warmth(200, True)
    assert done > 70, "it falls to a quarter over 69 repetitions"


def test_times_that_are_steady_from_the_beginning_are_warm_after_two_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert warmed(monkeypatch, itertools.repeat(0.1)) == (Warmth(100, True), 6)


def test_what_never_settles_ends_at_the_bound_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    growing = (0.01 * 1.1**step for step in itertools.count())
    warmth, done = warmed(monkeypatch, growing, warmup_s=5.0)
    assert not warmth.settled
    assert sum(0.01 * 1.1**step for step in range(done - 1)) < 5.0
    assert warmth_flag("the iteration", warmth.settled, MeasurementSpec((), Backend.GLOO, warmup_s=5.0)) == (
        "the iteration had not settled after 5 s of warm-up",
    )


def test_what_takes_longer_than_the_bound_is_done_no_more_than_it_must(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert warmed(monkeypatch, itertools.repeat(60.0))[1] == 1
    assert warmed(monkeypatch, itertools.repeat(60.0), least=2) == (Warmth(LEAST, True), 2)


def test_what_has_settled_needs_no_word() -> None:
    assert warmth_flag("the iteration", True, MeasurementSpec((), Backend.GLOO)) == ()
