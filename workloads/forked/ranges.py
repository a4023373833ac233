"""Sets of whole numbers from 0 on as ranges: which batches of a job are trained, and which are left."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

Range = tuple[int, int]
"""First number, and the one after the last."""

Ranges = tuple[Range, ...]
"""Not empty, in order, without overlap."""


def size(ranges: Iterable[Range]) -> int:
    """How many numbers they hold."""
    return sum(end - first for first, end in ranges)


def numbers(ranges: Iterable[Range]) -> Iterator[int]:
    """All of them, in order."""
    return chain.from_iterable(range(first, end) for first, end in ranges)


def union(ranges: Iterable[Range]) -> Ranges:
    """What any of these holds; they may be in any order, touch and overlap."""
    joined: list[Range] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            first, end = joined[-1][0], max(end, joined.pop()[1])
        joined.append((first, end))
    return tuple(joined)


def gaps(ranges: Ranges, end: int) -> Ranges:
    """What they do not hold below `end`."""
    firsts = (0, *(range_end for _, range_end in ranges))
    ends = (*(first for first, _ in ranges), end)
    return tuple((a, min(b, end)) for a, b in zip(firsts, ends, strict=True) if a < min(b, end))


def deal(ranges: Ranges, counts: Sequence[int]) -> tuple[Ranges, ...]:
    """The first so many numbers, the next so many, and so on; no more in all than there are."""
    left, dealt = list(reversed(ranges)), []
    for count in counts:
        own: list[Range] = []
        while count:
            first, end = left.pop()
            middle = min(end, first + count)
            own.append((first, middle))
            count -= middle - first
            if middle < end:
                left.append((middle, end))
        dealt.append(tuple(own))
    return tuple(dealt)
