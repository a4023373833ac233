"""Where the ranks of a job are on a cluster, and which links lie between them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf

from dally.cluster.links import nvlink_rack
from dally.cluster.topology import Allocation, Topology

_BITS = 8
_DIGITS = re.compile(r"([0-9]+)")
_AS_FAST = 0.999
"""From this share of what GPUs have inside their machine on, what leads out of it counts as NVLink, too."""


@dataclass(frozen=True, slots=True)
class Tier:
    """The domains of one level that hold a plan's ranks, machines or racks, and the links that lead out.

    Attributes:
        domains: The number of each machine's domain, in the order of ranks.
        bytes_per_s: Out of the slowest domain, for all of the plan's ranks there, each way; infinite where
            nothing limits it.
        rank_bytes_per_s: What one rank can send at most, where it is least.
    """

    domains: tuple[int, ...]
    bytes_per_s: float
    rank_bytes_per_s: float = inf


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """All that a plan's step depends on; placements that look alike are equal, whatever machines they use.

    Attributes:
        machines: GPUs on each machine or NVLink domain, in the order of ranks.
        gpu_types: The types of the GPUs, sorted, each once.
        inside_bytes_per_s: Of a GPU inside its machine, each way, where it is least.
        links: The links out of machines or NVLink domains, out of racks, and so on to where all ranks meet.
        lowest: The cluster's level of the first of these domains: 0 is the machine.
    """

    machines: tuple[int, ...]
    gpu_types: tuple[str, ...]
    inside_bytes_per_s: float
    links: tuple[Tier, ...]
    lowest: int

    @property
    def level(self) -> int:
        """The cluster's level at which all ranks meet."""
        return self.lowest + len(self.links)


class RankPlacer:
    """Says where the ranks of a gang are: Slurm gives them to machines by the order of names.

    Args:
        topology: The cluster.
        order: Machines in the order in which they get ranks instead; all that gangs have.
    """

    def __init__(self, topology: Topology, order: Sequence[int] = ()) -> None:
        self._topology = topology
        machines = range(len(topology.machines))
        order = order or sorted(machines, key=lambda machine: _natural(topology.machines[machine].name))
        self._place = {machine: place for place, machine in enumerate(order)}
        self._on_nvlink = [self._has_nvlink_outside(machine) for machine in machines]

    def place(self, allocation: Allocation) -> RankPlacement:
        """Where the ranks of a gang with these GPUs are."""
        topology = self._topology
        ordered = sorted(allocation, key=lambda each: self._place[each[0]])
        level = topology.level_of(allocation)
        lowest = int(level > 0 and all(self._on_nvlink[machine] for machine, _ in ordered))
        # Neighbours in rank order that share an NVLink domain count as one machine.
        runs = [[*run] for _, run in groupby(ordered, key=lambda each: topology.ancestors[each[0]][lowest])]
        firsts = [run[0][0] for run in runs]
        return RankPlacement(
            machines=tuple(sum(gpus for _, gpus in run) for run in runs),
            gpu_types=tuple(sorted({topology.machines[machine].gpu_type for machine, _ in ordered})),
            inside_bytes_per_s=min(self._inside_bps(*each) for each in ordered) / _BITS,
            links=tuple(self._tier(each, ordered, firsts, each == lowest) for each in range(lowest, level)),
            lowest=lowest,
        )

    def _tier(
        self, level: int, gang: Sequence[tuple[int, int]], firsts: Sequence[int], nearest: bool
    ) -> Tier:
        """The links out of the domains of a level.

        A job has its GPUs' share of what leads out of a machine or NVLink domain, as each GPU has network
        cards beside it, and all that leads out of racks.
        """
        members: dict[int, list[tuple[int, int]]] = {}
        for machine, gpus in gang:
            members.setdefault(self._topology.ancestors[machine][level], []).append((machine, gpus))
        least_bps = rank_bps = inf
        for domain, inside in members.items():
            ranks = sum(gpus for _, gpus in inside)
            whole_bps, each_bps = self._out_bps(domain, inside[0][0], ranks)
            if nearest:
                whole_bps, rank_bps = each_bps * ranks, min(rank_bps, each_bps)
            least_bps = min(least_bps, whole_bps)
        found = [self._topology.ancestors[machine][level] for machine in firsts]
        numbers = {domain: number for number, domain in enumerate(dict.fromkeys(found))}
        return Tier(tuple(numbers[domain] for domain in found), least_bps / _BITS, rank_bps / _BITS)

    def _out_bps(self, domain: int, machine: int, ranks: int) -> tuple[float, float]:
        """What leads out of a domain for so many ranks in it, and each GPU's share of that."""
        uplink, host = self._topology.domains[domain].uplink, self._topology.machines[machine]
        if uplink is None:
            return inf, inf
        rack = nvlink_rack(host.gpu_type)
        if rack is not None and uplink == rack.outside(host.gpus):
            return rack.nic_bps * ranks, rack.nic_bps  # the file's reader counts one machine's cards
        return uplink.bandwidth_bps, uplink.bandwidth_bps / self._topology.domains[domain].gpus

    def _inside_bps(self, machine: int, gpus: int) -> float:
        host = self._topology.machines[machine]
        in_slot = host.slot_fabric is not None and gpus <= host.gpus // host.slots
        fabric = host.slot_fabric if in_slot and host.slot_fabric is not None else host.fabric
        return fabric.bandwidth_bps

    def _has_nvlink_outside(self, machine: int) -> bool:
        host, uplink = self._topology.machines[machine], self._topology.domains[machine].uplink
        return uplink is not None and uplink.bandwidth_bps >= _AS_FAST * host.fabric.bandwidth_bps * host.gpus


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts names as Slurm does: n2 before n10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(name)]
