"""The cluster as a tree: machines at the bottom, racks and more above, links between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from dally.errors import InputError

Allocation = tuple[tuple[int, int], ...]
"""The GPUs of one gang: (machine index, GPUs there) pairs, by machine index."""


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the tree, each way: bandwidth in bits/s, latency of one traversal in seconds."""

    bandwidth_bps: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.bandwidth_bps < float("inf"):
            raise InputError(f"link bandwidth_bps is {self.bandwidth_bps:g}, must be a positive number")
        if not 0 <= self.latency_s < float("inf"):
            raise InputError(f"link latency_s is {self.latency_s:g}, must be 0 or more")


@dataclass(frozen=True, slots=True)
class Machine:
    """One host, the unit Slurm calls a node.

    Attributes:
        name: Host name.
        gpus: GPUs in it, all of one type.
        gpu_type: Their type, as in Slurm's GRES; empty if unknown.
        fabric: What connects its GPUs (or, with several slots, its slots).
        slots: Equal groups of GPUs inside the machine with a faster link of their own.
        slot_fabric: What connects the GPUs of one slot; `fabric` if None.
    """

    name: str
    gpus: int
    gpu_type: str
    fabric: Link
    slots: int = 1
    slot_fabric: Link | None = None

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InputError(f"machine {self.name}: gpus is {self.gpus}, must be at least 1")
        if self.slots < 1 or self.gpus % self.slots:
            raise InputError(f"machine {self.name}: slots is {self.slots}, must divide its {self.gpus} GPUs")


@dataclass(frozen=True, slots=True)
class Domain:
    """One node of the tree: a machine (level 0), a rack, ..., the whole network (top level).

    `parent` and `children` are indexes into `Topology.domains`; `uplink` leads to the parent.
    """

    index: int
    name: str
    level: int
    parent: int | None
    children: tuple[int, ...]
    gpus: int
    uplink: Link | None


@dataclass(frozen=True, slots=True)
class Ring:
    """One stage of a hierarchical ring: `members` peers over links of which the slowest is `link`.

    A step between two peers crosses two links, up and down, unless the peers sit inside a machine.
    """

    members: int
    link: Link
    hops: int


@dataclass(frozen=True, slots=True)
class Shape:
    """How a gang is spread, all that its speed depends on; hashable.

    Attributes:
        level: The lowest level at which one domain holds the whole gang; 0 is the machine.
        machines: GPUs on each machine, most first.
        racks: Machines in each level-1 domain, most first; empty for a gang on one machine.
        rings: Stages of the hierarchical ring, innermost first; stages with one member are left out.
        gpu_types: The types of the GPUs, sorted, each once.
    """

    level: int
    machines: tuple[int, ...]
    racks: tuple[int, ...]
    rings: tuple[Ring, ...]
    gpu_types: tuple[str, ...]

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang."""
        return sum(self.machines)


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


@dataclass(frozen=True)
class Topology:
    """An immutable cluster tree in which every machine is equally deep.

    Machines come first in `domains`, so a machine's index is its domain's index; then the racks, and so on,
    the root last. Build one with `build_topology`.
    """

    name: str
    levels: tuple[str, ...]
    machines: tuple[Machine, ...]
    domains: tuple[Domain, ...]

    @property
    def root(self) -> Domain:
        """The domain of the whole network."""
        return self.domains[-1]

    @property
    def gpus(self) -> int:
        """GPUs of the whole cluster."""
        return self.root.gpus

    @property
    def top(self) -> int:
        """Index of the highest level."""
        return len(self.levels) - 1

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """The GPU types present, sorted."""
        return tuple(sorted({machine.gpu_type for machine in self.machines}))

    @cached_property
    def ancestors(self) -> tuple[tuple[int, ...], ...]:
        """For each machine, the domains from itself up to the root."""
        return tuple(self._path(index) for index in range(len(self.machines)))

    @cached_property
    def machine_index(self) -> Mapping[str, int]:
        """Machine index by host name."""
        return {machine.name: index for index, machine in enumerate(self.machines)}

    @cached_property
    def level_domains(self) -> tuple[tuple[Domain, ...], ...]:
        """The domains of each level, in index order."""
        return tuple(tuple(group) for _, group in groupby(self.domains, key=lambda domain: domain.level))

    def _path(self, index: int) -> tuple[int, ...]:
        path = [index]
        while (parent := self.domains[path[-1]].parent) is not None:
            path.append(parent)
        return tuple(path)

    def capacity(self, gpu_type: str | None = None) -> int:
        """GPUs of one type, or of all types for None."""
        if gpu_type is None:
            return self.gpus
        return sum(machine.gpus for machine in self.machines if machine.gpu_type == gpu_type)

    def level_of(self, allocation: Allocation) -> int:
        """The lowest level at which one domain holds every machine of the allocation."""
        if len(allocation) == 1:
            return 0
        paths = [self.ancestors[machine] for machine, _ in allocation]
        for level in range(1, len(self.levels)):
            first = paths[0][level]
            if all(path[level] == first for path in paths):
                return level
        raise AssertionError("every machine is below the root")

    def shape(self, allocation: Allocation) -> Shape:
        """The shape of an allocation; see `Shape`."""
        level = self.level_of(allocation)
        used = [self.machines[machine] for machine, _ in allocation]
        per_rack: dict[int, int] = {}
        if level:
            for machine, _ in allocation:
                rack = self.ancestors[machine][1]
                per_rack[rack] = per_rack.get(rack, 0) + 1
        return Shape(
            level=level,
            machines=tuple(sorted((count for _, count in allocation), reverse=True)),
            racks=tuple(sorted(per_rack.values(), reverse=True)),
            rings=tuple(
                ring
                for ring in (*self._inner_rings(allocation), *self._outer_rings(allocation, level))
                if ring.members > 1
            ),
            gpu_types=tuple(sorted({machine.gpu_type for machine in used})),
        )

    def _inner_rings(self, allocation: Allocation) -> list[Ring]:
        """Rings inside the machines: over the GPUs of a slot, then over the slots."""
        gpus_in_slot, slots = 1, 1
        fabrics, slot_fabrics = [], []
        for index, count in allocation:
            machine = self.machines[index]
            slot_gpus = machine.gpus // machine.slots
            gpus_in_slot = max(gpus_in_slot, min(count, slot_gpus))
            slots = max(slots, -(-count // slot_gpus))
            fabrics.append(machine.fabric)
            slot_fabrics.append(machine.slot_fabric or machine.fabric)
        return [Ring(gpus_in_slot, slowest(slot_fabrics), 1), Ring(slots, slowest(fabrics), 1)]

    def _outer_rings(self, allocation: Allocation, level: int) -> list[Ring]:
        """Rings between machines of a rack, between racks, and so on up to the gang's own level."""
        rings = []
        for height in range(level):
            used = {self.ancestors[machine][height] for machine, _ in allocation}
            members: dict[int | None, int] = {}
            for domain in used:
                parent = self.domains[domain].parent
                members[parent] = members.get(parent, 0) + 1
            links = [link for domain in used if (link := self.domains[domain].uplink) is not None]
            rings.append(Ring(max(members.values()), slowest(links), 2))
        return rings


