"""How long gloo sends from all to all: two ranks often in turns, as what asks waits behind what is sent."""

from collections.abc import Sequence
from statistics import fmean

from dally.profiles.connections import Connections
from dally.profiles.event_replay import CrossedLinks, Transfer

MOST_MESSAGES = 64
"""An exchange of more is not followed message by message."""


def exchange_time(groups: Sequence[Sequence[int]], places: Sequence[int], loads: Sequence[float]) -> float:
    """How long it takes until all ranks have sent to all of their group, and got from all.

    The unit is what a rank takes to send all its messages if no load is uneven. It is the mean of the way to
    experts and back, and of several orders in which ranks come, one right after the other: those of greatest
    load compute longest and come last.

    Args:
        groups: (groups, n) ranks in the order of their numbers within a group.
        places: (ranks) whose links each rank uses; what stays in a place takes no time.
        loads: (ranks) what each gets from all of its group, over the mean; it sends as much back.
    """
    ranks = range(len(places))
    orders = [
        sorted(ranks, key=lambda rank: (loads[rank], (rank - first) % len(ranks)))
        for first in range(len(groups[0]))
    ]
    return fmean(_exchanged_s(groups, places, loads, order, back) for order in orders for back in (0, 1))


def _exchanged_s(
    groups: Sequence[Sequence[int]],
    places: Sequence[int],
    loads: Sequence[float],
    order: Sequence[int],
    back: int,
) -> float:
    """One way, in one order.

    A rank sends to the next one of its group and asks the one before, then those two off and so on. Source:
    the order of calls in gloo/alltoallv.cc.
    """
    size = len(groups[0])
    pairs = [(rank, to) for group in groups for rank in group for to in group if rank != to]
    numbers = {pair: number for number, pair in enumerate(pairs)}
    transfers = []
    for pair in pairs:
        left, entered = (places[rank] for rank in pair)
        crosses = left != entered
        seconds = loads[pair[1 - back]] / (size - 1) if crosses else 0.0
        links = (CrossedLinks(0, left, entered, 1.0),) if crosses else ()
        transfers.append(Transfer(0.0, 0.0, seconds, int(crosses), *pair, crossed_links=links))
    connections = Connections(transfers, True)
    group_of = {rank: group for group in groups for rank in group}
    for rank in order:
        group = group_of[rank]
        here = group.index(rank)
        for off in range(1, size):
            connections.send(numbers[rank, group[(here + off) % size]])
            connections.ask(numbers[group[here - off], rank])
    while len(connections.at_s) < 2 * len(pairs):
        connections.advance(connections.next_s())
    return max(connections.at_s.values())
