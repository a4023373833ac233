"""What ranks do together, and what each of them sends."""

from enum import StrEnum


class CollectiveKind(StrEnum):
    """What ranks do together."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SCATTER = "scatter"
    GATHER = "gather"
    SEND = "send"
    RECEIVE = "receive"
    OTHER = "other"


def sent_share(kind: CollectiveKind, ranks: int) -> float:
    """What each rank of a group sends, over the bytes of the whole tensor; the mean where ranks differ.

    The whole tensor is what a gather leaves and what all others begin with, on each rank or on the root.
    Rings: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
    """
    match kind:
        case CollectiveKind.ALL_REDUCE:
            return 2 * (ranks - 1) / ranks
        case CollectiveKind.GATHER:  # each rank but the root sends its part
            return (ranks - 1) / ranks**2
        case CollectiveKind.SEND:
            return 1.0
        case CollectiveKind.RECEIVE | CollectiveKind.OTHER:
            return 0.0
        case _:
            return (ranks - 1) / ranks


def ring_steps(kind: CollectiveKind, ranks: int) -> int:
    """How many times the latency of a link counts, one step after another."""
    match kind:
        case CollectiveKind.ALL_REDUCE:
            return 2 * (ranks - 1)
        case CollectiveKind.SEND:
            return 1
        case CollectiveKind.RECEIVE | CollectiveKind.OTHER:
            return 0
        case _:
            return ranks - 1
