"""Reads a cluster from Slurm's own files: slurm.conf, and gres.conf and a topology file beside it.

What cannot be used is left out and listed in `Topology.left_out`; only what Slurm itself refuses is an error.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from dally.cluster.links import DefaultLinks, nvlink_rack
from dally.cluster.slurm_conf import RegisteredNode, SlurmConf, read_slurm_conf
from dally.cluster.slurm_gres import UnusableGpusError, gpus_of_node, parse_gres, read_gres_conf
from dally.cluster.slurm_network import network_of, topology_file
from dally.cluster.slurm_topology import SlurmNetwork, read_network
from dally.cluster.summary import left_out_text
from dally.cluster.topology import LeftOut, Link, Machine, Topology
from dally.cluster.topology_build import OwnLinks, build_with_defaults
from dally.config_text import naming
from dally.errors import InputError
from dally.words import plural


def read_slurm(
    path: Path,
    links: DefaultLinks | None,
    *,
    is_topology: bool = False,
    absent: bool = False,
    registered: Iterable[RegisteredNode] = (),
) -> Topology:
    """Read a cluster from Slurm's files.

    Nodes without GPUs are no part of it, nor are switches without nodes that have some.

    Args:
        path: slurm.conf, or the folder it is in; or a topology file beside it, as Slurm or NVIDIA's topograph
            has it.
        links: Links by level, as Slurm's files give none; None: the defaults, and NVLink by GPU type.
        is_topology: The path is that of a topology file, which goes before the one that slurm.conf names.
        absent: Keep nodes that slurm.conf says are FUTURE or DOWN.
        registered: Nodes that slurmctld shows; those that are in no file are added.

    Raises:
        InputError: A file is missing or wrong; the message names it, the line if one is, and the value.
    """
    if is_topology:
        network, conf_path = read_network(path), path.parent / "slurm.conf"
        if not conf_path.is_file():
            size = "a flat network" if network is None else f"{plural(len(network.wiring.switch_of), 'node')}"
            helps = "put it beside the slurm.conf that has NodeName and Gres"
            raise InputError(f"{path}: describes {size} and no GPUs; {helps}")
    else:
        conf_path = path / "slurm.conf" if path.is_dir() else path
        if not conf_path.is_file():
            lacks = "the folder has no slurm.conf" if path.is_dir() else "not a file"
            raise InputError(f"{path}: {lacks}")
    conf = read_slurm_conf(conf_path)
    conf.register(registered)
    topology = path if is_topology else topology_file(conf)
    machines, left_out = _machines(conf, links, absent)
    if not machines and not left_out:
        raise InputError(
            f"{conf.path}: no NodeName line has GPUs (Gres=gpu:...); nodes that register themselves are in "
            "no file: write the cluster as TOML, see docs/cluster-files.md"
        )
    found = network_of(conf, topology, [machine.name for machine in machines])
    left_out += found.left_out
    placed = [machine for machine in machines if machine.name in found.wiring.switch_of]
    if not placed:
        raise InputError(f"{topology or conf.path}: no node with GPUs can be used: {left_out_text(left_out)}")
    name = conf.values.get("clustername") or conf.path.resolve().parent.name
    with naming(topology or conf.path):
        own = OwnLinks() if links else _nvlink(placed, found)
        built = build_with_defaults(
            name,
            placed,
            found.wiring,
            links or DefaultLinks(),
            found.levels,
            own=own,
            islands=found.islands,
            left_out=tuple(left_out),
        )
    known = {
        name: nodes.intersection(built.machine_index) for name, nodes in conf.members_of_partitions().items()
    }
    return replace(built, partitions={name: nodes for name, nodes in known.items() if nodes})


def _machines(
    conf: SlurmConf, links: DefaultLinks | None, absent: bool
) -> tuple[list[Machine], list[LeftOut]]:
    """The nodes that have GPUs, in the order of the file, and those of them that cannot be used."""
    table = read_gres_conf(conf.path.with_name("gres.conf"))
    machines: list[Machine] = []
    unusable: dict[str, list[str]] = {}
    for name, line in conf.nodes.items():
        with naming(line.where):
            asked = parse_gres(line.values.get("gres", ""))
        try:
            gpus = gpus_of_node(name, asked, table)
        except UnusableGpusError as error:
            unusable.setdefault(str(error), []).append(name)
            continue
        if gpus is None:
            continue
        if name in conf.absent and not absent:
            unusable.setdefault(conf.absent[name], []).append(name)
            continue
        rack = nvlink_rack(gpus.gpu_type) if links is None else None
        fabric = rack.fabric if rack else (links or DefaultLinks()).fabric
        machines.append(Machine(name, gpus.count, gpus.gpu_type, fabric))
    return machines, [LeftOut(tuple(names), why) for why, names in unusable.items()]


def _nvlink(machines: Sequence[Machine], network: SlurmNetwork) -> OwnLinks:
    """The links of machines that share NVLink with the others of their block, and of what lies above them.

    Raises:
        InputError: The network does not tell which machines share NVLink, or a block has too many of them.
    """
    uplinks: dict[str, Link] = {}
    above: dict[str, Link] = {}
    gpus: Counter[str] = Counter()
    for machine in machines:
        rack, switch = nvlink_rack(machine.gpu_type), network.wiring.switch_of[machine.name]
        if rack is None:
            continue
        gpus[switch] += machine.gpus
        if switch not in network.blocks or gpus[switch] > rack.gpus:
            why = f"block {switch} has more" if switch in network.blocks else "no block tells which do"
            raise InputError(
                f"{machine.name} has GPUs of type {machine.gpu_type}, of which up to {rack.gpus} share "
                f"NVLink across machines, but {why}; put a file with a line for each NVLink domain, such as "
                '"BlockName=rack1 Nodes=n[1-18]", beside slurm.conf and name it, or write the cluster as TOML'
            )
        uplinks[machine.name] = rack.uplink(machine.gpus)
        for name in network.wiring.path(switch):
            above[name] = rack.outside(machine.gpus)
    return OwnLinks(uplinks, above)
