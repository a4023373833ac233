"""Building and checking a cluster tree from machines and switches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dally.cluster.topology import Domain, Link, Machine, Topology
from dally.errors import InputError


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch as configuration files describe it: its parent by name (None for the root) and its uplink."""

    name: str
    parent: str | None
    uplink: Link | None = None


@dataclass(frozen=True, slots=True)
class Attached:
    """A machine, the name of the switch it hangs on, and the link between the two."""

    machine: Machine
    switch: str
    uplink: Link


def build_topology(
    name: str,
    attached: Sequence[Attached],
    switches: Sequence[Switch],
    levels: Sequence[str] | None = None,
    *,
    islands: bool = False,
) -> Topology:
    """Build and check a cluster tree.

    A tree whose machines are not equally deep gets pass-through domains, so that the levels stay comparable:
    where a shallow switch or machine hangs on a high one, the levels between have the high one's name and no
    uplink of their own.

    Args:
        name: What to call the cluster.
        attached: The machines and the switch each hangs on.
        switches: All switches; exactly one has no parent.
        levels: Names of the levels from machine up; by default machine, rack, pod, ..., network.
        islands: No gang may span what hangs on the top switch; its links are then never crossed.

    Raises:
        InputError: A duplicate or unknown name, a cycle, a disconnected part, a switch without machines, or a
            wrong number of level names; the message names it.
    """
    parents = _checked_parents(attached, switches)
    heights = switch_heights((item.switch for item in attached), parents)
    refuse_islands(parents, heights)
    top = max(heights.values())
    if islands:  # each reaches up to the root by itself: what passes through is not shared
        heights |= {name: top - 1 for name, parent in parents.items() if parent and parents[parent] is None}
    names = tuple(levels) if levels is not None else _level_names(top + 1)
    if len(names) != top + 1:
        raise InputError(f"cluster {name}: {len(names)} level names for a tree of {top + 1} levels")
    machines = tuple(item.machine for item in attached)
    return Topology(name, names, machines, _domains(attached, switches, heights), islands)


def _level_names(count: int) -> tuple[str, ...]:
    inner = ["rack", "pod", *(f"pod{number}" for number in range(2, count))]
    return ("machine", *inner[: count - 2], "network")


def _checked_parents(attached: Sequence[Attached], switches: Sequence[Switch]) -> dict[str, str | None]:
    """The parent of each switch by name, once the machines' names are unique and hang on known switches."""
    if not attached:
        raise InputError("the cluster has no machines")
    parents = _switch_parents(switches)
    seen: set[str] = set()
    for item in attached:
        if item.machine.name in seen:
            raise InputError(f"machine {item.machine.name} is defined twice")
        seen.add(item.machine.name)
        if item.switch not in parents:
            raise InputError(f"machine {item.machine.name} hangs on unknown switch {item.switch}")
    return parents


def _switch_parents(switches: Sequence[Switch]) -> dict[str, str | None]:
    parents: dict[str, str | None] = {}
    for switch in switches:
        if switch.name in parents:
            raise InputError(f"switch {switch.name} is defined twice")
        if switch.parent is not None and switch.uplink is None:
            raise InputError(f"switch {switch.name} has no uplink to {switch.parent}")
        if switch.parent is None and switch.uplink is not None:
            raise InputError(f"switch {switch.name} is at the top: it has nothing to link up to")
        parents[switch.name] = switch.parent
    return parents


def refuse_islands(parents: Mapping[str, str | None], heights: Mapping[str, int]) -> None:
    """Check that all switches have machines below them and form one tree.

    Args:
        parents: The parent of each switch, None for the top one.
        heights: What `switch_heights` gives for them.

    Raises:
        InputError: A switch has no machines, or several have no parent.
    """
    for name in parents:
        if name not in heights:
            raise InputError(f"switch {name} has no machines below it")
    roots = sorted(name for name, parent in parents.items() if parent is None)
    if len(roots) != 1:
        raise InputError(f"the cluster is not connected: {len(roots)} top switches ({', '.join(roots[:5])})")


def switch_heights(leaves: Iterable[str], parents: Mapping[str, str | None]) -> dict[str, int]:
    """Height of each switch above its deepest machine; 1 for a switch with machines only.

    Args:
        leaves: For each machine, the switch it hangs on; repeats do no harm.
        parents: The parent of each switch, None for the top one.

    Returns:
        Height by switch name; a switch without machines below it is left out.

    Raises:
        InputError: A switch hangs on an unknown one or is below itself.
    """
    for name, parent in parents.items():
        if parent is not None and parent not in parents:
            raise InputError(f"switch {name} hangs on unknown switch {parent}")
        _refuse_cycle(name, parents)
    heights: dict[str, int] = {}
    for leaf in leaves:
        height, current = 1, leaf
        while heights.get(current, 0) < height:
            heights[current] = height
            parent = parents[current]
            if parent is None:
                break
            height, current = height + 1, parent
    return heights


def _refuse_cycle(name: str, parents: Mapping[str, str | None]) -> None:
    visited = {name}
    current = parents[name]
    while current is not None and current in parents:
        if current in visited:
            raise InputError(f"switch {current} is part of a cycle: it is below itself")
        visited.add(current)
        current = parents[current]


@dataclass(slots=True)
class _Node:
    """A domain under construction; nodes of one level are numbered in order of their first machine."""

    name: str
    level: int
    parent: str | None
    uplink: Link | None
    gpus: int


def _domains(
    attached: Sequence[Attached], switches: Sequence[Switch], heights: Mapping[str, int]
) -> tuple[Domain, ...]:
    nodes = _padded(attached, switches, heights)
    ordered = sorted(nodes.values(), key=lambda node: node.level)
    index = {(node.level, node.name): number for number, node in enumerate(ordered)}
    children: dict[int, list[int]] = {}
    for number, node in enumerate(ordered):
        if node.parent is not None:
            children.setdefault(index[node.level + 1, node.parent], []).append(number)
    return tuple(
        Domain(
            index=number,
            name=node.name,
            level=node.level,
            parent=None if node.parent is None else index[node.level + 1, node.parent],
            children=tuple(children.get(number, ())),
            gpus=node.gpus,
            uplink=node.uplink,
        )
        for number, node in enumerate(ordered)
    )


def _padded(
    attached: Sequence[Attached], switches: Sequence[Switch], heights: Mapping[str, int]
) -> dict[tuple[int, str], _Node]:
    """All nodes by (level, name), each one level below its parent, with their GPUs summed."""
    by_name = {switch.name: switch for switch in switches}
    nodes: dict[tuple[int, str], _Node] = {}
    for item in attached:
        machine = item.machine
        nodes[0, machine.name] = _Node(machine.name, 0, item.switch, item.uplink, machine.gpus)
    for item in attached:
        level, name = 1, item.switch
        while True:
            switch = by_name[name]
            passing = level < heights[name]
            node = nodes.get((level, name))
            if node is None:
                parent = name if passing else switch.parent
                uplink = None if passing else switch.uplink
                node = nodes[level, name] = _Node(name, level, parent, uplink, 0)
            node.gpus += item.machine.gpus
            if node.parent is None:
                break
            level, name = level + 1, node.parent
    return nodes
