"""HadarE's copies: which machines train further copies of running jobs, for the greatest total utility.

Copies are bought one at a time, the one that gains most first. Source: arXiv 2503.10918, reconstructed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from dally.policies.common.arrays import Flags, Ints
from dally.policies.hadar.market import Market

Machines = frozenset[int]

_Offer = tuple[float, int, int, int, int]
"""One more copy: minus its payoff, job, GPU type, copies so far, machine."""


@dataclass(frozen=True, slots=True)
class Forker:
    """A job that can train copies.

    Attributes:
        gpus: GPUs of one copy.
        most: Most copies side by side.
        types: The GPU types it accepts, by number.
        accepted: Whether it accepts a machine, for each machine.
        current: The machines it runs on; empty if it waits.
        utility: What copies on these machines are worth to it, with the restart that a change takes.
    """

    gpus: int
    most: int
    types: Sequence[int]
    accepted: Flags
    current: Machines
    utility: Callable[[Machines], float]


def spread_copies(market: Market, forkers: Sequence[Forker], first: Sequence[int]) -> list[Machines]:
    """The machines of each job's copies: the better of keeping what runs and of beginning anew.

    Args:
        market: What is left when each job has one copy.
        forkers: The jobs that have one.
        first: The machine of each one's first copy.
    """

    def total(copies: Sequence[Machines]) -> float:
        """The sum of utilities."""
        return sum(forker.utility(machines) for forker, machines in zip(forkers, copies, strict=True))

    kept, anew = (_CopyPlan(market, forkers, first) for _ in range(2))
    kept.keep()
    kept.grow()
    anew.grow()
    return max((kept.copies, anew.copies), key=total)


class _CopyPlan:
    """An assignment of copies in the making; the market stays as it is.

    Attributes:
        copies: The machines of each job.
    """

    def __init__(self, market: Market, forkers: Sequence[Forker], first: Sequence[int]) -> None:
        self._market, self._forkers = market, forkers
        self._left: Ints = market.left.copy()
        self.copies: list[Machines] = [frozenset((machine,)) for machine in first]

    def keep(self) -> None:
        """Each job goes on where its copies run, as far as that is still on offer."""
        for place, forker in enumerate(self._forkers):
            current = forker.current
            on_offer = bool(current) and all(self._left[each] >= forker.gpus for each in current)
            if on_offer and not self.copies[place] & current:
                # Its first copy is elsewhere, but it could go on where all of its copies run.
                self._left[[*self.copies[place]]] += forker.gpus
                self.copies[place] = frozenset()
            for machine in sorted(current - self.copies[place]):
                if self._left[machine] >= forker.gpus:
                    self._add(place, machine)

    def grow(self) -> None:
        """Add the copy that gains most, again and again, while one gains more than it costs."""
        heap: list[_Offer] = []
        for place in range(len(self._forkers)):
            self._offer(heap, place, self._forkers[place].types)
        while heap:
            _, place, gpu_type, size, machine = heappop(heap)
            if size != len(self.copies[place]):
                continue  # it has one more since
            if self._left[machine] < self._forkers[place].gpus:
                self._offer(heap, place, (gpu_type,))
            else:
                self._add(place, machine)
                self._offer(heap, place, self._forkers[place].types)

    def _add(self, place: int, machine: int) -> None:
        self._left[machine] -= self._forkers[place].gpus
        self.copies[place] |= {machine}

    def _offer(self, heap: list[_Offer], place: int, types: Sequence[int]) -> None:
        """One more copy of a job on the machine of each of these types that suits best, if it pays."""
        forker, machines = self._forkers[place], self.copies[place]
        if len(machines) >= forker.most:
            return
        for gpu_type in types:
            # One that it runs on, else the one with least to spare.
            able = (self._left >= forker.gpus) & (self._market.servers.gpu_types == gpu_type)
            able &= forker.accepted
            able[[*machines]] = False
            machine = min(
                np.flatnonzero(able).tolist(),
                key=lambda each: (each not in forker.current, self._left[each]),
                default=None,
            )
            if machine is not None:
                gain = forker.utility(machines | {machine}) - forker.utility(machines)
                payoff = gain - self._market.cost(((machine, forker.gpus),))
                if payoff > 0:
                    heappush(heap, (-payoff, place, gpu_type, len(machines), machine))
