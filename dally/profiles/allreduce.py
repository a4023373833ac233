"""How long an all-reduce takes: from a measured curve, or from the links of a ring."""

from collections.abc import Sequence
from itertools import pairwise

from dally.cluster.topology import Ring
from dally.profiles.events import CollectiveTime
from dally.profiles.schema import Reduced

HEADERS = 1514 / 1448
"""Bytes on an Ethernet of 1,500 bytes a packet for each byte of gradients, over TCP with time stamps."""


def ring_factor(members: int) -> float:
    """Bytes each member sends over the bytes reduced, 2(n-1)/n; 0 for one member.

    Source: reduce-scatter and all-gather of n-1 steps each, every step an n-th of the data (Thakur,
    Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA 19(1), 2005).
    """
    return 2 * (members - 1) / members


def rings_time_s(rings: Sequence[Ring], size_bytes: float) -> float:
    """Time of one all-reduce over a hierarchical ring, seconds.

    Each stage of n members takes 2(n-1) steps of `hops` link latencies each, and sends 2(n-1)/n of what it
    carries: reduce-scatters go up the stages and all-gathers come down (BlueConnect, Cho et al., MLSys 2019).
    Inside a machine each GPU has a link of its own and carries only its share, the data divided by the
    members of the stages below. The uplink of a machine or rack is one link that all shares of that domain
    cross, for the stage of its peers and for those farther out: 2(n-1)/n of the whole data in all, n being
    the machines, or racks, of the whole gang, as in a flat ring. Chunks are in different stages at once: the
    latencies of all stages add up, but the link that takes longest to send decides.

    Args:
        rings: Stages, innermost first, as in `Shape.rings`; one or two hops tell a stage inside a machine.
        size_bytes: Data reduced on every GPU.
    """
    latency_s, sending_s, carried = 0.0, 0.0, size_bytes
    for ring in rings:
        sent = carried if ring.hops == 1 else size_bytes
        latency_s += 2 * (ring.members - 1) * ring.hops * ring.link.latency_s
        sending_s = max(sending_s, ring_factor(ring.sharers) * sent * 8 / ring.link.bandwidth_bps)
        carried /= ring.members
    return latency_s + sending_s


def curve_time_s(curve: Sequence[Reduced | CollectiveTime], size_bytes: float) -> float:
    """Time of one collective of this size, from measured sizes, seconds.

    Linear in bytes between two sizes, as a transfer is latency plus bytes over bandwidth; interpolating the
    logarithms would bend that line. Below the smallest size its time holds (latency); above the largest the
    last slope goes on, at least in proportion to bytes where there is only one size or the slope is negative.

    Args:
        curve: At least one measured size, ascending.
        size_bytes: The size asked for.
    """
    first, last = curve[0], curve[-1]
    if size_bytes <= first.bytes:
        return first.median_s
    for low, high in pairwise(curve):
        if size_bytes <= high.bytes:
            share = (size_bytes - low.bytes) / (high.bytes - low.bytes)
            return low.median_s + share * (high.median_s - low.median_s)
    slope = last.median_s / last.bytes
    if len(curve) > 1 and last.median_s > curve[-2].median_s:
        slope = (last.median_s - curve[-2].median_s) / (last.bytes - curve[-2].bytes)
    return last.median_s + slope * (size_bytes - last.bytes)


def bus_bandwidth_bps(reduced: Reduced, members: int) -> float:
    """Bits that each member of a ring sends per second, S/t * 2(n-1)/n, comparable to a link's rate.

    Source: nccl-tests, doc/PERFORMANCE.md, busbw.
    """
    return reduced.bytes * 8 / reduced.median_s * ring_factor(members)
