"""Link speeds for files that give none, NVLink across machines, and clusters with slower links."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from dally.cluster.topology import Link, Topology
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


@dataclass(frozen=True, slots=True)
class NvlinkRack:
    """The links of GPUs whose machines share NVLink within a rack; bits per second and way, for one GPU.

    Attributes:
        gpus: Most GPUs in one NVLink domain.
        nvlink_bps: To any other GPU of the rack.
        nic_bps: To other racks.
    """

    gpus: int
    nvlink_bps: float
    nic_bps: float

    @property
    def fabric(self) -> Link:
        """What connects the GPUs of one machine."""
        return Link(self.nvlink_bps, 1e-6)

    def uplink(self, gpus: int) -> Link:
        """Leads from a machine with so many GPUs to the others of its rack: each GPU has its own NVLink."""
        return Link(gpus * self.nvlink_bps, 1e-6)

    def outside(self, gpus: int) -> Link:
        """Leads out of a rack, for a gang with one such machine there: that machine's network cards."""
        return Link(gpus * self.nic_bps, 2e-6)


# NVIDIA's data sheets of GB200 NVL72 and GB300 NVL72: 72 GPUs, 130 TB/s of NVLink in all, so 1.8 TB/s a GPU,
# both ways together; a network card for each GPU, ConnectX-7 (400 Gb/s) or ConnectX-8 (800 Gb/s).
_RACKS = {"gb200": NvlinkRack(72, 7.2e12, 400e9), "gb300": NvlinkRack(72, 7.2e12, 800e9)}


def nvlink_rack(gpu_type: str) -> NvlinkRack | None:
    """The rack that GPUs of a type such as `gb200` or `nvidia_gb200` are sold in; None if they need none."""
    return next((rack for name, rack in _RACKS.items() if name in gpu_type.lower()), None)


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
    domains = []
    for domain in topology.domains:
        link = domain.uplink
        if link is not None:
            link = replace(link, bandwidth_bps=link.bandwidth_bps * by_index[domain.level])
        domains.append(replace(domain, uplink=link))
    return replace(topology, domains=tuple(domains))
