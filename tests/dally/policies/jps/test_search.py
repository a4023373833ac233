"""The search against enumeration, and the exact optimum against all assignments."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.policies.jps.categories import count_categories, guided_category
from dally.policies.jps.descent import descend, exchange
from dally.policies.jps.instance import Instance
from dally.policies.jps.market import price_ascent
from dally.policies.jps.search import FoundPlacement, Search
from tests.dally.policies.jps.instances import BY_HAND, bounded, instances


def test_the_best_category_of_the_instance_by_hand_is_found() -> None:
    for found in (Search(BY_HAND).enumerated(), Search(BY_HAND).guided(10)):
        assert found.given.tolist() == [[0, 1], [2, 1]]
        assert found.mean_s == pytest.approx((6 + 2) / 2)


def feasible(found: FoundPlacement, instance: Instance) -> bool:
    sizes = found.given.sum(axis=1)
    bounds = (sizes >= instance.least).all() and (sizes <= instance.most).all()
    return bool(bounds and (found.given.sum(axis=0) <= instance.workers).all())


@settings(max_examples=50, deadline=None)
@given(instance=bounded(), beta=st.sampled_from([0.0, 0.5]), seed=st.integers(0, 9))
def test_searches_keep_the_bounds_and_never_beat_enumeration_by_more_than_a_match_is_off(
    instance: Instance, beta: float, seed: int
) -> None:
    drawn = Search(instance, beta).sampled(np.random.default_rng(seed), 5, 0.4)
    guided = Search(instance, beta, price_ascent).guided(6)
    for found in (drawn, guided):
        assert feasible(found, instance)
        assert int(found.given.sum()) == instance.placed
        assert found.times_s == pytest.approx(instance.times_s(found.given))
        assert found.markets <= 6


@settings(max_examples=50, deadline=None)
@given(instance=bounded())
def test_descents_only_help_and_exchanges_keep_the_category(instance: Instance) -> None:
    start = Search(instance)
    start.hold(instance.least if instance.placed == instance.least.sum() else _some(instance))
    assert start.best is not None
    before = start.best.given
    swapped, lowest = exchange(instance, before), descend(instance, before)
    assert (swapped.sum(axis=1) == before.sum(axis=1)).all()
    assert (swapped.sum(axis=0) == before.sum(axis=0)).all()
    assert (lowest.sum(axis=0) == before.sum(axis=0)).all()
    times = [float(instance.times_s(each).sum()) for each in (before, swapped, lowest)]
    assert times[0] + 1e-9 >= times[1] >= times[2] - 1e-9


def _some(instance: Instance) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    sizes = instance.least.copy()
    for job in range(len(sizes)):
        sizes[job] += min(int(instance.most[job] - sizes[job]), instance.placed - int(sizes.sum()))
    return sizes


def test_skipping_the_least_even_categories_holds_fewer_markets() -> None:
    instance = BY_HAND
    rng = np.random.default_rng(0)
    number = count_categories(instance)
    assert Search(instance).sampled(rng, 4 * number, 0.0).markets == number
    assert Search(instance).sampled(rng, 4 * number, 0.75).markets == number - int(0.75 * number)
    assert Search(instance).sampled(rng, number, 1.0).markets == 1


@settings(max_examples=30, deadline=None)
@given(instance=instances())
def test_weighing_fairness_never_lowers_it(instance: Instance) -> None:
    """Over all categories: who minimises a sum with more weight on unfairness has no more of it."""
    fast, fair = Search(instance).enumerated(), Search(instance, beta=0.9).enumerated()
    assert fair.fairness >= fast.fairness - 1e-9
    assert fair.mean_s >= fast.mean_s - 1e-9


def test_the_guided_search_leaves_a_category_that_types_make_impossible() -> None:
    """Two jobs accept only workers of which there are two; the category gives them three."""
    instance = Instance(
        speeds=np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]),
        workers=np.array([2, 2]),
        work=np.array([100.0, 1.0, 1.0]),
        comm_s=np.array([0.0, 0.0, 0.0]),
        least=np.array([1, 1, 1]),
        most=np.array([2, 2, 2]),
    )
    assert guided_category(instance).tolist() == [2, 1, 1]
    assert Search(instance).guided(6).given.tolist() == [[1, 0], [1, 0], [0, 2]]
