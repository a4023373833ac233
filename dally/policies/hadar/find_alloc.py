"""Hadar's FIND_ALLOC: the GPUs that are worth most to one job at present prices.

A gang runs at the pace of its slowest GPU, so each speed is tried as the bottleneck. Of the servers at least
so fast there are two candidates: the closest placement on the fewest of them, and the cheapest GPUs wherever
they are. What distance costs is in the job's own utility. Source: arXiv 2503.10918, reconstructed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from dally.cluster.free import placed
from dally.cluster.topology import Allocation
from dally.jobs.job import Gang
from dally.policies.common.arrays import Flags, Floats, Ints
from dally.policies.hadar.market import Market

_EQUAL = 1e-9
"""Utilities that differ by less than this part are equal."""


@dataclass(frozen=True, slots=True)
class Bidder:
    """A job that bids for GPUs.

    Attributes:
        gang: What it takes, and how its machines may lie.
        highest: The highest level at which one domain may hold it.
        tiers: The machines that are fast enough, for each speed as the bottleneck, the fastest first.
        held: What it runs on; empty if it waits.
        utility: What running on an allocation from now on is worth to it, with the restart that this takes.
        ceiling: The most that any allocation could be worth to it.
    """

    gang: Gang
    highest: int
    tiers: tuple[Flags, ...]
    held: Allocation
    utility: Callable[[Allocation], float]
    ceiling: float

    @property
    def gpus(self) -> int:
        """How many it takes."""
        return self.gang.gpus

    def could_have(self, market: Market, offered: Ints, tier: Flags) -> Ints:
        """What each machine could give it of what is offered."""
        given = np.where(tier, offered, 0)
        if self.gang.whole_blocks:
            given = np.where(market.in_unused(offered), given, 0)
        each = self.gang.per_machine
        return given if each is None else np.where(given >= each, each, 0)


@dataclass(frozen=True, slots=True)
class Bid:
    """An allocation, what it is worth to the bidder, and what it costs."""

    allocation: Allocation
    utility: float
    price: float

    @property
    def payoff(self) -> float:
        """What is gained; a bid that gains nothing is not to be accepted."""
        return self.utility - self.price


def find_alloc(market: Market, bidder: Bidder) -> Bid | None:
    """The best bid of a job; None if there is no room for it.

    A running job moves only to what is worth more to it than staying. No job takes what another one runs on,
    unless that is worth more to it than what no job runs on.
    """
    best = None
    if bidder.held and market.holds(bidder.held):
        best = Bid(bidder.held, bidder.utility(bidder.held), market.cost(bidder.held))
    for offered in market.offers():
        if best is not None and best.utility >= bidder.ceiling * (1 - _EQUAL):
            return best
        found = _best_among(market, bidder, offered)
        if found is None:
            continue
        # A lower price alone is no reason to move.
        if best is None or (found.payoff > best.payoff and found.utility > best.utility * (1 + _EQUAL)):
            best = found
    return best


def _best_among(market: Market, bidder: Bidder, offered: Ints) -> Bid | None:
    """The bid with the highest payoff for some of the offered GPUs; on ties the closest, on the fastest."""
    best: Bid | None = None
    before = np.zeros_like(offered)
    for tier in bidder.tiers:
        offer = bidder.could_have(market, offered, tier)
        if int(offer.sum()) < bidder.gpus or np.array_equal(offer, before):
            continue  # not enough, or none of the slower machines has any
        before = offer
        for found in _candidates(market, offer, bidder):
            allocation = placed(bidder.gang, found)
            bid = Bid(allocation, bidder.utility(allocation), market.cost(allocation))
            if best is None or bid.payoff > best.payoff:
                best = bid
        if best is not None and best.utility >= bidder.ceiling * (1 - _EQUAL):
            break  # slower machines cannot be worth more
    return best


def _candidates(market: Market, offer: Ints, bidder: Bidder) -> Iterable[Allocation]:
    """The closest placement and the cheapest, in each domain that may hold it by itself."""
    if not bidder.gang.consolidated:
        return _candidates_within(market, offer, bidder)
    domains = market.servers.domains[bidder.highest - 1]
    offers = (np.where(domains == domain, offer, 0) for domain in np.unique(domains[offer > 0]))
    enough = (each for each in offers if int(each.sum()) >= bidder.gpus)
    return (found for each in enough for found in _candidates_within(market, each, bidder))


def _candidates_within(market: Market, offer: Ints, bidder: Bidder) -> Iterable[Allocation]:
    """The closest placement and the cheapest; none where the offer has too few whole segments."""
    if bidder.gang.segment is not None:
        return _in_segments(market, offer, bidder, bidder.gang.segment)
    close = _fewest_servers(_closest(market, offer, bidder.gpus), market.price, bidder.gpus)
    cheap = _cheapest(offer, market.price, bidder.gpus) if bidder.gpus > 1 else close
    return dict.fromkeys((close, cheap))


def _in_segments(market: Market, offer: Ints, bidder: Bidder, segment: int) -> Iterable[Allocation]:
    """The same for machines in segments. A block offers its cheapest ones, as many as make whole segments."""
    blocks, *above = market.servers.domains
    able = np.flatnonzero(offer)
    able = able[np.lexsort((market.price[able], blocks[able]))]
    _, first, counts = np.unique(blocks[able], return_index=True, return_counts=True)
    whole = counts - counts % segment
    ends = first + (np.minimum(whole, segment) if bidder.gang.spread else whole)
    machines = able[np.arange(len(able)) < np.repeat(ends, counts)].reshape(-1, segment)
    wanted = bidder.gpus // int(offer.max()) // segment
    if len(machines) < wanted:
        return ()
    price = market.price[machines].sum(axis=1)
    cheap = machines[np.argsort(price, kind="stable")[:wanted]]
    for domains in (blocks, *above):
        of = domains[machines[:, 0]]
        held = np.bincount(of)
        if held.max() >= wanted:
            best = int(np.argmin(np.where(held >= wanted, held, np.inf)))
            close = machines[of == best]
            # Of the blocks there those that offer most first, then the cheapest segments.
            offered = np.bincount(blocks[close[:, 0]])[blocks[close[:, 0]]]
            order = np.lexsort((price[of == best], blocks[close[:, 0]], -offered))
            found = (close[order[:wanted]], cheap)
            return dict.fromkeys(_allocation(each.ravel(), offer[each.ravel()]) for each in found)
    raise AssertionError("the root holds the gang")


def _closest(market: Market, offer: Ints, gpus: int) -> Ints:
    """The offer of the best-fitting domain of the lowest level that holds the gang; of all if machines do."""
    if offer.max() >= gpus:
        return offer
    for domains in market.servers.domains:
        held = np.bincount(domains, weights=offer)
        if held.max() >= gpus:
            best = int(np.argmin(np.where(held >= gpus, held, np.inf)))
            return np.where(domains == best, offer, 0)
    raise AssertionError("the offer is enough for the gang")


def _fewest_servers(offer: Ints, price: Floats, gpus: int) -> Allocation:
    """The fullest offers whole, and the rest of the gang on the cheapest machine that holds it."""
    whole, rest, spare = np.zeros(0, dtype=np.int64), gpus, offer
    if offer.max() < gpus:
        order = np.argsort(-offer, kind="stable")
        whole = order[: int(np.searchsorted(np.cumsum(offer[order]), gpus))]
        rest, spare = gpus - int(offer[whole].sum()), offer.copy()
        spare[whole] = 0
    able = np.flatnonzero(spare >= rest)
    last = able[np.lexsort((spare[able], price[able]))[0]]
    return _allocation(np.append(whole, last), np.append(offer[whole], rest))


def _cheapest(offer: Ints, price: Floats, gpus: int) -> Allocation:
    """The cheapest GPUs; on ties those of the machines that come first."""
    at = np.flatnonzero(offer)
    order = at[np.argsort(price[at], kind="stable")]
    reached = np.cumsum(offer[order])
    used = order[: int(np.searchsorted(reached, gpus)) + 1]
    given = offer[used]
    given[-1] -= reached[len(used) - 1] - gpus
    return _allocation(used, given)


def _allocation(machines: Ints, gpus: Ints) -> Allocation:
    return tuple(sorted(zip(machines.tolist(), gpus.tolist(), strict=True)))
