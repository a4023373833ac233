"""The part of the cluster that Dally schedules: the nodes of its partitions, read anew when they change."""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dally.cluster import load_cluster
from dally.cluster.slurm_conf import RegisteredNode
from dally.cluster.topology import Topology
from dally.errors import InputError
from dally.policies.registry import parse_policy
from dally.profiles.files import ProfileSet, load_profiles
from slurm_plugin.client.slurm import SlurmNode
from slurm_plugin.config import Config, load_config

CLUSTER_FILES = ("slurm.conf", "gres.conf", "topology.conf", "topology.yaml")

Stamp = tuple[tuple[str, int, int], ...]
"""Name, time of change (ns) and size of the files that describe the cluster."""


@dataclass(frozen=True, slots=True)
class ControllerInputs:
    """What a controller is built from: the configuration and the files that it names.

    Attributes:
        config: The configuration.
        topology: The whole cluster.
        stamp: Of the cluster's files, taken before they were read.
        profiles: Profiles of the models, if there are any.
    """

    config: Config
    topology: Topology
    stamp: Stamp
    profiles: ProfileSet | None


def load_site(path: Path | None) -> ControllerInputs:
    """Read configuration, cluster and profiles, and check the policy.

    Raises:
        InputError: One of them is wrong.
    """
    config = load_config(path)
    parse_policy(config.policy)
    stamp = stamp_of(config.cluster)
    profiles = load_profiles(config.profiles) if config.profiles else None
    return ControllerInputs(config, load_cluster(config.cluster, absent=True), stamp, profiles)


def with_registered(site: ControllerInputs, nodes: Iterable[SlurmNode]) -> Topology:
    """The site's whole cluster, with the GPU nodes that slurmctld shows and no file of Slurm's names.

    Raises:
        InputError: The files cannot be read, or contradict each other.
    """
    known = {machine.name for machine in site.topology.machines}
    missing = [node for node in nodes if node.gpus and node.name not in known]
    if not missing:
        return site.topology
    registered = [RegisteredNode(node.name, node.gres, node.features) for node in missing]
    return load_cluster(site.config.cluster, absent=True, registered=registered)


def stamp_of(cluster: str) -> Stamp:
    """The present stamp of a cluster's files; those beside slurm.conf count, whichever of them is named."""
    place = Path(cluster)
    folder = place if place.is_dir() else place.parent
    stamp = []
    for path in sorted({place, *(folder / name for name in CLUSTER_FILES)}):
        with suppress(OSError):
            status = path.stat()
            if not path.is_dir():
                stamp.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(stamp)


def managed_gpus(nodes: Iterable[SlurmNode], partitions: Iterable[str]) -> dict[str, int]:
    """GPUs of each node that has some and is in one of the partitions."""
    ours = set(partitions)
    return {node.name: node.gpus for node in nodes if node.gpus and ours.intersection(node.partitions)}


def cut(topology: Topology, gpus: Mapping[str, int]) -> Topology:
    """The part of a cluster above some of its machines, which have as many GPUs as Slurm says.

    Raises:
        InputError: None of the machines is in the cluster.
    """
    kept = [index for index, machine in enumerate(topology.machines) if machine.name in gpus]
    if not kept:
        raise InputError(f"cluster {topology.name} has no node of Dally's partitions with GPUs")
    machines, held = [], Counter[int]()
    for index in kept:
        machine = topology.machines[index]
        count = gpus[machine.name]
        machines.append(replace(machine, gpus=count, slots=1 if count % machine.slots else machine.slots))
        held.update(dict.fromkeys(topology.ancestors[index], count))
    number = {old: new for new, old in enumerate(sorted(held))}
    domains = [
        replace(
            domain,
            index=number[domain.index],
            parent=None if domain.parent is None else number[domain.parent],
            children=tuple(number[child] for child in domain.children if child in number),
            gpus=held[domain.index],
        )
        for domain in (topology.domains[old] for old in number)
    ]
    return Topology(topology.name, topology.levels, tuple(machines), tuple(domains), topology.islands)
