"""Categories: all, drawn, guided."""

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.policies.jps.categories import (
    count_categories,
    guided_category,
    least_even_first,
    list_categories,
    sample_categories,
)
from dally.policies.jps.instance import Instance
from tests.dally.policies.jps.instances import bounded, instances


@given(instance=instances(most_jobs=4, most_workers=9))
def test_unbounded_sizes_have_as_many_categories_as_there_are_ways_to_cut(instance: Instance) -> None:
    jobs, workers = len(instance.work), int(instance.workers.sum())
    assert count_categories(instance) == comb(workers - 1, jobs - 1)


@given(instance=bounded())
def test_all_categories_are_listed_once(instance: Instance) -> None:
    listed = [tuple(sizes) for sizes in list_categories(instance)]
    assert len(set(listed)) == len(listed) == count_categories(instance)


def test_listing_looks_at_no_sizes_that_leave_too_much_for_the_jobs_behind() -> None:
    """Forty jobs that can use just what there is: looking at all of their sizes would never end."""
    instance = sized([1] * 40, [4] * 40, 160)
    assert [sizes.tolist() for sizes in list_categories(instance)] == [[4] * 40]
    assert sample_categories(instance, np.random.default_rng(0), 30).tolist() == [[4] * 40]


@settings(deadline=None)
@given(instance=bounded(), seed=st.integers(0, 100))
def test_drawn_and_guided_categories_are_among_them(instance: Instance, seed: int) -> None:
    known = {tuple(sizes) for sizes in list_categories(instance)}
    drawn = sample_categories(instance, np.random.default_rng(seed), 5)
    assert {tuple(sizes) for sizes in drawn} <= known
    assert tuple(guided_category(instance)) in known


def sized(least: list[int], most: list[int], workers: int) -> Instance:
    jobs = len(least)
    return Instance(
        np.ones((jobs, 1)),
        np.array([workers]),
        np.ones(jobs),
        np.zeros(jobs),
        np.array(least),
        np.array(most),
    )


@pytest.mark.parametrize("each", [1, 2, 4])
def test_categories_are_drawn_uniformly(each: int) -> None:
    """Six of them, 6,000 draws, `each` at a time: each count is within five standard deviations of 1,000."""
    instance, rng = sized([1, 1, 2], [4, 2, 4], 7), np.random.default_rng(7)
    assert count_categories(instance) == 6
    drawn = np.vstack([sample_categories(instance, rng, each) for _ in range(6000 // each)])
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == 6
    assert abs(counts - 1000).max() < 5 * np.sqrt(6000 * 1 / 6 * 5 / 6)


@given(instance=bounded(), seed=st.integers(0, 100), count=st.integers(1, 40))
def test_no_category_is_drawn_twice(instance: Instance, seed: int, count: int) -> None:
    drawn = sample_categories(instance, np.random.default_rng(seed), count)
    assert len({tuple(sizes) for sizes in drawn}) == len(drawn) == min(count, count_categories(instance))


def test_drawing_for_many_jobs_stays_within_floating_point() -> None:
    drawn = sample_categories(sized([1] * 300, [500] * 300, 600), np.random.default_rng(1), 2)
    assert (drawn.sum(axis=1) == 600).all()
    assert drawn.min() >= 1


def test_guided_sizes_go_by_the_square_root_of_the_work() -> None:
    instance = Instance(
        np.ones((2, 1)),
        np.array([12]),
        np.array([1.0, 4.0]),
        np.zeros(2),
        np.array([1, 1]),
        np.array([11, 11]),
    )
    assert guided_category(instance).tolist() == [4, 8]


def test_least_even_categories_come_first() -> None:
    ordered = least_even_first(np.array([[3, 3], [1, 5], [2, 4]]))
    assert ordered.tolist() == [[1, 5], [2, 4], [3, 3]]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_one_job_has_one_category(workers: int) -> None:
    assert [sizes.tolist() for sizes in list_categories(sized([1], [workers], workers))] == [[workers]]
