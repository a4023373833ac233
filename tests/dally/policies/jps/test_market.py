"""Matching markets against all assignments."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.policies.common.arrays import Floats, Ints
from dally.policies.jps.categories import list_categories
from dally.policies.jps.instance import Instance
from dally.policies.jps.market import STEP, hungarian, match, price_ascent, transport
from tests.dally.policies.jps.instances import BY_HAND, bounded, instances


@st.composite
def markets(draw: st.DrawFn) -> tuple[Floats, Ints, Ints]:
    """Worths, sizes and workers of up to six workers, not all of which need find a job."""
    instance = draw(instances())
    sizes = draw(st.sampled_from([*list_categories(instance)]))
    if sizes[0] > 1:
        sizes[0] -= draw(st.integers(0, int(sizes[0]) - 1))
    return instance.speeds, sizes, instance.workers


def best_worth(worths: Floats, sizes: Ints, workers: Ints) -> float:
    """The greatest worth of all assignments."""
    jobs, kinds = np.repeat(np.arange(len(sizes)), sizes), np.repeat(np.arange(len(workers)), workers)
    return max(float(worths[jobs, [*some]].sum()) for some in set(permutations(kinds, len(jobs))))


@settings(max_examples=40, deadline=None)
@given(market=markets())
def test_the_hungarian_method_finds_the_greatest_worth(market: tuple[Floats, Ints, Ints]) -> None:
    worths, sizes, workers = market
    found = hungarian(worths, sizes, workers)
    assert (found.sum(axis=1) == sizes).all()
    assert (found.sum(axis=0) <= workers).all()
    assert float((found * worths).sum()) == pytest.approx(best_worth(*market))


@settings(max_examples=30, deadline=None)
@given(market=markets())
def test_the_linear_program_finds_as_much(market: tuple[Floats, Ints, Ints]) -> None:
    worths, sizes, workers = market
    found = transport(worths, sizes, workers)
    assert (found.sum(axis=1) == sizes).all()
    assert (found.sum(axis=0) <= workers).all()
    assert float((found * worths).sum()) == pytest.approx(float((hungarian(*market) * worths).sum()))


@settings(max_examples=60, deadline=None)
@given(market=markets(), step=st.sampled_from([0.2, STEP, 0.001]))
def test_rising_prices_end_within_a_step_for_each_worker_given(
    market: tuple[Floats, Ints, Ints], step: float
) -> None:
    worths, sizes, workers = market
    found = price_ascent(worths, sizes, workers, step)
    assert (found.sum(axis=1) == sizes).all()
    assert (found.sum(axis=0) <= workers).all()
    best = float((hungarian(worths, sizes, workers) * worths).sum())
    assert float((found * worths).sum()) >= best - step * worths.max() * sizes.sum() - 1e-9


@pytest.mark.parametrize("assign", [hungarian, price_ascent])
@settings(max_examples=30, deadline=None)
@given(instance=bounded(), data=st.data())
def test_a_match_gives_each_job_its_number_of_workers(
    assign: object, instance: Instance, data: st.DataObject
) -> None:
    sizes = data.draw(st.sampled_from([*list_categories(instance)]))
    found = match(instance, sizes, hungarian if assign is hungarian else price_ascent)
    assert (found >= 0).all()
    assert (found.sum(axis=1) == sizes).all()
    assert (found.sum(axis=0) <= instance.workers).all()


@pytest.mark.parametrize(
    ("sizes", "given_"),
    [([2, 2], [[1, 1], [1, 1]]), ([1, 3], [[0, 1], [2, 1]]), ([3, 1], [[2, 1], [0, 1]])],
)
def test_fast_workers_go_where_they_save_most(sizes: list[int], given_: list[list[int]]) -> None:
    """Computed by hand, where the instance is defined."""
    assert match(BY_HAND, np.array(sizes), hungarian).tolist() == given_


def test_a_worker_that_a_job_does_not_accept_is_never_given_where_others_suffice() -> None:
    typed = Instance(
        speeds=np.array([[1.0, 0.0], [1.0, 9.0]]),
        workers=np.array([2, 2]),
        work=np.array([1.0, 100.0]),
        comm_s=np.zeros(2),
        least=np.array([1, 1]),
        most=np.array([3, 3]),
    )
    for assign in (hungarian, price_ascent):
        assert match(typed, np.array([2, 2]), assign).tolist() == [[2, 0], [0, 2]]
