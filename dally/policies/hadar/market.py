"""The GPUs that a round of Hadar hands out: what is left on each server, and what it costs.

The price of a GPU of type r on server h is Umin^r (Umax^r / Umin^r)^(taken / c): low on an empty server, as
high as the highest bid where nothing is left.
Source: Sultana et al., IPDPS 2024, and arXiv 2503.10918, reconstructed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dally.cluster.free import most_units
from dally.cluster.topology import Allocation, Topology, WholeBlocks
from dally.jobs.job import Gang
from dally.policies.common.arrays import Flags, Floats, Ints


@dataclass(frozen=True, slots=True)
class Demands:
    """What jobs ask for and what it is worth to them: a number for each job.

    Attributes:
        best: Utility if it ran at once at its best, from its arrival.
        worst: Utility if it ended at the horizon.
        gpus: GPUs of its gang.
        rounds: Rounds that it takes on the slowest type it accepts.
        types: Whether it accepts a GPU type; jobs by types.
    """

    best: Floats
    worst: Floats
    gpus: Floats
    rounds: Floats
    types: Flags


@dataclass(frozen=True, slots=True)
class PriceRange:
    """What a GPU costs on a server of which none is taken, and of which all are; a number for each type."""

    lowest: Floats
    highest: Floats

    @property
    def alpha(self) -> float:
        """The total utility is at least 1 / (2 alpha) of the best possible, says the paper."""
        return max(1.0, float(np.log(self.highest / self.lowest).max()))


def price_range(demands: Demands, gpus: int, floor: float = 0.0) -> PriceRange:
    """Prices between the least that any job would pay for a GPU and round and the most that one would.

    Umax^r = max U / W of the jobs that accept r; Umin^r = min U(horizon) / (4 eta t_max W), with eta the
    longest job's share of all GPU rounds, eta = max t_max W / gpus, at least 1. A type that no job accepts
    costs 1.

    Args:
        demands: The jobs; at least one.
        gpus: GPUs of the cluster.
        floor: The least price is at least this part of the greatest; ours, 0 is the formula's.
    """
    eta = max(1.0, float((demands.rounds * demands.gpus).max()) / gpus)
    least = demands.worst / (4 * eta * demands.rounds * demands.gpus)
    most = demands.best / demands.gpus
    wanted = demands.types.any(axis=0)
    lowest = np.where(demands.types, least[:, None], np.inf).min(axis=0)
    highest = np.where(demands.types, most[:, None], 0.0).max(axis=0)
    lowest = np.minimum(np.maximum(lowest, floor * highest), highest)
    return PriceRange(np.where(wanted, lowest, 1.0), np.where(wanted, highest, 1.0))


class Servers:
    """The machines of a cluster as arrays, a number for each machine; they never change."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.gpus: Ints = np.array([machine.gpus for machine in topology.machines], dtype=np.int64)
        self.gpu_types: Ints = np.array(
            [topology.gpu_types.index(machine.gpu_type) for machine in topology.machines], dtype=np.int64
        )

    @cached_property
    def domains(self) -> Sequence[Ints]:
        """The domain of each machine at each level from 1 up, numbered from 0."""
        paths = np.array(self.topology.ancestors, dtype=np.int64)
        return [np.unique(paths[:, level], return_inverse=True)[1] for level in range(1, paths.shape[1])]

    def accepted(self, machines: frozenset[str] | None) -> Flags:
        """The machines with these names; all for None."""
        names = (machine.name for machine in self.topology.machines)
        return np.array([machines is None or name in machines for name in names])

    def tiers(self, speeds: Mapping[str, float], accepted: Flags) -> tuple[Flags, ...]:
        """The machines whose GPUs are at least so fast, for each speed that there is, the highest first.

        Args:
            speeds: Speed of one GPU of each type that is accepted.
            accepted: The machines that are.
        """
        by_type = np.array([speeds.get(name, 0.0) for name in self.topology.gpu_types])
        found = [by_type >= speed for speed in sorted({*speeds.values()}, reverse=True) if speed > 0]
        return tuple(enough[self.gpu_types] & accepted for enough in found)

    def alone(self, speeds: Mapping[str, float], accepted: Flags, gang: Gang) -> tuple[Flags, ...]:
        """The machines of each type that by itself holds a gang, the fastest type first.

        Args:
            speeds: Speed of one GPU of each type that is accepted.
            accepted: The machines that are.
            gang: The gang.
        """
        names = self.topology.gpu_types
        found = [
            (self.gpu_types == names.index(name)) & accepted
            for name in sorted(speeds, key=lambda each: -speeds[each])
        ]
        counts = [enumerate(np.where(each, self.gpus, 0).tolist()) for each in found]
        return tuple(
            each
            for each, gpus in zip(found, counts, strict=True)
            if most_units(self.topology, gang, gpus) >= gang.units
        )


