"""Time shares on cases small enough to compute by hand, and against a search of all shares in steps."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from dally.policies.gavel.shares import Demand, finish_time_fairness, least_makespan, least_served

STEPS = 10


def demand(gangs: list[float], speeds: list[list[float]], capacity: list[float]) -> Demand:
    """Each type is a pool."""
    return Demand(np.array(gangs), np.array(speeds), np.eye(len(capacity)), np.array(capacity))


def test_a_gang_of_two_gets_half_the_time_of_a_single_gpu_job() -> None:
    shares = least_served(demand([1, 2], [[1], [1]], [2]))
    assert shares.value == pytest.approx(1)
    assert shares.parts.ravel() == pytest.approx([1, 0.5], abs=1e-5)


def test_time_that_fairness_leaves_over_goes_to_all_that_can_use_it() -> None:
    """One GPU is all a job of one can have; the gang of two, content with half its time, ends in the middle.

    There (x - 1/2) (1 - x) x is greatest: slack to what is fair, to all the time, and to none.
    """
    shares = least_served(demand([1, 2], [[1], [1]], [1e6]))
    assert shares.value == pytest.approx(1)
    assert shares.parts.ravel() == pytest.approx([1, 0.5 + 1 / 12**0.5], abs=1e-4)


def test_jobs_alike_get_alike() -> None:
    """Whatever their order is: two may run on both types, two on the first only."""
    parts = least_served(demand([1, 1, 1, 1], [[1, 1], [1, 0], [1, 1], [1, 0]], [2, 2])).parts
    assert parts[0] == pytest.approx(parts[2], abs=1e-5)
    assert parts[1] == pytest.approx(parts[3], abs=1e-5)


def test_a_type_without_gpus_takes_no_time() -> None:
    shares = least_served(demand([1, 1], [[1, 0], [1, 0]], [1, 0]))
    assert shares.parts == pytest.approx(np.array([[0.5, 0], [0.5, 0]]), abs=1e-5)


def test_the_makespan_is_all_work_over_all_speed() -> None:
    shares = least_makespan(demand([1, 1], [[1, 0.5], [1, 0.5]], [1, 1]), np.array([100.0, 100.0]))
    assert shares.value == pytest.approx(200 / 1.5, rel=1e-4)


def test_for_the_makespan_time_goes_by_the_work_left() -> None:
    shares = least_makespan(demand([1, 1], [[1], [1]], [1]), np.array([100.0, 300.0]))
    assert shares.value == pytest.approx(400, rel=1e-4)
    assert shares.parts.ravel() == pytest.approx([0.25, 0.75], abs=1e-4)


def test_a_makespan_is_no_shorter_than_the_longest_job() -> None:
    shares = least_makespan(demand([1, 1], [[1], [1]], [8]), np.array([100.0, 300.0]))
    assert shares.value == pytest.approx(300, rel=1e-4)


def test_finish_time_fairness_gives_more_to_who_waited() -> None:
    """100 / (200 r - 200) + 100 / (200 r) = 1 is solved by r = 1 + 1 / sqrt(2)."""
    half = demand([1, 1], [[1], [1]], [1])
    left_s, alone_s = np.array([100.0, 100.0]), np.array([200.0, 200.0])
    shares = finish_time_fairness(half, np.array([200.0, 0.0]), left_s, alone_s)
    assert shares.value == pytest.approx(1 + 0.5**0.5, rel=0.02)
    assert shares.parts.ravel() == pytest.approx([0.5**0.5, 1 - 0.5**0.5], abs=0.02)


def test_new_equals_finish_as_if_each_had_its_half() -> None:
    half = demand([1, 1], [[1], [1]], [1])
    shares = finish_time_fairness(half, np.zeros(2), np.full(2, 100.0), np.full(2, 200.0))
    assert shares.value == pytest.approx(1, rel=0.02)
    assert shares.parts.ravel() == pytest.approx([0.5, 0.5], abs=0.01)


def test_the_middle_is_found_for_many_jobs_of_very_different_lengths() -> None:
    """A simplex method finds the same makespan; a step less careful near the end of the path finds none."""
    random, jobs = np.random.default_rng(4), 400
    levels = np.array(
        [[0.29269966, 0.92577633, 1], [0.2033274, 0.59085325, 1], [0.15879372, 0.62773307, 1], [0.3, 0.6, 1]]
    )
    speeds = levels[random.integers(0, 4, jobs)]
    gangs = random.choice([1.0, 2.0, 4.0, 8.0], jobs, p=[0.7, 0.1, 0.15, 0.05])
    left_s = 10 ** random.uniform(0, 5, jobs)
    shares = least_makespan(demand(gangs.tolist(), speeds.tolist(), [20.0] * 3), left_s)
    job, pool = np.nonzero(speeds)
    parts = np.arange(3 * jobs)
    rows = np.zeros((2 * jobs + 3, 3 * jobs + 1))
    rows[job, parts], rows[:jobs, -1] = -speeds.ravel(), left_s / left_s.max()
    rows[jobs + job, parts], rows[2 * jobs + pool, parts] = 1.0, gangs[job]
    bounds = [0.0] * jobs + [1.0] * jobs + [20.0] * 3
    most = linprog([0.0] * 3 * jobs + [-1.0], rows, bounds)
    assert shares.value == pytest.approx(left_s.max() / -most.fun, rel=1e-5)


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    speeds = st.sampled_from([0.0, 0.2, 0.5, 1.0])
    rows = [draw(st.tuples(speeds, speeds).filter(any)) for _ in range(2)]
    gangs = [draw(st.sampled_from([1, 2, 4])) for _ in rows]
    return demand(
        [float(gang) for gang in gangs], [[*row] for row in rows], [float(draw(st.integers(1, 4)))] * 2
    )


def fits(case: Demand, parts: np.ndarray) -> np.ndarray:
    """Which of many shares (cases, jobs, pools) keep time and capacity."""
    time = (parts.sum(axis=2) <= 1 + 1e-5).all(axis=1)
    gpus = (case.gangs[:, None] * parts).sum(axis=1) @ case.pools
    return np.asarray(time & (gpus <= case.capacity + 1e-4).all(axis=1))


def multiples(case: Demand, parts: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The least multiple of its target that any job reaches."""
    return np.asarray(((case.speeds * parts).sum(axis=2) / targets).min(axis=1))


SOLVER = 1e-6
"""Of the greatest multiple the solver may give away so much."""

STEPPED = np.array([*product(np.linspace(0, 1, STEPS + 1), repeat=4)]).reshape(-1, 2, 2)
"""All shares of two jobs on two types in steps."""


@settings(max_examples=60, deadline=None)
@given(case=demands(), remaining_s=st.tuples(st.integers(1, 10_000), st.integers(1, 10_000)))
def test_no_shares_are_better_and_none_takes_more_than_there_is(
    case: Demand, remaining_s: tuple[int, int]
) -> None:
    left_s = np.array(remaining_s, dtype=float)
    served, soonest = least_served(case), least_makespan(case, left_s)
    for shares, multiple, targets in (
        (served, served.value, case.fair_speeds / case.gangs),
        (soonest, 1 / soonest.value, left_s),
    ):
        assert fits(case, shares.parts[None])[0]
        assert (shares.parts[case.speeds == 0] == 0).all()
        assert multiples(case, shares.parts[None], targets)[0] == pytest.approx(
            multiple, rel=1e-3, abs=SOLVER
        )
        best = multiples(case, STEPPED, targets)[fits(case, STEPPED)].max()
        assert multiple >= best * (1 - 1e-4) - SOLVER
