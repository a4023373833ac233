"""The exact simulation of shared links by hand, and the simulator's model held against it."""

import pytest

from analysis.studies.contention_validation import (
    Cycle,
    exact,
    fair_rates,
    measured_table,
    shared,
    split_evenly,
)

ONE = {0: 1.0}


def test_rates_are_max_min_fair() -> None:
    small, large, far = Cycle(1, 1, 0.2, (0,)), Cycle(1, 1, 1, (0,)), Cycle(1, 1, 1, (0, 1))
    assert fair_rates({0: small, 1: large}, ONE) == pytest.approx({0: 0.2, 1: 0.8})
    rates = fair_rates({0: small, 1: large, 2: far}, {0: 1.0, 1: 0.3})
    assert rates == pytest.approx({0: 0.2, 1: 0.5, 2: 0.3})
    assert fair_rates({}, ONE) == {}


def test_a_job_alone_takes_what_it_takes_alone() -> None:
    assert exact([Cycle(2, 3, 0.5, (0,))], ONE) == pytest.approx([8])


def test_two_jobs_that_only_send_take_twice_as_long() -> None:
    jobs = [Cycle(0, 1, 1, (0,))] * 2
    assert exact(jobs, ONE) == pytest.approx([2, 2])
    assert shared(jobs, ONE) == pytest.approx([2, 2])


def test_a_job_that_only_sends_gets_what_one_that_sends_seldom_leaves() -> None:
    jobs = [Cycle(0, 0.1, 1, (0,)), Cycle(3, 1, 1, (0,))]
    truth, told = exact(jobs, ONE), shared(jobs, ONE)
    assert told == pytest.approx(truth, rel=0.01)
    assert split_evenly(jobs, ONE)[0] > 1.1 * truth[0]


def test_four_jobs_of_all_kinds_are_foretold_within_a_tenth() -> None:
    jobs = [Cycle(1, 1, 1, (0,)), Cycle(0.3, 2, 0.8, (0,)), Cycle(4, 1, 1, (0,)), Cycle(0.5, 0.2, 0.4, (0,))]
    runs = [exact(jobs, ONE, seed) for seed in range(4)]
    mean = [sum(times) / len(times) for times in zip(*runs, strict=True)]
    assert shared(jobs, ONE) == pytest.approx(mean, rel=0.1)


def test_the_two_measured_jobs_are_foretold_within_2_percent() -> None:
    assert "| `dally.profiles.contention` | 1.36 | +1% |" in measured_table()
