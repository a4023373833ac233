"""Reads Slurm's topology.yaml (25.05 and newer): named topologies, of which the cluster's default counts."""

import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dally.cluster.hostlist import expand
from dally.cluster.slurm_topology import SlurmNetwork, block_network, next_block_size
from dally.cluster.source import naming, read_text
from dally.cluster.wiring import SwitchEntry, wire
from dally.config_text import parse_yaml
from dally.errors import InputError

KINDS = ("tree", "block", "flat")
"""The kinds of topologies that Dally knows."""

_Table = Mapping[str, Any]


def read_topology_yaml(path: Path) -> SlurmNetwork | None:
    """Read the network that holds where a partition names none; None if it is flat.

    That is the first topology with `cluster_default: true`, or, where none has it, the first of all.

    Raises:
        InputError: The file cannot be read or contradicts itself; the message names file and entry.
    """
    with naming(path):
        topologies = parse_topologies(read_text(path))
    name = default_topology(topologies)
    with naming(f"{path}: topology {name}"):
        return yaml_network(next(entry for entry in topologies if entry["topology"] == name))


def default_topology(topologies: Sequence[_Table]) -> str:
    """The name of the topology of partitions that name none."""
    default = next((entry for entry in topologies if entry.get("cluster_default") is True), topologies[0])
    return str(default["topology"])


def parse_topologies(text: str) -> tuple[_Table, ...]:
    """The entries of a topology.yaml, each with a name of its own.

    Raises:
        InputError: It is not YAML, not a list of topologies, or a name comes twice.
    """
    tables = _tables(parse_yaml(text), "the file")
    if not tables:
        raise InputError("has no topology; Slurm wants a list of entries with `topology: NAME`")
    names = [_text(table, "topology", "an entry") for table in tables]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"topology {name} is defined twice")
    return tables


def yaml_network(entry: _Table) -> SlurmNetwork | None:
    """The network of one topology; None if it is flat.

    Raises:
        InputError: It is of another kind, or contradicts itself.
    """
    if sum(kind in entry for kind in KINDS) != 1:
        raise InputError(f"must have just one of {', '.join(KINDS)}")
    if "tree" in entry:
        return SlurmNetwork(wire([_switch(item) for item in _items(entry, "tree", "switches")]))
    if "block" in entry:
        return _blocks(entry)
    return None


def _blocks(entry: _Table) -> SlurmNetwork:
    blocks = [
        SwitchEntry(_text(item, "block", "a block"), _hosts(item, "nodes"), ())
        for item in _items(entry, "block", "blocks")
    ]
    sizes: list[int] = []
    for size in entry["block"].get("block_sizes") or ():
        sizes.append(next_block_size(sizes, size))
    return block_network(blocks, sizes)


def _switch(item: _Table) -> SwitchEntry:
    return SwitchEntry(_text(item, "switch", "a switch"), _hosts(item, "nodes"), _hosts(item, "children"))


def _items(entry: _Table, kind: str, key: str) -> tuple[_Table, ...]:
    table = entry[kind]
    if not isinstance(table, dict) or not table.get(key):
        raise InputError(f"{kind} has no {key}")
    return _tables(table[key], key)


def _tables(value: object, what: str) -> tuple[_Table, ...]:
    """A list of tables; nothing at all counts as an empty one."""
    if value is None:
        return ()
    if not isinstance(value, Sequence) or not all(isinstance(item, dict) for item in value):
        raise InputError(f"{what} must be a list of entries")
    return tuple(value)


def _text(table: _Table, key: str, what: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} has {key} {reprlib.repr(value)}, must be a name")
    return value


def _hosts(table: _Table, key: str) -> tuple[str, ...]:
    """A host list; left out where nodes are added later, as topograph's skeletons do."""
    return expand(_text(table, key, "an entry")) if table.get(key) is not None else ()
