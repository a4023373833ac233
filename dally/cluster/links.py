"""Link speeds for files that give none, and a cluster whose network is slower than built."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from dally.cluster.topology import Domain, Link, Topology
from dally.errors import InputError

_NVLINK = Link(2.4e12, 1e-6)
_HDR = (Link(200e9, 1e-6), Link(400e9, 2e-6))


@dataclass(frozen=True, slots=True)
class DefaultLinks:
    """The links of a cluster whose file names none.

    The defaults are plausible ones of no cluster in particular: better measure yours and write a TOML file.

    Attributes:
        fabric: Between the GPUs of a machine. Default: NVLink 3 as in an A100 (NVIDIA's data sheet: 600 GB/s
            both ways together, so 300 GB/s each way), 1 us.
        uplinks: Of a machine, of a rack, and so on; the last holds for all levels above. Default: one port of
            HDR InfiniBand (200 Gb/s) a machine and 1 us; two such ports a rack and 2 us.
    """

    fabric: Link = _NVLINK
    uplinks: tuple[Link, ...] = _HDR

    def uplink(self, level: int) -> Link:
        """The uplink of a domain of one level, 0 being the machine."""
        return self.uplinks[min(level, len(self.uplinks) - 1)]


def scaled_links(topology: Topology, factors: float | Mapping[str, float]) -> Topology:
    """The same cluster with its uplinks' bandwidth multiplied, to model a congested network.

    What connects GPUs inside a machine stays as it is, and so do latencies.

    Args:
        topology: The cluster as built.
        factors: One factor for the uplinks of all levels, or a factor by level name; levels left out stay.
            `{"rack": 0.1}` leaves a tenth of what racks have to the switches above them.

    Raises:
        InputError: A factor is not a positive number, or a level is unknown or the highest.
    """
    valid = topology.levels[:-1]
    by_level = factors if isinstance(factors, Mapping) else dict.fromkeys(valid, factors)
    for level, factor in by_level.items():
        if level not in valid:
            raise InputError(f"level {level!r} has no uplinks; levels that have: {', '.join(valid)}")
        if not 0 < factor < inf:
            raise InputError(f"bandwidth factor {factor:g} of level {level} must be a positive number")
    by_index = [by_level.get(level, 1.0) for level in topology.levels]
    return replace(
        topology, domains=tuple(_scaled(domain, by_index[domain.level]) for domain in topology.domains)
    )


def _scaled(domain: Domain, factor: float) -> Domain:
    if domain.uplink is None:
        return domain
    return replace(domain, uplink=replace(domain.uplink, bandwidth_bps=domain.uplink.bandwidth_bps * factor))
