"""Running times by the formulas of JPS, and Jain's index."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.policies.jps.instance import Instance, jain
from tests.dally.policies.jps.instances import BY_HAND


def test_a_jobs_workers_finish_together_and_then_reduce_by_a_ring() -> None:
    times = BY_HAND.times_s(np.array([[2, 0], [0, 2]]))
    assert times == pytest.approx([12 / 2 + 4 / 2, 12 / 8])
    times = BY_HAND.times_s(np.array([[2, 1], [0, 1]]))
    assert times == pytest.approx([12 / 4 + 4 * 2 / 3, 3])


def test_one_worker_does_not_communicate() -> None:
    assert BY_HAND.all_reduce_s(np.array([1, 1])) == pytest.approx([0, 0])


def test_a_worker_that_is_not_accepted_never_finishes() -> None:
    typed = Instance(
        np.array([[1.0, 0.0]]),
        np.array([1, 1]),
        np.array([1.0]),
        np.array([0.0]),
        np.array([1]),
        np.array([2]),
    )
    assert typed.times_s(np.array([[1, 0]])) == pytest.approx([1])
    assert typed.times_s(np.array([[1, 1]])) == pytest.approx([np.inf])
    assert typed.mean_speeds == pytest.approx([1]), "of the workers accepted"


def test_an_equal_share_has_its_part_of_each_kind() -> None:
    assert BY_HAND.equal_share_s() == pytest.approx([12 / 3 + 4 / 2, 12 / 5])


@given(values=st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=20))
def test_jains_index_is_between_one_over_the_number_and_one(values: list[float]) -> None:
    assert 1 / len(values) - 1e-9 <= jain(np.array(values)) <= 1 + 1e-9


def test_jains_index_is_one_for_equals_and_least_if_one_has_all() -> None:
    assert jain(np.array([3.0, 3.0, 3.0])) == pytest.approx(1)
    assert jain(np.array([0.0, 5.0, 0.0, 0.0])) == pytest.approx(1 / 4)
