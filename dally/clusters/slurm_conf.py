"""Reads a cluster from Slurm's own files: slurm.conf, and gres.conf and a topology file beside it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dally.clusters.hostlist import expand
from dally.clusters.links import DefaultLinks
from dally.clusters.slurm_gres import gpus_of_node, parse_gres, read_gres_conf
from dally.clusters.slurm_lines import ConfLine, read_lines, required
from dally.clusters.slurm_topology import ROOT, SlurmNetwork, read_topology_conf
from dally.clusters.slurm_topology_yaml import read_topology_yaml
from dally.clusters.source import naming
from dally.clusters.wiring import SwitchEntry, build_with_defaults, refuse_strays, wire
from dally.errors import InputError
from dally.topology import Machine, Topology

_FLAT = ("topology/flat", "topology/default", "topology/none")
_WITH_FILE = ("topology/tree", "topology/block")


@dataclass(slots=True)
class _Conf:
    """What slurm.conf says: values of the cluster, and each node's line with DEFAULT's values filled in."""

    values: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, ConfLine] = field(default_factory=dict)


def read_slurm(path: Path, links: DefaultLinks) -> Topology:
    """Read a cluster from Slurm's files.

    Nodes without GPUs are left out, and so are switches without nodes that have some.

    Args:
        path: slurm.conf, or the folder it is in.
        links: Links by level; Slurm's files give none.

    Raises:
        InputError: A file is missing or wrong; the message names it, the line if one is, and the value.
    """
    conf_path = path / "slurm.conf" if path.is_dir() else path
    if not conf_path.is_file():
        raise InputError(f"{path}: the folder has no slurm.conf" if path.is_dir() else f"{path}: not a file")
    conf = _read_slurm_conf(conf_path)
    return _build(conf_path, conf, _topology_file(conf_path, conf.values), links)


def read_topology_file(path: Path, links: DefaultLinks) -> Topology:
    """Read a cluster from a topology file, as Slurm or NVIDIA's topograph has it, and slurm.conf beside it.

    Raises:
        InputError: A file is wrong, or there is no slurm.conf, which alone tells the GPUs.
    """
    network, conf_path = read_network(path), path.parent / "slurm.conf"
    if not conf_path.is_file():
        size = "a flat network" if network is None else f"{len(network.wiring.switch_of)} nodes"
        raise InputError(
            f"{path}: describes {size} and no GPUs; put it beside the slurm.conf that has NodeName and Gres"
        )
    return _build(conf_path, _read_slurm_conf(conf_path), path, links)


def configured_gres(path: Path) -> dict[str, str]:
    """The `Gres=` of each node in a slurm.conf, empty where it has none.

    Raises:
        InputError: The file cannot be read, or a NodeName line is wrong.
    """
    return {name: line.values.get("gres", "") for name, line in _read_slurm_conf(path).nodes.items()}


def _build(conf_path: Path, conf: _Conf, topology_path: Path | None, links: DefaultLinks) -> Topology:
    machines = _machines(conf, conf_path.parent / "gres.conf", links)
    if not machines:
        raise InputError(f"{conf_path}: no NodeName line has GPUs (Gres=gpu:...)")
    names = [machine.name for machine in machines]
    network = _network(topology_path, conf.nodes, names)
    name = conf.values.get("clustername") or conf_path.resolve().parent.name
    with naming(topology_path or conf_path):
        return build_with_defaults(name, machines, network.wiring, links, network.levels)


def _read_slurm_conf(path: Path) -> _Conf:
    conf = _Conf()
    defaults: dict[str, str] = {}
    for line in read_lines(path, ("nodename", "clustername", "topologyplugin")):
        if line.first_key != "nodename":
            conf.values.update(line.values)
            continue
        hosts = required(line, "NodeName")
        if hosts.upper() == "DEFAULT":
            defaults.update(line.values)
            continue
        with naming(line.where):
            _add_nodes(conf, expand(hosts), ConfLine(line.where, {**defaults, **line.values}))
    return conf


def _add_nodes(conf: _Conf, hosts: Sequence[str], line: ConfLine) -> None:
    for host in hosts:
        if host in conf.nodes:
            raise InputError(f"node {host} is defined twice, first in {conf.nodes[host].where}")
        conf.nodes[host] = line


def _machines(conf: _Conf, gres_path: Path, links: DefaultLinks) -> list[Machine]:
    """The nodes that have GPUs, in the order of the file."""
    table = read_gres_conf(gres_path)
    machines = []
    for name, line in conf.nodes.items():
        with naming(line.where):
            gpus = gpus_of_node(name, parse_gres(line.values.get("gres", "")), table.of_node(name))
        if gpus is not None:
            machines.append(Machine(name, gpus.count, gpus.gpu_type, links.fabric))
    return machines


def _topology_file(conf_path: Path, values: Mapping[str, str]) -> Path | None:
    """The topology file that holds, the one in YAML first as for Slurm; None for a flat network."""
    plugin = values.get("topologyplugin", "").lower()
    path = conf_path.with_name("topology.yaml")
    if path.exists():
        return path
    if plugin in _FLAT:
        return None
    if plugin and plugin not in _WITH_FILE:
        valid = ", ".join((*_WITH_FILE, *_FLAT))
        raise InputError(f"{conf_path}: TopologyPlugin={plugin} is not supported; supported: {valid}")
    path = conf_path.with_name("topology.conf")
    return path if path.exists() else None


def _flat(names: Sequence[str]) -> SlurmNetwork:
    return SlurmNetwork(wire([SwitchEntry(ROOT, tuple(names), ())]))


def read_network(path: Path) -> SlurmNetwork | None:
    """Read a topology file, told by its name's ending; None if it says that the network is flat.

    Raises:
        InputError: It cannot be read or contradicts itself.
    """
    return read_topology_yaml(path) if path.suffix in (".yaml", ".yml") else read_topology_conf(path)


def _network(path: Path | None, defined: Collection[str], wanted: Collection[str]) -> SlurmNetwork:
    """The part of a topology file above the wanted nodes."""
    network = read_network(path) if path is not None else None
    if network is None:
        return _flat(list(wanted))
    with naming(path):
        refuse_strays(network.wiring, defined, wanted)
    return SlurmNetwork(network.wiring.above(wanted), network.levels)
