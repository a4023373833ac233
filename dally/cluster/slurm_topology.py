"""Reads Slurm's topology.conf: a tree of switches, or blocks, which become racks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dally.cluster.hostlist import expand
from dally.cluster.slurm_lines import ConfLine, read_lines, required
from dally.cluster.source import naming
from dally.cluster.wiring import SwitchEntry, Wiring, wire
from dally.errors import InputError

ROOT = "network"
"""The top switch where the file names none."""

_SIZE = re.compile("[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SlurmNetwork:
    """The switches of a topology file.

    Attributes:
        wiring: What hangs on what.
        levels: The names of the levels; None for the usual ones.
        blocks: Those of the switches that are blocks of topology/block.
    """

    wiring: Wiring
    levels: tuple[str, ...] | None = None
    blocks: frozenset[str] = frozenset()


def read_topology_conf(path: Path) -> SlurmNetwork:
    """Read topology.conf for topology/tree or topology/block, which its lines tell apart.

    Raises:
        InputError: The file cannot be read or contradicts itself; the message names it.
    """
    lines = list(read_lines(path, ("switchname", "blockname", "blocksizes")))
    blocks = [line for line in lines if line.first_key == "blockname"]
    switches = [line for line in lines if line.first_key == "switchname"]
    if bool(blocks) == bool(switches):
        found = "both SwitchName and" if blocks else "neither SwitchName nor"
        raise InputError(f"{path}: has {found} BlockName lines, must have one of the two")
    if switches:
        entries = [_switch(line) for line in switches]
        with naming(path):
            return SlurmNetwork(wire(entries))
    entries = [_block(line) for line in blocks]
    with naming(path):
        return block_network(entries, _block_sizes(lines))


def _switch(line: ConfLine) -> SwitchEntry:
    """One switch; LinkSpeed, which Slurm ignores, has no unit and is passed over."""
    with naming(line.where):
        nodes, switches = (
            expand(line.values[key]) if key in line.values else () for key in ("nodes", "switches")
        )
        return SwitchEntry(required(line, "SwitchName"), nodes, switches)


def _block(line: ConfLine) -> SwitchEntry:
    """One block; without Nodes where they are to come later, as dynamic nodes do."""
    with naming(line.where):
        nodes = expand(line.values["nodes"]) if "nodes" in line.values else ()
        return SwitchEntry(required(line, "BlockName"), nodes, ())


def _block_sizes(lines: Sequence[ConfLine]) -> list[int]:
    """The sizes in nodes: of a block, then of each aggregate; empty if the file leaves them to Slurm."""
    sizes: list[int] = []
    for line in lines:
        texts = [text for text in line.values.get("blocksizes", "").split(",") if text.strip()]
        with naming(line.where):
            for text in texts:
                sizes.append(next_block_size(sizes, int(text) if _SIZE.fullmatch(text.strip()) else text))
    return sizes


def next_block_size(before: Sequence[int], size: object) -> int:
    """Check one more of the sizes of blocks and their aggregates.

    Raises:
        InputError: It is not a whole number of nodes, or no multiple of the size before.
    """
    if not isinstance(size, int) or size < 1 or (before and (size <= before[-1] or size % before[-1])):
        raise InputError(
            f"BlockSizes has {str(size)!r}; each size must be a whole number of nodes "
            "and a multiple of the size before"
        )
    return size


def block_network(blocks: Sequence[SwitchEntry], sizes: Sequence[int]) -> SlurmNetwork:
    """Blocks, above them aggregates of blocks that follow each other in the file, above all one network."""
    entries, level, names = list(blocks), [block.name for block in blocks], ["machine", "block"]
    for below, size in pairwise(sizes):
        each = size // below
        groups = [tuple(level[start : start + each]) for start in range(0, len(level), each)]
        if len(groups) == 1:
            break
        level = [f"blocks{size}-{number}" for number in range(1, len(groups) + 1)]
        entries += [SwitchEntry(name, (), group) for name, group in zip(level, groups, strict=True)]
        names.append(f"blocks{size}")
    entries.append(SwitchEntry(ROOT, (), tuple(level)))
    return SlurmNetwork(wire(entries), (*names, "network"), frozenset(block.name for block in blocks))
