"""The two searches for sizes: against hand-computed cases and against all sizes there are."""

from itertools import product
from math import inf, log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.policies.common.gpu_pool import Pool
from dally.policies.common.growth import SizeValues, climb, share_out

SOME = settings(max_examples=40, deadline=None)


def want(*worth: float, gpu_type: str | None = None) -> SizeValues:
    return SizeValues(np.array(worth, dtype=float), gpu_type)


def pool(total: int, **of_type: int) -> Pool:
    return Pool(total, of_type)


def test_the_least_sizes_come_first_then_gpus_go_where_each_gains_most() -> None:
    """Remaining times 100/n and 60/n: the steps save 50, 16.7, 8.3 and 30, 10, 5; GPUs go 50, 30, 16.7."""
    long, short = (want(-inf, *(-work / gpus for gpus in range(1, 9))) for work in (100, 60))
    assert climb([long, short], pool(2)) == [1, 1]
    assert climb([long, short], pool(5)) == [3, 2]


def test_a_step_goes_past_sizes_worth_less() -> None:
    """A fifth GPU would be on another machine; eight are worth it, at 1.5 a GPU, if there are so many."""
    steep = want(-inf, 1, 2, 3, 4, 2, 3, 4, 10)
    assert climb([steep], pool(8)) == [8]
    assert climb([steep], pool(7)) == [4]


def test_gpus_that_gain_nothing_stay_free() -> None:
    assert climb([want(-inf, 1, 2, 2, 2)], pool(9)) == [2]
    assert share_out([want(-inf, 1, 2, 2, 2)], pool(9)) == [2]


def test_dynamic_programming_finds_what_single_steps_miss() -> None:
    """By the gain of each step the first job takes 3 GPUs at 2 a GPU; two for each are worth 10 in sum."""
    wants = [want(-inf, 1, 5, 5.5), want(-inf, 1, 5, 5.5)]
    assert share_out(wants, pool(4)) == [2, 2]
    wants = [want(-inf, 1, 2, 9), want(-inf, 1, 3, 4)]
    assert share_out(wants, pool(4)) == [3, 1]


@pytest.mark.parametrize("search", [climb, share_out])
def test_a_job_of_one_type_gets_no_more_than_there_are_of_it(search: object) -> None:
    assert callable(search)
    doubling = [-inf, 1.0, 2.0, 4.0, 8.0]
    sizes = search([want(*doubling, gpu_type="a"), want(*doubling)], pool(6, a=2, b=4))
    assert sizes == [2, 4]


@pytest.mark.parametrize("search", [climb, share_out])
def test_least_sizes_that_do_not_fit_are_refused(search: object) -> None:
    assert callable(search)
    with pytest.raises(AssertionError, match="do not fit"):
        search([want(-inf, -inf, 1), want(-inf, 1)], pool(2))


@st.composite
def instances(draw: st.DrawFn) -> tuple[list[SizeValues], Pool]:
    """Up to 4 jobs of up to 5 sizes, one type or any; their least sizes fit."""
    wants, least = [], {"a": 0, "b": 0, None: 0}
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(1, 3))
        worth = draw(st.lists(st.integers(0, 30), min_size=1, max_size=4))
        gpu_type = draw(st.sampled_from([None, "a", "b"]))
        wants.append(want(*[-inf] * first, *map(float, worth), gpu_type=gpu_type))
        least[gpu_type] += first
    spare_a, spare_b = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    a, b = least["a"] + least[None] + spare_a, least["b"] + spare_b
    return wants, pool(a + b, a=a, b=b)


def fits(wants: list[SizeValues], sizes: tuple[int, ...], pool: Pool) -> bool:
    used = [
        sum(size for each, size in zip(wants, sizes, strict=True) if each.gpu_type == name)
        for name in pool.of_type
    ]
    return sum(sizes) <= pool.total and all(map(int.__le__, used, pool.of_type.values()))


def worth(wants: list[SizeValues], sizes: tuple[int, ...]) -> float:
    return sum(float(each.worth[size]) for each, size in zip(wants, sizes, strict=True))


@SOME
@given(instance=instances())
def test_the_sum_of_worths_is_the_greatest_of_all(instance: tuple[list[SizeValues], Pool]) -> None:
    wants, pool = instance
    best = max(
        worth(wants, sizes)
        for sizes in product(*(range(each.worth.size) for each in wants))
        if fits(wants, sizes, pool)
    )
    sizes = tuple(share_out(wants, pool))
    assert fits(wants, sizes, pool)
    assert worth(wants, sizes) == pytest.approx(best)


@SOME
@given(instance=instances())
def test_greedy_sizes_fit_and_no_step_is_left_that_gains(instance: tuple[list[SizeValues], Pool]) -> None:
    wants, pool = instance
    sizes = climb(wants, pool)
    assert fits(wants, tuple(sizes), pool)
    assert all(size >= each.least for each, size in zip(wants, sizes, strict=True))
    for place, each in enumerate(wants):
        for size in range(sizes[place] + 1, each.worth.size):
            larger = (*sizes[:place], size, *sizes[place + 1 :])
            assert not fits(wants, larger, pool) or each.worth[size] <= each.worth[sizes[place]]


def test_a_large_cluster_is_shared_out_in_full() -> None:
    """200 jobs that gain the logarithm of their GPUs: all 256 GPUs are given, none has more than 2."""
    wants = [want(-inf, *(1 + log2(gpus) for gpus in range(1, 257)))] * 200
    for sizes in (share_out(wants, pool(256)), climb(wants, pool(256))):
        assert sum(sizes) == 256
        assert max(sizes) == 2
