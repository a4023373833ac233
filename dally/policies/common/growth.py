"""How many GPUs each job gets: greedily by marginal gain, or by dynamic programming over jobs and GPUs.

Sources: Peng et al., Optimus, EuroSys 2018, section 4.1; Saxena et al., arXiv 2006.13878, section IV.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Want:
    """What GPUs are worth to a job.

    Attributes:
        worth: (most + 1,) what 0, 1, ... GPUs are worth to it; -inf where it cannot run on so many.
        gpu_type: The only GPU type that it accepts; None for any.
    """

    worth: Floats
    gpu_type: str | None = None

    @property
    def least(self) -> int:
        """The fewest GPUs that it can run on."""
        return int(np.argmax(self.worth > -inf))


@dataclass(frozen=True, slots=True)
class Pool:
    """GPUs to hand out: how many, and of each type."""

    total: int
    of_type: Mapping[str, int]


def climb(wants: Sequence[Want], pool: Pool) -> list[int]:
    """Sizes by greatest marginal gain: first the least of each job, then the step worth most per GPU.

    A step goes to the next size, or past sizes that are worth less than what lies beyond them.

    Args:
        wants: The jobs; on ties the first one gets the GPU.
        pool: What there is; the least sizes must fit.

    Returns:
        (jobs,) the GPUs of each.
    """
    sizes = [want.least for want in wants]
    room = _Room(wants, sizes, pool)
    steps: list[_Step] = []
    for place, want in enumerate(wants):
        steps += _step(place, want, sizes[place], room.of(want))
    heapify(steps)
    while steps:
        _, place, size = heappop(steps)
        want = wants[place]
        if size - sizes[place] <= room.of(want):
            room.take(want, size - sizes[place])
            sizes[place] = size
        for step in _step(place, want, sizes[place], room.of(want)):
            heappush(steps, step)
    return sizes


_Step = tuple[float, int, int]
"""A step up: minus what it is worth per GPU, the place of the job, its size then."""


def _step(place: int, want: Want, size: int, room: int) -> list[_Step]:
    """The step of a job that is worth most per GPU, if any is worth something."""
    ahead = want.worth[size + 1 : size + 1 + room]
    if not ahead.size:
        return []
    gains = (ahead - want.worth[size]) / np.arange(1, ahead.size + 1)
    best = int(gains.argmax())
    return [(-float(gains[best]), place, size + 1 + best)] if gains[best] > 0 else []


class _Room:
    """What is left of a pool; exact where jobs accept one type or all."""

    def __init__(self, wants: Sequence[Want], sizes: Sequence[int], pool: Pool) -> None:
        self._left = pool.total
        self._of_type = dict(pool.of_type)
        for want, size in zip(wants, sizes, strict=True):
            self.take(want, size)
            if self._left < 0 or self.of(want) < 0:
                raise AssertionError(f"the least sizes {sizes} do not fit {pool}")

    def of(self, want: Want) -> int:
        """How many more GPUs a job could get."""
        return self._left if want.gpu_type is None else min(self._left, self._of_type.get(want.gpu_type, 0))

    def take(self, want: Want, gpus: int) -> None:
        self._left -= gpus
        if want.gpu_type is not None:
            self._of_type[want.gpu_type] = self._of_type.get(want.gpu_type, 0) - gpus


def share_out(wants: Sequence[Want], pool: Pool) -> list[int]:
    """Sizes whose worth is greatest in sum, by dynamic programming; on ties the fewest GPUs for the last.

    Jobs that accept one type share out the GPUs of that type first, for each number of them; such a type
    then counts as one more job beside those that accept all.

    Args:
        wants: The jobs.
        pool: What there is; the least sizes must fit.

    Returns:
        (jobs,) the GPUs of each.
    """
    free = [place for place, want in enumerate(wants) if want.gpu_type is None]
    members: dict[str, list[int]] = {}
    for place, want in enumerate(wants):
        if want.gpu_type is not None:
            members.setdefault(want.gpu_type, []).append(place)
    typed = {
        name: _Table([wants[place].worth for place in places], min(pool.total, pool.of_type.get(name, 0)))
        for name, places in members.items()
    }
    worths = [*(wants[place].worth for place in free), *(table.best for table in typed.values())]
    given = _Table(worths, pool.total).sizes(pool.total)
    sizes = dict(zip(free, given, strict=False))
    for name, gpus in zip(typed, given[len(free) :], strict=True):
        sizes |= zip(members[name], typed[name].sizes(gpus), strict=True)
    return [sizes[place] for place in range(len(wants))]


class _Table:
    """The greatest sum of worths for each number of GPUs at most, one job after another.

    Each job is a max-plus convolution, O(GPUs * sizes of the job) in numpy.

    Attributes:
        best: (limit + 1,) the greatest sum on at most 0, 1, ... GPUs; -inf if the least sizes do not fit.
    """

    def __init__(self, worths: Sequence[Floats], limit: int) -> None:
        self.best: Floats = np.zeros(limit + 1)
        self._takes: list[Ints] = []
        for worth in worths:
            self.best, takes = _convolve(self.best, worth[: limit + 1])
            self._takes.append(takes)

    def sizes(self, gpus: int) -> list[int]:
        """The GPUs of each job at the greatest sum on so many at most."""
        if self.best[gpus] == -inf:
            raise AssertionError(f"the least sizes do not fit {gpus} GPUs")
        sizes = []
        for takes in reversed(self._takes):
            sizes.append(int(takes[gpus]))
            gpus -= sizes[-1]
        return sizes[::-1]


def _convolve(best: Floats, worth: Floats) -> tuple[Floats, Ints]:
    """The greatest best[c - g] + worth[g] over g, for each c, and the least such g."""
    usable = np.flatnonzero(worth > -inf)
    if not usable.size:
        return np.full(best.size, -inf), np.zeros(best.size, dtype=np.int64)
    low, high = int(usable[0]), int(usable[-1])
    padded = np.concatenate([np.full(high, -inf), best])
    windows = sliding_window_view(padded, high - low + 1)[: best.size, ::-1]
    sums = windows + worth[low : high + 1]
    takes = sums.argmax(axis=1)
    return sums[np.arange(best.size), takes], takes + low