def slowest(links: Sequence[Link]) -> Link:
    """The least bandwidth and the greatest latency among links."""
    return Link(min(link.bandwidth_bps for link in links), max(link.latency_s for link in links))


def build_topology(
    name: str, attached: Sequence[Attached], switches: Sequence[Switch], levels: Sequence[str] | None = None
) -> Topology:
    """Build and check a cluster tree.

    A tree whose machines are not equally deep gets pass-through domains above its shallow switches, joined by
    their own uplink, so that the levels above stay comparable.

    Args:
        name: What to call the cluster.
        attached: The machines and the switch each hangs on.
        switches: All switches; exactly one has no parent.
        levels: Names of the levels from machine up; by default machine, rack, pod, ..., network.

    Raises:
        InputError: A duplicate or unknown name, a cycle, a disconnected part, a switch without machines, or a
            wrong number of level names; the message names it.
    """
    parents = _checked_parents(attached, switches)
    heights = _heights(attached, switches, parents)
    top = max(heights.values())
    names = tuple(levels) if levels is not None else _level_names(top + 1)
    if len(names) != top + 1:
        raise InputError(f"cluster {name}: {len(names)} level names for a tree of {top + 1} levels")
    return Topology(
        name, names, tuple(item.machine for item in attached), _domains(attached, switches, heights)
    )


def _level_names(count: int) -> tuple[str, ...]:
    inner = ["rack", "pod", *(f"pod{number}" for number in range(2, count))]
    return ("machine", *inner[: count - 2], "network")


def _checked_parents(attached: Sequence[Attached], switches: Sequence[Switch]) -> dict[str, str | None]:
    """The parent of each switch by name, once all names are known, unique and form one tree."""
    if not attached:
        raise InputError("the cluster has no machines")
    parents: dict[str, str | None] = {}
    for switch in switches:
        if switch.name in parents:
            raise InputError(f"switch {switch.name} is defined twice")
        if switch.parent is not None and switch.uplink is None:
            raise InputError(f"switch {switch.name} has no uplink to {switch.parent}")
        parents[switch.name] = switch.parent
    roots = [name for name, parent in parents.items() if parent is None]
    seen: set[str] = set()
    for item in attached:
        if item.machine.name in seen:
            raise InputError(f"machine {item.machine.name} is defined twice")
        seen.add(item.machine.name)
        if item.switch not in parents:
            raise InputError(f"machine {item.machine.name} hangs on unknown switch {item.switch}")
    for name, parent in parents.items():
        if parent is not None and parent not in parents:
            raise InputError(f"switch {name} hangs on unknown switch {parent}")
        _refuse_cycle(name, parents)
    if len(roots) != 1:
        raise InputError(
            f"the cluster is not connected: {len(roots)} top switches ({', '.join(sorted(roots)[:5])})"
        )
    return parents


def _refuse_cycle(name: str, parents: Mapping[str, str | None]) -> None:
    visited = {name}
    current = parents[name]
    while current is not None and current in parents:
        if current in visited:
            raise InputError(f"switch {name} is part of a cycle: it is below itself")
        visited.add(current)
        current = parents[current]


def _heights(
    attached: Sequence[Attached], switches: Sequence[Switch], parents: Mapping[str, str | None]
) -> dict[str, int]:
    """Height of each switch above its deepest machine; 1 for a switch with machines only."""
    heights: dict[str, int] = {}
    for item in attached:
        height, current = 1, item.switch
        while heights.get(current, 0) < height:
            heights[current] = height
            parent = parents[current]
            if parent is None:
                break
            height, current = height + 1, parent
    for switch in switches:
        if switch.name not in heights:
            raise InputError(f"switch {switch.name} has no machines below it")
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
