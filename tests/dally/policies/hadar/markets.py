"""Markets and bidders small enough to price by hand."""

from collections.abc import Mapping, Sequence

import numpy as np

from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Gang
from dally.policies.hadar.find_alloc import Bidder
from dally.policies.hadar.market import Market, PriceRange, Servers
from dally.testing.worlds import racks

SPEEDS = {"fast": 1.0, "mid": 0.5, "slow": 0.25}
"""Types in the order of their names, which is that of machines of `typed` clusters."""


def market(topology: Topology, left: Sequence[int] | None = None, lowest: float = 1e-4) -> Market:
    """All GPUs on offer, or so many of each machine; prices from `lowest` to 1."""
    servers, kinds = Servers(topology), len(topology.gpu_types)
    offered = servers.gpus if left is None else np.array(left)
    return Market(servers, servers.gpus, offered, PriceRange(np.full(kinds, lowest), np.ones(kinds)))


def typed(*machines: int) -> Topology:
    """One rack of machines with so many GPUs: fast, mid, slow, fast, ..."""
    return racks([machines], ("fast", "mid", "slow"))


def bidder(
    market: Market,
    gpus: int,
    worth: float = 1.0,
    held: Allocation = (),
    apart: float = 1.0,
    speeds: Mapping[str, float] = SPEEDS,
    per_machine: int | None = None,
    segment: int | None = None,
    whole_blocks: bool = False,
) -> Bidder:
    """A job worth its speed: that of its slowest GPU, times `apart` if it is on several machines."""
    machines = market.servers.topology.machines

    def utility(allocation: Allocation) -> float:
        slowest = min(speeds[machines[machine].gpu_type] for machine, _ in allocation)
        restart = 0.9 if held and allocation != held else 1.0
        return worth * slowest * restart * (apart if len(allocation) > 1 else 1.0)

    tiers = market.servers.tiers(speeds, market.servers.accepted(None))
    gang = Gang(gpus, None, per_machine, None, segment, whole_blocks=whole_blocks)
    return Bidder(gang, market.servers.topology.widest, tiers, held, utility, worth)
