"""The split of a forked job's steps over its copies, and the weights of their results."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.errors import InputError
from dally.policies.hadar_e.job_tracker import consolidation_weights, slot_steps, split_steps

RATES = st.lists(st.floats(0.01, 50), min_size=1, max_size=6)


def test_a_long_job_fills_the_slot_less_the_overhead() -> None:
    assert split_steps(10_000, [10.0, 2.5], slot_s=90, overhead_s=10) == (800, 200)


def test_the_last_steps_are_split_so_that_all_copies_end_together() -> None:
    assert split_steps(100, [3.0, 1.0], slot_s=360, overhead_s=10) == (75, 25)


def test_steps_too_many_by_rounding_up_are_taken_from_the_last_copies() -> None:
    assert split_steps(10, [1.0, 1.0, 1.0], slot_s=360, overhead_s=0) == (4, 4, 2)


def test_a_slot_no_longer_than_the_overhead_trains_nothing() -> None:
    assert split_steps(10, [1.0], slot_s=10, overhead_s=10) == (0,)
    assert slot_steps(1.0, 10, 20) == 0


@given(remaining=st.integers(0, 10_000), rates=RATES, slot_s=st.floats(1, 1000))
def test_a_split_asks_of_no_copy_more_than_it_can_do_and_of_all_no_more_than_remains(
    remaining: int, rates: list[float], slot_s: float
) -> None:
    steps = split_steps(remaining, rates, slot_s, 0.5)
    assert sum(steps) <= remaining
    capacity = [slot_steps(rate, slot_s, 0.5) for rate in rates]
    assert all(0 <= share <= most for share, most in zip(steps, capacity, strict=True))
    assert sum(steps) == remaining or any(
        share in (most, -(-remaining * rate // sum(rates)))
        for share, most, rate in zip(steps, capacity, rates, strict=True)
    )


@pytest.mark.parametrize(("remaining", "rates"), [(-1, [1.0]), (5, []), (5, [0.0]), (5, [1.0, -1.0])])
def test_a_split_that_makes_no_sense_is_refused(remaining: int, rates: list[float]) -> None:
    with pytest.raises(InputError, match="cannot split"):
        split_steps(remaining, rates, 360, 10)


def test_copies_weigh_what_they_did_and_a_failed_one_nothing() -> None:
    assert consolidation_weights([30, 10, 0]) == (0.75, 0.25, 0.0)


@pytest.mark.parametrize("done", [[], [0, 0], [3, -1]])
def test_without_a_step_there_is_nothing_to_consolidate(done: list[int]) -> None:
    with pytest.raises(InputError, match="cannot weigh"):
        consolidation_weights(done)
