"""Builds and checks a cluster tree from machines and switches.

Files list each switch with what hangs on it (`SwitchEntry`, which `wire` turns into parents); the tree is
built of switches with their parents (`Switch`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dally.cluster.links import DefaultLinks
from dally.cluster.topology import Domain, LeftOut, Link, Machine, Topology
from dally.errors import InputError
from dally.hostlist import MOST_NAMES
from dally.words import plural

_DEEPEST = 64
"""No network has so many switches one above the other; what is done along each way up then stays bounded."""


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
    if not attached:
        raise InputError("the cluster has no machines")
    if len(attached) > MOST_NAMES:  # as Slurm; with a million machines two jobs take a minute
        raise InputError(f"the cluster has {len(attached):,} machines, more than {MOST_NAMES:,}, the most")
    parents: dict[str, str | None] = {}
    for switch in switches:
        if switch.name in parents:
            raise InputError(f"switch {switch.name} is defined twice")
        if switch.parent is not None and switch.uplink is None:
            raise InputError(f"switch {switch.name} has no uplink to {switch.parent}")
        if switch.parent is None and switch.uplink is not None:
            raise InputError(f"switch {switch.name} is at the top: it has nothing to link up to")
        parents[switch.name] = switch.parent
    seen: set[str] = set()
    for item in attached:
        if item.machine.name in seen:
            raise InputError(f"machine {item.machine.name} is defined twice")
        seen.add(item.machine.name)
        if item.switch not in parents:
            raise InputError(f"machine {item.machine.name} hangs on unknown switch {item.switch}")
    heights = switch_heights((item.switch for item in attached), parents)
    refuse_islands(parents, heights)
    top = max(heights.values())
    if islands:  # each reaches up to the root by itself: what passes through is not shared
        heights |= {name: top - 1 for name, parent in parents.items() if parent and parents[parent] is None}
    if levels is None:
        inner = ["rack", "pod", *(f"pod{number}" for number in range(2, top + 1))]
        levels = ("machine", *inner[: top - 1], "network")
    if len(levels) != top + 1:
        raise InputError(
            f"cluster {name}: {plural(len(levels), 'level name')} for a tree of {plural(top + 1, 'level')}"
        )
    machines = tuple(item.machine for item in attached)
    return Topology(name, tuple(levels), machines, _domains(attached, switches, heights), islands)


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
        raise InputError(
            f"the cluster is not connected: {len(roots)} top switches ({', '.join(roots[:5])}); put one "
            "above them, and where no job may span two of them, islands = true at the top of the file"
        )


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
        visited, current = {name}, parent
        while current is not None and current in parents:
            if current in visited:
                raise InputError(f"switch {current} is part of a cycle: it is below itself")
            if len(visited) > _DEEPEST:
                raise InputError(f"switch {name} has more than {_DEEPEST} switches above it")
            visited.add(current)
            current = parents[current]
    heights: dict[str, int] = {}
    for leaf in leaves:
        height, switch = 1, leaf
        while heights.get(switch, 0) < height:  # as long as this machine is deeper than those before it
            heights[switch] = height
            above = parents[switch]
            if above is None:
                break
            height, switch = height + 1, above
    return heights


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
    """All domains, machines first: each one level below its parent, with the GPUs of its machines."""
    by_name = {switch.name: switch for switch in switches}
    nodes: dict[tuple[int, str], _Node] = {}
    for item in attached:
        machine = item.machine
        nodes[0, machine.name] = _Node(machine.name, 0, item.switch, item.uplink, machine.gpus)
    for item in attached:
        level, name = 1, item.switch
        while True:
            node = nodes.get((level, name))
            if node is None:
                switch, passing = by_name[name], level < heights[name]
                parent, uplink = (name, None) if passing else (switch.parent, switch.uplink)
                node = nodes[level, name] = _Node(name, level, parent, uplink, 0)
            node.gpus += item.machine.gpus
            if node.parent is None:
                break
            level, name = level + 1, node.parent
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


@dataclass(frozen=True, slots=True)
class SwitchEntry:
    """A switch and the names of the machines and switches directly below it."""

    name: str
    machines: tuple[str, ...]
    switches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wiring:
    """The switch of each machine, and the switch above each switch.

    Attributes:
        switch_of: The switch of each machine, by name.
        parents: The parent of each switch, by name; None for a top one.
    """

    switch_of: Mapping[str, str]
    parents: Mapping[str, str | None]

    def path(self, switch: str) -> Iterator[str]:
        """A switch and those above it, up to the top, or until one comes again."""
        seen: set[str] = set()
        current: str | None = switch
        while current is not None and current not in seen:
            yield current
            seen.add(current)
            current = self.parents[current]

    def above(self, machines: Collection[str]) -> "Wiring":
        """The part of the tree above some of the machines: switches with none of them below are dropped."""
        kept: set[str] = set()
        for machine in machines:
            if self.switch_of[machine] not in kept:
                kept.update(self.path(self.switch_of[machine]))
        return Wiring(
            {machine: self.switch_of[machine] for machine in machines},
            {name: parent for name, parent in self.parents.items() if name in kept},
        )


def wire(entries: Sequence[SwitchEntry]) -> Wiring:
    """Turn lists of children into parents.

    Raises:
        InputError: A switch is defined twice or unknown, or something hangs on two switches.
    """
    switch_of: dict[str, str] = {}
    parents: dict[str, str | None] = {}
    for entry in entries:
        if entry.name in parents:
            raise InputError(f"switch {entry.name} is defined twice")
        parents[entry.name] = None
        for machine in entry.machines:
            if machine in switch_of:
                raise InputError(
                    f"machine {machine} is on two switches: {switch_of[machine]} and {entry.name}"
                )
            switch_of[machine] = entry.name
    for entry in entries:
        for child in entry.switches:
            if child not in parents:
                raise InputError(f"switch {entry.name} lists unknown switch {child}")
            if (other := parents[child]) is not None:
                raise InputError(f"switch {child} is below two switches: {other} and {entry.name}")
            parents[child] = entry.name
    return Wiring(switch_of, parents)


@dataclass(frozen=True, slots=True)
class OwnLinks:
    """Uplinks known better than the defaults: of machines, and of switches, by name."""

    machines: Mapping[str, Link] = field(default_factory=dict)
    switches: Mapping[str, Link] = field(default_factory=dict)


def build_with_defaults(
    name: str,
    machines: Sequence[Machine],
    wiring: Wiring,
    links: DefaultLinks,
    levels: Sequence[str] | None = None,
    *,
    own: OwnLinks | None = None,
    islands: bool = False,
    left_out: Sequence[LeftOut] = (),
) -> Topology:
    """Build a cluster whose file tells the tree but no link speeds.

    Args:
        name: What to call the cluster.
        machines: Its machines.
        wiring: What hangs on what.
        links: Links by level.
        levels: Names of the levels; None for the usual ones.
        own: Links that go before those by level.
        islands: As `Topology` has it.
        left_out: As `Topology` has it.

    Raises:
        InputError: See `build_topology`.
    """
    own = own or OwnLinks()
    heights = switch_heights(wiring.switch_of.values(), wiring.parents)
    attached = [
        Attached(machine, wiring.switch_of[machine.name], own.machines.get(machine.name, links.uplink(0)))
        for machine in machines
    ]
    switches = [
        Switch(
            switch,
            parent,
            None if parent is None else own.switches.get(switch, links.uplink(heights.get(switch, 1))),
        )
        for switch, parent in wiring.parents.items()
    ]
    built = build_topology(name, attached, switches, levels, islands=islands)
    return replace(built, left_out=tuple(left_out))
