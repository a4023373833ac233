"""Reads Slurm's topology.conf: a tree of switches, or blocks, which become racks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dally.clusters.hostlist import expand
from dally.clusters.slurm_lines import ConfLine, read_lines, required
from dally.clusters.source import naming
from dally.clusters.wiring import SwitchEntry, Wiring, wire
from dally.errors import InputError

ROOT = "network"
"""The top switch where the file names none."""


@dataclass(frozen=True, slots=True)
class SlurmNetwork:
    """The switches of a topology.conf and the names of its levels; None for the usual ones."""

    wiring: Wiring
    levels: tuple[str, ...] | None = None


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
        return _blocks(entries, _block_sizes(lines))


def _switch(line: ConfLine) -> SwitchEntry:
    """One switch; LinkSpeed, which Slurm ignores, has no unit and is passed over."""
    with naming(line.where):
        nodes, switches = (
            expand(line.values[key]) if key in line.values else () for key in ("nodes", "switches")
        )
        return SwitchEntry(required(line, "SwitchName"), nodes, switches)


def _block(line: ConfLine) -> SwitchEntry:
    nodes = required(line, "Nodes")
    with naming(line.where):
        return SwitchEntry(required(line, "BlockName"), expand(nodes), ())


def _block_sizes(lines: Sequence[ConfLine]) -> list[int]:
    """The sizes in nodes: of a block, then of each aggregate; empty if the file leaves them to Slurm."""
    sizes: list[int] = []
    for line in lines:
        for text in line.values.get("blocksizes", "").split(","):
            if not text.strip():
                continue
            size = int(text) if text.strip().isdecimal() else 0
            if size < 1 or (sizes and (size <= sizes[-1] or size % sizes[-1])):
                raise InputError(
                    f"{line.where}: BlockSizes has {text!r}; each size must be a whole number of nodes "
                    "and a multiple of the size before"
                )
            sizes.append(size)
    return sizes


def _blocks(blocks: Sequence[SwitchEntry], sizes: Sequence[int]) -> SlurmNetwork:
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
    return SlurmNetwork(wire(entries), (*names, "network"))
