"""Slots: what is left is dealt out by speed, and each batch counts once in the end, whoever is lost."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.forked.ranges import Ranges, numbers, size, union
from workloads.forked.slot import CopyResult, SlotStart, follow, plan

START = SlotStart(0, (), {}, {})


def result(copy: int, trained: Ranges, seconds: float = 1.0, stop: bool = False) -> CopyResult:
    return CopyResult(copy, trained, seconds, 0.5, stop)


def test_at_first_all_copies_are_taken_for_equal() -> None:
    slot = plan(START, [0, 1, 2], steps=10, slot_s=60.0)
    assert slot.shares == {0: ((0, 4),), 1: ((4, 7),), 2: ((7, 10),)}
    assert slot.due_s == 60.0


def test_what_is_left_goes_by_speed_so_that_all_end_together() -> None:
    slot = plan(SlotStart(1, ((0, 100),), {}, {0: 2.0, 1: 1.0}), [0, 1], steps=130, slot_s=60.0)
    assert slot.shares == {0: ((100, 120),), 1: ((120, 130),)}
    assert slot.due_s == pytest.approx(10.0)


def test_a_slot_takes_no_more_than_there_is_time_for() -> None:
    slot = plan(SlotStart(1, (), {}, {0: 2.0, 1: 1.0}, overhead_s=10.0), [0, 1], steps=1000, slot_s=60.0)
    assert {copy: size(share) for copy, share in slot.shares.items()} == {0: 100, 1: 50}
    assert slot.due_s == pytest.approx(50.0)


def test_a_copy_of_unknown_speed_is_taken_for_average() -> None:
    slot = plan(SlotStart(1, (), {}, {0: 3.0, 1: 1.0}), [0, 1, 2], steps=1000, slot_s=10.0)
    assert [size(share) for share in slot.shares.values()] == [30, 10, 20]


def test_where_a_step_is_longer_than_a_slot_the_fastest_copy_does_one() -> None:
    slot = plan(SlotStart(1, (), {}, {0: 0.01, 1: 0.02}), [0, 1], steps=10, slot_s=20.0)
    assert slot.shares == {0: (), 1: ((0, 1),)}


def test_batches_of_a_lost_copy_are_dealt_out_again() -> None:
    slot = plan(START, [0, 1, 2], steps=30, slot_s=60.0)
    after = follow(slot, [result(0, ((0, 10),)), result(2, ((20, 25),))], 30, 60.0, overhead_s=0.0)
    assert after.trained == ((0, 10), (20, 25))
    assert after.shares == {0: ((10, 20),), 2: ((25, 30),)}
    assert after.rates == {0: 10.0, 2: 5.0}


def test_averaging_leaves_at_least_half_a_slot_for_training() -> None:
    after = follow(plan(START, [0], 100, 10.0), [result(0, ((0, 5),))], 100, 10.0, overhead_s=30.0)
    assert after.overhead_s == 5.0


def test_one_copy_that_is_asked_to_stop_stops_all() -> None:
    slot = plan(START, [0, 1], 10, 10.0)
    assert follow(slot, [result(0, ((0, 1),)), result(1, (), stop=True)], 10, 10.0, 0.0).stop


@given(st.integers(1, 5), st.integers(1, 200), st.integers(0, 1000))
def test_every_batch_counts_once_whatever_copies_do(copies: int, steps: int, seed: int) -> None:
    chance, slot = random.Random(seed), plan(START, range(copies), steps, 10.0)
    while size(slot.trained) < steps:
        results = []
        for copy, share in slot.shares.items():
            if copy and chance.random() < 0.2:
                continue  # it is lost, or late
            own = list(numbers(share))[: chance.randint(0 if copy else 1, 50)]
            assert not set(own) & set(numbers(slot.trained))
            results.append(result(copy, union((number, number + 1) for number in own)))
        done = size(slot.trained) + sum(item.steps for item in results)
        slot = follow(slot, results, steps, 10.0, 0.0)
        assert size(slot.trained) == done
        assert sum(map(size, slot.shares.values())) <= steps - done
    assert slot.trained == ((0, steps),)
