"""Hadar's dual subroutine: which jobs get GPUs in a round, by payoff at prices that rise as they are taken.

Few jobs are decided exactly, each taken with what FIND_ALLOC finds it or skipped; many greedily, the greatest
payoff a GPU first. Source: arXiv 2503.10918, reconstructed; the bound that prunes the exact choice is ours.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dally.policies.common.arrays import Floats, Ints
from dally.policies.hadar.find_alloc import Bid, Bidder, find_alloc
from dally.policies.hadar.market import Market


class BidQueue:
    """Jobs by the payoff a GPU that they could have at best, the greatest first.

    Args:
        gpus: GPUs of each job; at least one job.
        ceilings: The most that any allocation could be worth to each.
        gangs: A number for each; those with the same number ask for the same.
    """

    def __init__(self, gpus: Floats, ceilings: Floats, gangs: Ints) -> None:
        self._gpus, self._ceilings, self._gangs = gpus, ceilings, gangs
        self._open = np.ones(len(gpus), dtype=bool)

    def __len__(self) -> int:
        return len(self._gpus)

    def leave_out(self, places: Iterable[int]) -> None:
        """Leave out jobs that have GPUs already."""
        self._open[[*places]] = False

    def next(self, left: int) -> int | None:
        """The place of the first job not given yet that asks for no more than is left; None if none does."""
        able = self._open & (self._gpus <= left)
        place = int(able.argmax())
        if not able[place]:
            return None
        self._open[: place + 1] = False
        return place

    def no_room(self, place: int) -> None:
        """Leave out jobs that ask for the same as one that found no room: room only gets less."""
        self._open &= self._gangs != self._gangs[place]

    def too_dear(self, cheapest: float) -> None:
        """Leave out jobs that are worth less than the least price: prices only rise."""
        self._open &= self._ceilings > self._gpus * cheapest


def decide_greedily(
    market: Market, queue: BidQueue, bidder: Callable[[int], Bidder], refuses: bool = True
) -> dict[int, Bid]:
    """Accept the best bid of one job after another; the bids by place in the queue.

    Args:
        market: The GPUs; those of accepted bids are taken from it.
        queue: The jobs that bid.
        bidder: The job of a place.
        refuses: A bid that does not pay is refused. If none is, no GPUs may count as occupied any more.
    """
    accepted: dict[int, Bid] = {}
    while (place := queue.next(market.total)) is not None:
        bids = bidder(place)
        if refuses:
            market.vacate(bids.held)
        bid = find_alloc(market, bids)
        if bid is None:
            queue.no_room(place)
        elif refuses and bid.payoff <= 0:
            queue.too_dear(market.cheapest)
        else:
            market.take(bid.allocation)
            accepted[place] = bid
    return accepted


def decide_exactly(market: Market, bidders: Sequence[Bidder]) -> dict[int, Bid]:
    """Accept the bids with the greatest sum of payoffs; the bids by place.

    Dynamic programming over which jobs are taken and which skipped: the best choice depends on what is left.

    Args:
        market: The GPUs; those of accepted bids are taken from it.
        bidders: The jobs, the greatest payoff a GPU first; each bids at the prices that those before it left.
    """
    known: dict[tuple[int, bytes], _Choice] = {}

    def best(place: int) -> _Choice:
        """The best choice among the bidders from `place` on."""
        if place == len(bidders) or not market.total:
            return _Choice()
        key = place, market.left.tobytes()
        if key not in known:
            bidder = bidders[place]
            market.vacate(bidder.held)
            bid = find_alloc(market, bidder)
            if bid is None or bid.payoff <= 0:
                known[key] = best(place + 1)
            else:
                market.take(bid.allocation)
                rest = best(place + 1)
                market.take(bid.allocation, -1)
                choice = _Choice(bid.payoff + rest.payoff, ((place, bid), *rest.accepted))
                if bound(place + 1) > choice.payoff:
                    choice = max(choice, best(place + 1), key=lambda each: each.payoff)
                known[key] = choice
            market.occupy(bidder.held)
        return known[key]

    def bound(place: int) -> float:
        """The most that bidders from `place` on could gain if GPUs cost nothing and gangs were divisible."""
        left, payoff = market.total, 0.0
        for bidder in bidders[place:]:
            payoff += bidder.ceiling * min(1.0, left / bidder.gpus)
            left -= min(left, bidder.gpus)
        return payoff

    accepted = best(0).accepted
    for _, bid in accepted:
        market.take(bid.allocation)
    return dict(accepted)


@dataclass(frozen=True, slots=True)
class _Choice:
    """A sum of payoffs, and the bids that make it."""

    payoff: float = 0.0
    accepted: tuple[tuple[int, Bid], ...] = ()
