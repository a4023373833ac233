"""Reads slurm.conf: its nodes, those that are not there, and which partitions they are in."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dally.cluster.hostlist import expand
from dally.cluster.slurm_lines import ConfLine, read_lines, required
from dally.cluster.source import naming
from dally.errors import InputError

_KEYS = (
    "nodename",
    "clustername",
    "topologyplugin",
    "topologyparam",
    "partitionname",
    "nodeset",
    "downnodes",
)
_ABSENT = frozenset({"FUTURE", "DOWN", "DRAIN", "FAIL", "FAILING"})
_ALL = "ALL"


@dataclass(slots=True)
class SlurmConf:
    """What slurm.conf says.

    Attributes:
        path: The file.
        values: Values of the cluster, by key in lower case.
        nodes: Each node's line, with DEFAULT's values filled in.
        absent: Nodes without capacity, each with what says so, such as `State=FUTURE`.
        partitions: The lines of the partitions, likewise with DEFAULT's values.
        node_sets: The lines of node sets, by name.
    """

    path: Path
    values: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, ConfLine] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    partitions: list[ConfLine] = field(default_factory=list)
    node_sets: dict[str, ConfLine] = field(default_factory=dict)

    def members(self, names: Collection[str]) -> tuple[str, ...]:
        """Nodes by name, where the names of node sets and ALL stand for what they hold."""
        found: dict[str, None] = {}
        for name in names:
            found.update(dict.fromkeys(self._members(name)))
        return tuple(found)

    def _members(self, name: str) -> Collection[str]:
        if name in self.nodes:
            return (name,)
        if name in self.node_sets:
            return self._in_set(self.node_sets[name])
        return self.nodes if name.upper() == _ALL else (name,)

    def _in_set(self, line: ConfLine) -> tuple[str, ...]:
        nodes, feature = line.values.get("nodes"), line.values.get("feature")
        with naming(line.where):
            listed = expand(nodes) if nodes else ()
        return (*listed, *(name for name in self.nodes if feature and feature in _features(self.nodes[name])))

    def topology_of(self) -> dict[str, str]:
        """The topology that a node's partition names (Slurm 25.05 and newer), by node; the first counts."""
        found: dict[str, str] = {}
        for line in self.partitions:
            topology, nodes = line.values.get("topology"), line.values.get("nodes")
            if topology and nodes:
                with naming(line.where):
                    for name in self.members(expand(nodes)):
                        found.setdefault(name, topology)
        return found


def _features(line: ConfLine) -> list[str]:
    return (line.values.get("features") or line.values.get("feature", "")).split(",")


def read_slurm_conf(path: Path) -> SlurmConf:
    """Read slurm.conf and the files that it includes.

    Raises:
        InputError: A file is missing or wrong; the message names it and the line.
    """
    conf = SlurmConf(path)
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for line in read_lines(path, _KEYS):
        key = line.first_key
        if key in defaults:
            name = required(line, key)
            if name.upper() == "DEFAULT":
                defaults[key].update(line.values)
                continue
            line = ConfLine(line.where, {**defaults[key], **line.values})
        with naming(line.where):
            _take(conf, key, line)
    return conf


def _take(conf: SlurmConf, key: str, line: ConfLine) -> None:
    if key == "nodename":
        _add_nodes(conf, expand(line.values[key]), line)
    elif key == "downnodes":
        state = line.values.get("state", "DOWN").upper()
        conf.absent.update(dict.fromkeys(expand(line.values[key]), f"DownNodes, State={state}"))
    elif key == "partitionname":
        conf.partitions.append(line)
    elif key == "nodeset":
        conf.node_sets[line.values[key]] = line
    else:
        conf.values.update(line.values)


def _add_nodes(conf: SlurmConf, hosts: Sequence[str], line: ConfLine) -> None:
    state = line.values.get("state", "").upper()
    for host in hosts:
        if host in conf.nodes:
            raise InputError(f"node {host} is defined twice, first in {conf.nodes[host].where}")
        conf.nodes[host] = line
        if state in _ABSENT:
            conf.absent.setdefault(host, f"State={state}")


def configured_gres(path: Path) -> dict[str, str]:
    """The `Gres=` of each node in a slurm.conf, empty where it has none.

    Raises:
        InputError: The file cannot be read, or a line is wrong.
    """
    return {name: line.values.get("gres", "") for name, line in read_slurm_conf(path).nodes.items()}
