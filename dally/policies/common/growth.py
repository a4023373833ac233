"""How many GPUs each job gets: greedily by marginal gain, or by dynamic programming over jobs and GPUs.

Sources: Peng et al., Optimus, EuroSys 2018, section 4.1; Saxena et al., arXiv 2006.13878, section IV.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dally.policies.common.arrays import Floats, Ints
from dally.policies.common.gpu_pool import Pool, Room


@dataclass(frozen=True, slots=True, eq=False)
class SizeValues:
    """What each number of GPUs is worth to a job.

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


def climb(jobs: Sequence[SizeValues], pool: Pool) -> list[int]:
    """Sizes by greatest marginal gain: first the least of each job, then the step worth most per GPU.

    A step goes to the next size, or past sizes that are worth less than what lies beyond them.

    Args:
        jobs: The jobs; on ties the first one gets the GPU.
        pool: The GPUs; the least sizes must fit.

    Returns:
        (jobs,) the GPUs of each.
    """
    sizes = [job.least for job in jobs]
    room = Room(pool)
    for job, size in zip(jobs, sizes, strict=True):
        room.take(job.gpu_type, size)
        if room.for_type(job.gpu_type) < 0:
            raise AssertionError(f"the least sizes {sizes} do not fit {pool}")
    steps: list[_Step] = []
    for place, job in enumerate(jobs):
        steps += _step(place, job, sizes[place], room.for_type(job.gpu_type))
    heapify(steps)
    while steps:
        _, place, size = heappop(steps)
        job = jobs[place]
        if size - sizes[place] <= room.for_type(job.gpu_type):
            room.take(job.gpu_type, size - sizes[place])
            sizes[place] = size
        for step in _step(place, job, sizes[place], room.for_type(job.gpu_type)):
            heappush(steps, step)
    return sizes


_Step = tuple[float, int, int]
"""A step up: minus what it is worth per GPU, the place of the job, its size then."""


def _step(place: int, job: SizeValues, size: int, room: int) -> list[_Step]:
    """The step of a job that is worth most per GPU, if any is worth something."""
    ahead = job.worth[size + 1 : size + 1 + room]
    if not ahead.size:
        return []
    gains = (ahead - job.worth[size]) / np.arange(1, ahead.size + 1)
    best = int(gains.argmax())
    return [(-float(gains[best]), place, size + 1 + best)] if gains[best] > 0 else []


def share_out(jobs: Sequence[SizeValues], pool: Pool) -> list[int]:
    """Sizes whose worth is greatest in sum, by dynamic programming; on ties the fewest GPUs for the last.

    Jobs that accept one type share out the GPUs of that type first, for each number of them; such a type
    then counts as one more job beside those that accept all.

    Args:
        jobs: The jobs.
        pool: The GPUs; the least sizes must fit.

    Returns:
        (jobs,) the GPUs of each.
    """
    free = [place for place, job in enumerate(jobs) if job.gpu_type is None]
    members: dict[str, list[int]] = {}
    for place, job in enumerate(jobs):
        if job.gpu_type is not None:
            members.setdefault(job.gpu_type, []).append(place)
    typed = {
        name: _Table([jobs[place].worth for place in places], min(pool.total, pool.of_type.get(name, 0)))
        for name, places in members.items()
    }
    worths = [*(jobs[place].worth for place in free), *(table.best for table in typed.values())]
    given = _Table(worths, pool.total).sizes(pool.total)
    sizes = dict(zip(free, given, strict=False))
    for name, gpus in zip(typed, given[len(free) :], strict=True):
        sizes |= zip(members[name], typed[name].sizes(gpus), strict=True)
    return [sizes[place] for place in range(len(jobs))]


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
            best, takes = np.full(limit + 1, -inf), np.zeros(limit + 1, dtype=np.int64)
            usable = np.flatnonzero(worth[: limit + 1] > -inf)
            if usable.size:
                # The greatest best[c - g] + worth[g] over g, for each c, and the least such g.
                low, high = int(usable[0]), int(usable[-1])
                padded = np.concatenate([np.full(high, -inf), self.best])
                sums = sliding_window_view(padded, high - low + 1)[: limit + 1, ::-1] + worth[low : high + 1]
                takes = sums.argmax(axis=1)
                best, takes = sums[np.arange(limit + 1), takes], takes + low
            self.best = best
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
