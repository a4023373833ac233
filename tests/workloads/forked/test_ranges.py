"""Ranges are sets of numbers: nothing is lost, doubled or made up."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from workloads.forked.ranges import deal, gaps, numbers, size, union

SETS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 10)).map(lambda pair: (pair[0], sum(pair))))


def members(ranges: list[tuple[int, int]]) -> set[int]:
    return {number for first, end in ranges for number in range(first, end)}


@given(SETS)
def test_a_union_has_what_any_has_once_and_in_order(ranges: list[tuple[int, int]]) -> None:
    joined = union(ranges)
    assert list(numbers(joined)) == sorted(members(ranges))
    assert size(joined) == len(members(ranges))
    assert all(end < first for (_, end), (first, _) in pairwise(joined))


@given(SETS, st.integers(0, 80))
def test_gaps_are_what_is_missing_below_the_end(ranges: list[tuple[int, int]], end: int) -> None:
    assert set(numbers(gaps(union(ranges), end))) == set(range(end)) - members(ranges)


@given(SETS, st.data())
def test_what_is_dealt_are_the_first_numbers_in_order(
    ranges: list[tuple[int, int]], data: st.DataObject
) -> None:
    whole, counts, left = union(ranges), [], size(union(ranges))
    for _ in range(3):
        counts.append(data.draw(st.integers(0, left)))
        left -= counts[-1]
    dealt = deal(whole, counts)
    assert [size(own) for own in dealt] == counts
    assert [number for own in dealt for number in numbers(own)] == list(numbers(whole))[: sum(counts)]
