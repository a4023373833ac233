"""Reads Slurm's topology.conf and topology.yaml: trees of switches, or blocks, which become racks."""

import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from dally.cluster.slurm_conf import read_lines, required
from dally.cluster.topology import LeftOut
from dally.cluster.topology_build import SwitchEntry, Wiring, wire
from dally.config_text import TOO_DEEP, check_value, naming, read_text
from dally.errors import InputError
from dally.hostlist import expand

ROOT = "network"
"""The top switch where the file names none."""

KINDS = ("tree", "block", "flat")
"""The kinds of topologies in topology.yaml that Dally knows."""

_YAML = (".yaml", ".yml")
_BELOW = ("nodes", "switches")
_SIZE = re.compile("[0-9]{1,9}", re.ASCII)
_Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SlurmNetwork:
    """The switches of a topology file.

    Attributes:
        wiring: What hangs on what.
        levels: The names of the levels; None for the usual ones.
        blocks: Those of the switches that are blocks of topology/block.
        islands: The top connects nothing: no job spans two of the switches below it.
        left_out: The nodes that hang on no switch, and names that are no node's.
    """

    wiring: Wiring
    levels: tuple[str, ...] | None = None
    blocks: frozenset[str] = frozenset()
    islands: bool = False
    left_out: tuple[LeftOut, ...] = ()


def is_yaml(path: Path) -> bool:
    """Whether a topology file is in YAML (Slurm 25.05 and newer), by its name's ending."""
    return path.suffix in _YAML


def read_network(path: Path) -> SlurmNetwork | None:
    """Read the network that holds where a partition names no other; None if it is flat.

    Raises:
        InputError: The file cannot be read or contradicts itself; the message names file and entry.
    """
    if not is_yaml(path):
        return read_topology_conf(path)
    topologies, default = read_topologies(path)
    with naming(f"{path}: topology {default}"):
        return yaml_network(topologies[default])


def read_topology_conf(path: Path) -> SlurmNetwork:
    """Read topology.conf for topology/tree or topology/block, which its lines tell apart.

    Raises:
        InputError: The file cannot be read or contradicts itself; the message names it.
    """
    lines = list(read_lines(path, ("switchname", "blockname", "blocksizes")))
    kinds = {line.first_key for line in lines} - {"blocksizes"}
    if len(kinds) != 1:
        found = "both SwitchName and" if kinds else "neither SwitchName nor"
        raise InputError(f"{path}: has {found} BlockName lines, must have one of the two")
    blocks = "blockname" in kinds
    entries: list[SwitchEntry] = []
    sizes: list[int] = []
    for line in lines:
        with naming(line.where):
            if line.first_key != "blocksizes":
                # LinkSpeed, which Slurm ignores, has no unit and is passed over. A block has no Nodes where
                # they are to come later, as dynamic nodes do.
                nodes, switches = (expand(line.values[key]) if key in line.values else () for key in _BELOW)
                name = required(line, "BlockName" if blocks else "SwitchName")
                entries.append(SwitchEntry(name, nodes, () if blocks else switches))
            for text in filter(str.strip, line.values.get("blocksizes", "").split(",") if blocks else ()):
                sizes.append(_next_size(sizes, int(text) if _SIZE.fullmatch(text.strip()) else text))
    with naming(path):
        return _block_network(entries, sizes) if blocks else SlurmNetwork(wire(entries))


def read_topologies(path: Path) -> tuple[dict[str, _Table], str]:
    """The entries of a topology.yaml by name, and the name of the one of partitions that name none.

    That is the first with `cluster_default: true`, or, where none has it, the first of all.

    Raises:
        InputError: It cannot be read, is not YAML, not a list of topologies, or a name comes twice.
    """
    with naming(path):
        tables = _tables(parse_yaml(read_text(path)), "the file")
        if not tables:
            raise InputError("has no topology; Slurm wants a list of entries with `topology: NAME`")
        named: dict[str, _Table] = {}
        for table in tables:
            name = _text(table, "topology", "an entry")
            if name in named:
                raise InputError(f"topology {name} is defined twice")
            named[name] = table
    default = next((table for table in tables if table.get("cluster_default") is True), tables[0])
    return named, str(default["topology"])


def parse_yaml(text: str) -> Any:
    """What a YAML text is.

    Raises:
        InputError: It is not YAML, has numbers or dates that there are not, or is nested beyond all use.
    """
    try:
        value = yaml.safe_load(text)
        check_value(value)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"line {line}: not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise InputError(f"not valid YAML: {error}") from error
    except RecursionError:
        raise InputError(f"not valid YAML: {TOO_DEEP}") from None
    except ValueError as error:
        raise InputError(f"not valid YAML: {error}") from error
    return value


def yaml_network(entry: _Table) -> SlurmNetwork | None:
    """The network of one topology; None if it is flat.

    Raises:
        InputError: It is of another kind, or contradicts itself.
    """
    if sum(kind in entry for kind in KINDS) != 1:
        raise InputError(f"must have just one of {', '.join(KINDS)}")
    if "tree" in entry:
        switches = [
            SwitchEntry(_text(item, "switch", "a switch"), _hosts(item, "nodes"), _hosts(item, "children"))
            for item in _items(entry, "tree", "switches")
        ]
        return SlurmNetwork(wire(switches))
    if "block" not in entry:
        return None
    blocks = [
        SwitchEntry(_text(item, "block", "a block"), _hosts(item, "nodes"), ())
        for item in _items(entry, "block", "blocks")
    ]
    sizes: list[int] = []
    for size in entry["block"].get("block_sizes") or ():
        sizes.append(_next_size(sizes, size))
    return _block_network(blocks, sizes)


def _next_size(before: Sequence[int], size: object) -> int:
    """Check one more size in nodes: of a block, then of each aggregate of blocks.

    Raises:
        InputError: It is not a whole number of nodes, or no multiple of the size before.
    """
    if not isinstance(size, int) or size < 1 or (before and (size <= before[-1] or size % before[-1])):
        raise InputError(
            f"BlockSizes has {str(size)!r}; each size must be a whole number of nodes "
            "and a multiple of the size before"
        )
    return size


def _block_network(blocks: Iterable[SwitchEntry], sizes: Sequence[int]) -> SlurmNetwork:
    """Blocks, above them aggregates of blocks that follow each other in the file, above all one network."""
    entries = list(blocks)
    level, names = [block.name for block in entries], ["machine", "block"]
    own = frozenset(level)
    for below, size in pairwise(sizes):
        each = size // below
        groups = [tuple(level[start : start + each]) for start in range(0, len(level), each)]
        if len(groups) == 1:
            break
        level = [f"blocks{size}-{number}" for number in range(1, len(groups) + 1)]
        entries += [SwitchEntry(name, (), group) for name, group in zip(level, groups, strict=True)]
        names.append(f"blocks{size}")
    entries.append(SwitchEntry(ROOT, (), tuple(level)))
    return SlurmNetwork(wire(entries), (*names, "network"), own)


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