class Market:
    """One round's GPUs: bidders take them one after another, and their prices rise.

    GPUs of running jobs are on offer, too. They count as occupied until their job has bid itself.

    Args:
        servers: The machines.
        usable: GPUs of each machine that our jobs hold or could have.
        left: Of these, those on offer.
        prices: From the first to the last GPU of a machine.
        shared: Whether somebody else has GPUs in the block of a machine; None: nowhere.
    """

    def __init__(
        self,
        servers: Servers,
        usable: Ints,
        left: Ints,
        prices: PriceRange,
        shared: Flags | None = None,
    ) -> None:
        self.servers = servers
        self._capacity = usable
        self._shared = np.zeros(len(left), dtype=bool) if shared is None else shared
        self.left, self.occupied = left.copy(), np.zeros_like(left)
        self.total = int(left.sum())
        self._usable = np.maximum(usable, 1).tolist()
        self._lowest = prices.lowest[servers.gpu_types].tolist()
        self._range = (prices.highest / prices.lowest)[servers.gpu_types].tolist()
        self.price: Floats = np.array([self._price(*each) for each in enumerate(left.tolist())])

    def offers(self) -> Sequence[Ints]:
        """GPUs on offer on each machine: first those that no job would have to leave, then all."""
        if not self.occupied.any():
            return (self.left,)
        return np.maximum(self.left - self.occupied, 0), self.left

    @property
    def cheapest(self) -> float:
        """The least price of a GPU on offer; inf if there is none."""
        return float(np.where(self.left > 0, self.price, np.inf).min())

    def occupy(self, allocation: Allocation) -> None:
        """Count GPUs as occupied: the running job that holds them has yet to bid."""
        for machine, gpus in self._taken_by(allocation):
            self.occupied[machine] += gpus

    def vacate(self, allocation: Allocation) -> None:
        """Count GPUs as occupied no more: their job bids now."""
        for machine, gpus in self._taken_by(allocation):
            self.occupied[machine] -= gpus

    def in_unused(self, offered: Ints) -> Flags:
        """Whether all GPUs of a machine's block are among those offered: nobody else would be there."""
        blocks = self.servers.domains[0]
        used = np.bincount(blocks, weights=(offered < self._capacity) | self._shared) > 0
        return np.asarray(~used[blocks])

    def _taken_by(self, allocation: Allocation) -> Iterable[tuple[int, int]]:
        """The GPUs that nobody else can have beside an allocation."""
        if not isinstance(allocation, WholeBlocks):
            return allocation
        blocks = self.servers.domains[0]
        machines = np.flatnonzero(np.isin(blocks, blocks[[machine for machine, _ in allocation]]))
        return zip(machines.tolist(), self._capacity[machines].tolist(), strict=True)

    def holds(self, allocation: Allocation) -> bool:
        """Whether all of an allocation is on offer still, with all of its whole blocks."""
        if isinstance(allocation, WholeBlocks) and any(
            self._shared[machine] for machine, _ in self._taken_by(allocation)
        ):
            return False
        return all(self.left[machine] >= gpus for machine, gpus in self._taken_by(allocation))

    def cost(self, allocation: Allocation) -> float:
        """What an allocation costs at present prices; what it keeps from others besides costs nothing."""
        return float(sum(self.price[machine] * gpus for machine, gpus in allocation))

    def take(self, allocation: Allocation, sign: int = 1) -> None:
        """Take GPUs off the market; with sign -1 they are on offer again."""
        for machine, gpus in self._taken_by(allocation):
            left = int(self.left[machine]) - sign * gpus
            self.left[machine] = left
            self.total -= sign * gpus
            self.price[machine] = self._price(machine, left)

    def _price(self, machine: int, left: int) -> float:
        """What the next GPU of a machine costs of which so many are left."""
        taken = 1 - left / self._usable[machine]
        return float(self._lowest[machine] * self._range[machine] ** taken)
