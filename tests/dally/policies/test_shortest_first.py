"""Shortest job first and shortest remaining time first, on cases small enough to compute by hand."""

import pytest

from dally.testing.worlds import racks, simulate
from tests.dally.policies.events import job, times


def test_the_shortest_waiting_job_starts_first_and_nothing_is_stopped() -> None:
    jobs = [job("a", 1, 100), job("b", 1, 50, 1), job("c", 1, 10, 2)]
    result = simulate("sjf", racks([[1]]), jobs)
    assert [times(result, name) for name in "abc"] == [[0.0], [110.0], [100.0]]


def test_equal_jobs_start_in_the_order_of_arrival() -> None:
    jobs = [job("z", 1, 100), job("y", 1, 50, 1), job("x", 1, 50, 2)]
    result = simulate("sjf", racks([[1]]), jobs)
    assert [times(result, name) for name in "yx"] == [[100.0], [150.0]]


def test_a_shorter_job_stops_a_longer_one_which_pays_its_restart() -> None:
    result = simulate("srtf", racks([[1]]), [job("long", 1, 1000), job("short", 1, 100, 10)])
    assert times(result, "short") == [10.0]
    assert times(result, "long") == [0.0, 110.0]
    assert times(result, "long", "end") == [110.0 + 7.0 + 990.0]


@pytest.mark.parametrize(("left_s", "start_s"), [(107.0, 117.0), (108.0, 10.0)])
def test_stopping_must_save_more_than_the_restart(left_s: float, start_s: float) -> None:
    jobs = [job("long", 1, 10 + left_s), job("short", 1, 100, 10)]
    assert times(simulate("srtf", racks([[1]]), jobs), "short") == [start_s]


def test_nothing_is_stopped_that_does_not_lead_to_a_start() -> None:
    jobs = [job("long", 1, 1000), job("soon", 1, 50), job("pair", 2, 100, 10)]
    result = simulate("srtf", racks([[2]]), jobs)
    assert times(result, "long", "preempt") == [50.0]
    assert times(result, "pair") == [50.0]


def test_the_job_with_most_time_left_stops() -> None:
    jobs = [job("a", 1, 500), job("b", 1, 1000), job("short", 1, 10, 100)]
    result = simulate("srtf", racks([[2]]), jobs)
    assert (times(result, "a", "preempt"), times(result, "b", "preempt")) == ([], [100.0])


def test_a_stopped_job_that_fits_elsewhere_goes_on_there_at_once() -> None:
    jobs = [job("a", 2, 900), job("b", 2, 1000), job("c", 2, 1100), job("four", 4, 100, 10)]
    result = simulate("srtf:placement=consolidated", racks([[4, 4]]), jobs)
    assert times(result, "four") == [10.0]
    assert times(result, "a", "migrate") + times(result, "b", "migrate") == []
    assert times(result, "c", "migrate") + times(result, "c", "preempt") == [10.0]


def test_a_consolidated_job_stops_only_jobs_of_one_machine() -> None:
    jobs = [job("a", 4, 1000), job("b", 2, 900), job("c", 2, 800), job("four", 4, 100, 10)]
    result = simulate("srtf:placement=consolidated", racks([[4, 4]]), jobs)
    assert [times(result, name, "preempt") for name in "abc"] == [[10.0], [], []]
