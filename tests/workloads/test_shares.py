"""Whole things are divided in proportion to weights, and no rank is left without a sample."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.errors import InputError
from workloads.shares import local_batches, split

WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=20)


@given(st.integers(0, 10_000), WEIGHTS)
def test_parts_sum_up_and_are_within_one_of_proportional(total: int, weights: list[float]) -> None:
    parts = split(total, weights)
    assert sum(parts) == total
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - total * weight / sum(weights)) < 1 + 1e-6


@given(st.integers(0, 1000), st.integers(1, 20))
def test_equal_weights_give_the_first_parts_one_more(total: int, count: int) -> None:
    least, more = divmod(total, count)
    assert split(total, [1.0] * count) == (least + 1,) * more + (least,) * (count - more)


def test_what_is_left_goes_to_the_largest_remainders() -> None:
    assert split(10, [2, 1, 1]) == (5, 3, 2)
    assert split(8, [0.5, 0.3, 0.2]) == (4, 2, 2)


def test_a_rank_without_a_sample_is_refused() -> None:
    assert local_batches(8, 3, None) == (3, 3, 2)
    with pytest.raises(InputError, match="global batch is 8, which leaves rank 1 of 2 no sample"):
        local_batches(8, 2, [100, 1])
    with pytest.raises(InputError, match="shares are 2 and ranks 3, must be as many"):
        local_batches(8, 3, [1, 1])
