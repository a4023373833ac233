"""The racks of a cluster's topology, for planning."""

from dally.cluster import DefaultLinks
from dally.cluster.topology import Domain, Topology
from dally.errors import InputError
from dally.profiles.schema import PointLink
from profiler.driver.plan import PlannedHost, PlannedRack

_ASSUMED = DefaultLinks()
_RACK_LEVEL = 1


def only_gpu_type(topology: Topology, gpu_type: str | None) -> str:
    """The GPU type to measure: the one asked for, or the only one there is.

    Raises:
        InputError: There is no such type, or there are several and none is asked for.
    """
    types = topology.gpu_types
    if gpu_type is None and len(types) == 1:
        return types[0]
    if gpu_type in types and gpu_type is not None:
        return gpu_type
    asked = "several GPU types and none asked for" if gpu_type is None else f"no GPU type {gpu_type}"
    raise InputError(f"{topology.name} has {asked}; --gpu-type can be {', '.join(filter(None, types))}")


def racks_of(topology: Topology, gpu_type: str) -> tuple[PlannedRack, ...]:
    """The machines with one type of GPU, rack by rack, a rank for each GPU; racks without are left out."""
    racks = []
    for domain in topology.level_domains[_RACK_LEVEL]:
        machines = [index for index in domain.children if topology.machines[index].gpu_type == gpu_type]
        hosts = tuple(
            PlannedHost(
                topology.machines[index].name, topology.machines[index].gpus, _link(topology.domains[index])
            )
            for index in machines
        )
        if hosts:
            racks.append(PlannedRack(hosts, _link(domain)))
    return tuple(racks)


def _link(domain: Domain) -> PointLink | None:
    """The uplink of a domain; None if it is only assumed, as Slurm's files tell none."""
    uplink = domain.uplink
    if uplink is None or uplink == _ASSUMED.uplink(domain.level):
        return None
    return PointLink(uplink.bandwidth_bps, uplink.latency_s)
