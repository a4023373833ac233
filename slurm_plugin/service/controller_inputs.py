"""The part of the cluster that Dally schedules: the nodes of its partitions, read anew when they change."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dally.cluster import load_cluster
from dally.cluster.topology import Domain, Machine, Topology
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


def stamp_of(cluster: str) -> Stamp:
    """The present stamp of a cluster's files; those beside slurm.conf count, whichever of them is named."""
    place = Path(cluster)
    folder = place if place.is_dir() else place.parent
    paths = {place, *(folder / name for name in CLUSTER_FILES)}
    return tuple(stamp for path in sorted(paths) if (stamp := _stamp(path)))


def _stamp(path: Path) -> tuple[str, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return None if path.is_dir() else (str(path), status.st_mtime_ns, status.st_size)


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
    used = sorted({domain for index in kept for domain in topology.ancestors[index]})
    number = {old: new for new, old in enumerate(used)}
    machines = tuple(_with_gpus(topology.machines[index], gpus) for index in kept)
    held = [0] * len(used)
    for index in kept:
        for domain in topology.ancestors[index]:
            held[number[domain]] += gpus[topology.machines[index].name]
    domains = tuple(_renumbered(topology.domains[old], number, held) for old in used)
    return Topology(topology.name, topology.levels, machines, domains, topology.islands)


def _with_gpus(machine: Machine, gpus: Mapping[str, int]) -> Machine:
    count = gpus[machine.name]
    if count == machine.gpus:
        return machine
    return replace(machine, gpus=count, slots=1 if count % machine.slots else machine.slots)


def _renumbered(domain: Domain, number: Mapping[int, int], gpus: list[int]) -> Domain:
    return replace(
        domain,
        index=number[domain.index],
        parent=None if domain.parent is None else number[domain.parent],
        children=tuple(number[child] for child in domain.children if child in number),
        gpus=gpus[number[domain.index]],
    )
