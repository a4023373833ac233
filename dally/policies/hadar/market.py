"""The GPUs that a round of Hadar hands out: what is left on each server, who holds it, and its price."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from dally.cluster.topology import Allocation, Topology
from dally.policies.hadar.prices import Flags, Floats, Ints, PriceRange


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

    def tiers(self, speeds: Mapping[str, float]) -> tuple[Flags, ...]:
        """The machines whose GPUs are at least so fast, for each speed that there is, the highest first.

        Args:
            speeds: Speed of one GPU of each type that is accepted.
        """
        names = self.topology.gpu_types
        by_type = np.array([speeds.get(name, 0.0) for name in names])
        found = [by_type >= speed for speed in sorted({*speeds.values()}, reverse=True) if speed > 0]
        return tuple(enough[self.gpu_types] for enough in found)

    def alone(self, speeds: Mapping[str, float], gpus: int) -> tuple[Flags, ...]:
        """The machines of each type that by itself holds a gang of so many GPUs, the fastest type first.

        Args:
            speeds: Speed of one GPU of each type that is accepted.
            gpus: GPUs of the gang.
        """
        names = self.topology.gpu_types
        found = [
            self.gpu_types == names.index(name) for name in sorted(speeds, key=lambda each: -speeds[each])
        ]
        return tuple(each for each in found if self.gpus[each].sum() >= gpus)


class Market:
    """One round's GPUs: bidders take them one after another, and their prices rise.

    GPUs of running jobs are on offer, too. They are claimed until their holder has bid itself.

    Args:
        servers: The machines.
        usable: GPUs of each machine that our jobs hold or could have.
        left: Of these, those on offer.
        prices: From the first to the last GPU of a machine.
    """

    def __init__(self, servers: Servers, usable: Ints, left: Ints, prices: PriceRange) -> None:
        self.servers = servers
        self.left, self.claimed = left.copy(), np.zeros_like(left)
        self.total = int(left.sum())
        self._usable = np.maximum(usable, 1).tolist()
        self._lowest = prices.lowest[servers.gpu_types].tolist()
        self._range = (prices.highest / prices.lowest)[servers.gpu_types].tolist()
        self.price: Floats = np.array([self._price(*each) for each in enumerate(left.tolist())])

    def offers(self) -> Sequence[Ints]:
        """GPUs on offer on each machine: those that nobody would have to leave; if that differs, all."""
        if not self.claimed.any():
            return (self.left,)
        return np.maximum(self.left - self.claimed, 0), self.left

    @property
    def cheapest(self) -> float:
        """The least price of a GPU on offer; inf if there is none."""
        return float(np.where(self.left > 0, self.price, np.inf).min())

    def claim(self, allocation: Allocation, sign: int = 1) -> None:
        """A running job has yet to bid for what it holds; with sign -1 it does so now."""
        for machine, gpus in allocation:
            self.claimed[machine] += sign * gpus

    def release(self) -> None:
        """Nobody has any claim."""
        self.claimed[:] = 0

    def holds(self, allocation: Allocation) -> bool:
        """Whether all of it is on offer still."""
        return all(self.left[machine] >= gpus for machine, gpus in allocation)

    def cost(self, allocation: Allocation) -> float:
        """What it costs at present prices."""
        return float(sum(self.price[machine] * gpus for machine, gpus in allocation))

    def take(self, allocation: Allocation, sign: int = 1) -> None:
        """Somebody takes these GPUs; with sign -1 they are on offer again."""
        for machine, gpus in allocation:
            left = int(self.left[machine]) - sign * gpus
            self.left[machine] = left
            self.total -= sign * gpus
            self.price[machine] = self._price(machine, left)

    def _price(self, machine: int, left: int) -> float:
        """What the next GPU of a machine costs of which so many are left."""
        taken = 1 - left / self._usable[machine]
        return float(self._lowest[machine] * self._range[machine] ** taken)
