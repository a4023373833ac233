"""The network of a Slurm cluster's GPU nodes, from whatever topology file it has, and what it lacks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dally.cluster.slurm_conf import SlurmConf
from dally.cluster.slurm_topology import (
    KINDS,
    ROOT,
    SlurmNetwork,
    is_yaml,
    read_topologies,
    read_topology_conf,
    yaml_network,
)
from dally.cluster.topology import LeftOut
from dally.cluster.topology_build import SwitchEntry, Wiring, wire
from dally.config_text import naming, read_text
from dally.errors import InputError

_FLAT = ("topology/flat", "topology/default", "topology/none")
_WITH_FILE = ("topology/tree", "topology/block")


def topology_file(conf: SlurmConf) -> Path | None:
    """The topology file that holds, the one in YAML first as for Slurm; None for a flat network.

    Raises:
        InputError: Slurm would use a plugin that Dally does not know.
    """
    plugin = conf.values.get("topologyplugin", "").lower()
    path = conf.path.with_name("topology.yaml")
    if path.exists():
        return path
    if plugin in _FLAT:
        return None
    if plugin and plugin not in _WITH_FILE:
        valid = ", ".join((*_WITH_FILE, *_FLAT))
        raise InputError(f"{conf.path}: TopologyPlugin={plugin} is not supported; supported: {valid}")
    path = conf.path.with_name("topology.conf")
    if not path.exists():
        return None
    # The file that comes with Slurm has comments only; where no plugin is named, it means nothing.
    lines = map(str.strip, read_text(path, "replace").split("\n"))
    return path if plugin or any(line and not line.startswith("#") for line in lines) else None


def network_of(conf: SlurmConf, path: Path | None, nodes: Sequence[str]) -> SlurmNetwork:
    """The part of the network above some nodes, under one root.

    Several top switches get a root. Slurm starts no job across them, nor any on a node without a switch,
    unless TopologyParam has TopoOptional. Across the topologies of different partitions it never does.

    Args:
        conf: What slurm.conf says.
        path: The topology file; None for a flat network.
        nodes: The nodes that are wanted.

    Raises:
        InputError: The file cannot be read or contradicts itself.
    """
    if path is None:
        return _flat(nodes)
    spans = "topooptional" in conf.values.get("topologyparam", "").lower()
    if not is_yaml(path):
        network = _above(conf, read_topology_conf(path), nodes, spans)
        return _joined([network], not spans, network.left_out)
    topologies, default = read_topologies(path)
    named = conf.topology_of()
    nodes_of: dict[str, list[str]] = {}
    for node in nodes:
        nodes_of.setdefault(named.get(node, default), []).append(node)
    networks: list[SlurmNetwork] = []
    left_out: list[LeftOut] = []
    for name, members in nodes_of.items():
        if name not in topologies:
            why = f"their partition's topology {name} is not in {path.name}"
            left_out.append(LeftOut(tuple(members), why))
        elif sum(kind in topologies[name] for kind in KINDS) != 1:
            left_out.append(LeftOut(tuple(members), f"topology {name} is not just one of {', '.join(KINDS)}"))
        else:
            with naming(f"{path}: topology {name}"):
                whole = yaml_network(topologies[name]) or _flat(members)
                network = _above(conf, whole, members, spans)
            networks.append(_prefixed(network, f"{name}.") if len(nodes_of) > 1 else network)
            left_out += network.left_out
    return _joined(networks, len(networks) > 1 or not spans, left_out)


def _flat(names: Sequence[str]) -> SlurmNetwork:
    return SlurmNetwork(wire([SwitchEntry(ROOT, tuple(names), ())]))


def _above(conf: SlurmConf, network: SlurmNetwork, nodes: Sequence[str], spans: bool) -> SlurmNetwork:
    """The part of a network above some nodes, perhaps with several roots, and what had to be left out."""
    listed = {
        node: switch for name, switch in network.wiring.switch_of.items() for node in conf.members([name])
    }
    stale = tuple(name for name in listed if name not in conf.nodes)
    bare = tuple(node for node in nodes if node not in listed)
    switch_of = {node: listed[node] for node in nodes if node in listed}
    wiring = Wiring(switch_of, network.wiring.parents).above(switch_of)
    left_out = [LeftOut(stale, "not in slurm.conf")] if stale else []
    if bare and spans:  # nodes that have no switch hang directly on the top
        top, parents = _one_root(wiring.parents)
        wiring = Wiring({**wiring.switch_of, **dict.fromkeys(bare, top)}, parents)
    elif bare:
        left_out.append(LeftOut(bare, "in no block" if network.blocks else "on no switch"))
    return SlurmNetwork(wiring, network.levels, network.blocks, left_out=tuple(left_out))


def _joined(networks: Sequence[SlurmNetwork], islands: bool, left_out: Sequence[LeftOut]) -> SlurmNetwork:
    """One network of several, or of one that has several roots."""
    parents = {name: parent for network in networks for name, parent in network.wiring.parents.items()}
    switch_of = {node: name for network in networks for node, name in network.wiring.switch_of.items()}
    several = [*parents.values()].count(None) > 1
    if several:
        _, parents = _one_root(parents)
    levels = networks[0].levels if len(networks) == 1 and not several else None
    blocks = frozenset(name for network in networks for name in network.blocks)
    wiring = Wiring(switch_of, parents)
    return SlurmNetwork(wiring, levels, blocks, islands and several, tuple(left_out))


def _one_root(parents: Mapping[str, str | None]) -> tuple[str, dict[str, str | None]]:
    """The top of a tree, and the tree: with a new switch above all if it has not just one root."""
    roots = [name for name, parent in parents.items() if parent is None]
    if len(roots) == 1:
        return roots[0], dict(parents)
    top = ROOT
    while top in parents:
        top += "-"
    return top, {name: parent or top for name, parent in parents.items()} | {top: None}


def _prefixed(network: SlurmNetwork, prefix: str) -> SlurmNetwork:
    """The same network with other names for its switches, as each topology may use the same ones."""
    wiring = network.wiring
    parents = {prefix + name: parent and prefix + parent for name, parent in wiring.parents.items()}
    switch_of = {node: prefix + name for node, name in wiring.switch_of.items()}
    return SlurmNetwork(Wiring(switch_of, parents), None, frozenset(prefix + name for name in network.blocks))
