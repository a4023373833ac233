"""Hadar's dual subroutine: which jobs get GPUs in a round, by payoff at prices that rise as they are taken.

Few jobs are decided exactly, each taken with what FIND_ALLOC finds it or skipped; many greedily, the greatest
payoff a GPU first. Source: arXiv 2503.10918, reconstructed; the bound that prunes the exact choice is ours.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dally.policies.hadar.find_alloc import Bid, Bidder, find_alloc
from dally.policies.hadar.market import Market
from dally.policies.hadar.prices import Floats, Ints


class Queue:
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
        """These have what they want."""
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
        """A job found no room: neither will others that ask for the same, as room only gets less."""
        self._open &= self._gangs != self._gangs[place]

    def too_dear(self, cheapest: float) -> None:
        """A job could not pay: neither can those worth less than the least price, as prices only rise."""
        self._open &= self._ceilings > self._gpus * cheapest


def decide_greedily(
    market: Market, queue: Queue, bidder: Callable[[int], Bidder], refuses: bool = True
) -> dict[int, Bid]:
    """Accept the best bid of one job after another; the bids by place in the queue.

    Args:
        market: The GPUs; those of accepted bids are taken from it.
        queue: Who bids.
        bidder: The job of a place.
        refuses: A bid that does not pay is refused. If none is, nobody may have a claim any more.
    """
    accepted: dict[int, Bid] = {}
    while (place := queue.next(market.total)) is not None:
        bids = bidder(place)
        if refuses:
            market.claim(bids.held, -1)
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

    Args:
        market: The GPUs; those of accepted bids are taken from it.
        bidders: The jobs, the greatest payoff a GPU first; each bids at the prices that those before it left.
    """
    accepted = _Choice(market, bidders).best(0).accepted
    for _, bid in accepted:
        market.take(bid.allocation)
    return dict(accepted)


@dataclass(frozen=True, slots=True)
class _Best:
    """The greatest sum of payoffs, and the bids that make it."""

    payoff: float = 0.0
    accepted: tuple[tuple[int, Bid], ...] = ()


class _Choice:
    """Dynamic programming over who is taken and who skipped: the best choice depends on what is left."""

    def __init__(self, market: Market, bidders: Sequence[Bidder]) -> None:
        self._market, self._bidders = market, bidders
        self._known: dict[tuple[int, bytes], _Best] = {}

    def best(self, place: int) -> _Best:
        """The best choice among the bidders from `place` on."""
        if place == len(self._bidders) or not self._market.total:
            return _Best()
        key = place, self._market.left.tobytes()
        if key not in self._known:
            bidder = self._bidders[place]
            self._market.claim(bidder.held, -1)
            self._known[key] = self._better(place, find_alloc(self._market, bidder))
            self._market.claim(bidder.held)
        return self._known[key]

    def _better(self, place: int, bid: Bid | None) -> _Best:
        """Take a bidder with its bid or skip it, whichever gains more in all."""
        if bid is None or bid.payoff <= 0:
            return self.best(place + 1)
        self._market.take(bid.allocation)
        rest = self.best(place + 1)
        self._market.take(bid.allocation, -1)
        taken = _Best(bid.payoff + rest.payoff, ((place, bid), *rest.accepted))
        if self._hope(place + 1) <= taken.payoff:
            return taken
        return max(taken, self.best(place + 1), key=lambda each: each.payoff)

    def _hope(self, place: int) -> float:
        """The most that bidders from `place` on could gain if GPUs cost nothing and gangs were divisible."""
        left, hope = self._market.total, 0.0
        for bidder in self._bidders[place:]:
            hope += bidder.ceiling * min(1.0, left / bidder.gpus)
            left -= min(left, bidder.gpus)
        return hope
