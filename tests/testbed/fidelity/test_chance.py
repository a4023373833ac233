"""How far simulations are apart whose running times vary."""

from math import sqrt

import pytest

from dally.jobs.job import Job
from dally.policies.registry import parse_policy
from dally.testing.worlds import racks
from simulator.scenario import Scenario
from testbed.fidelity.chance import chance


def scenario(*jobs: Job) -> Scenario:
    return Scenario(racks([[4, 4]]), None, jobs, (), lambda: (), 1800.0, {})


ALONE = [Job(f"a{number}", submit_s=1000.0 * number, gpus=4, duration_s=100.0) for number in range(40)]


def test_running_times_that_do_not_vary_leave_nothing_to_chance() -> None:
    found = chance(scenario(*ALONE), parse_policy("fifo"), run_error=0.0)
    assert (found.job_error, found.makespan_error) == (0.0, 0.0)


def test_jobs_that_never_wait_are_apart_by_their_running_times_alone() -> None:
    """Of deviation s, one value is s sqrt(2 / pi) off in the mean, and two are 2 s / sqrt(pi) apart."""
    found = chance(scenario(*ALONE), parse_policy("fifo"), run_error=0.02)
    assert found.job_error == pytest.approx(sqrt(2) * 0.02, rel=0.1)
    assert found.makespan_error < 0.001


def test_where_a_moment_decides_who_goes_first_jobs_are_much_further_apart() -> None:
    """Two jobs end at nearly the same time; who comes next gets the place of the first, or waits long."""
    first = [Job("x", 0.0, 4, 100.0), Job("y", 0.0, 4, 100.5)]
    later = [Job("wide", 1.0, 8, 50.0), Job("small", 2.0, 4, 5.0)]
    found = chance(scenario(*first, *later), parse_policy("fifo:backfill=easy"), run_error=0.02)
    assert found.job_error > 3 * 0.02


def test_the_same_is_said_each_time() -> None:
    one, other = (chance(scenario(*ALONE[:3]), parse_policy("fifo"), run_error=0.05) for _ in range(2))
    assert one == other
