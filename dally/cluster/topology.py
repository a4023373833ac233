"""The cluster as a tree: machines at the bottom, racks and more above, links between them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from dally.errors import InputError
from dally.words import plural

Allocation = tuple[tuple[int, int], ...]
"""The GPUs of one gang: (machine index, GPUs there) pairs, by machine index."""


class WholeBlocks(tuple[tuple[int, int], ...]):
    """An `Allocation` that shares its blocks, the domains right above its machines, with no other.

    Who takes it leaves nothing of these blocks to others; see `FreeGpus.taken_by`.
    """

    __slots__ = ()


MOST_GPUS = 1_000_000
"""The most GPUs of one machine."""


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
        if not 1 <= self.gpus <= MOST_GPUS:
            raise InputError(f"machine {self.name}: gpus is {self.gpus}, must be 1 to {MOST_GPUS}")
        if self.slots < 1 or self.gpus % self.slots:
            raise InputError(
                f"machine {self.name}: slots is {self.slots}, must divide its {plural(self.gpus, 'GPU')}"
            )


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

    A step between two peers crosses two links, up and down, unless the peers sit inside a machine. A stage of
    one member is kept if others are apart from it farther out: what goes there crosses its link, too.

    Attributes:
        members: Peers in the largest ring of the stage.
        link: The least bandwidth and greatest latency of the stage's links.
        hops: Links that a step crosses.
        apart: Peers of all rings of the stage, if there are several rings.
    """

    members: int
    link: Link
    hops: int
    apart: int | None = None

    @property
    def sharers(self) -> int:
        """Members among which the data that crosses a link of this stage is reduced."""
        return self.apart or self.members


@dataclass(frozen=True, slots=True)
class Shape:
    """How a gang is spread, all that its speed depends on; hashable.

    Attributes:
        level: The lowest level at which one domain holds the whole gang; 0 is the machine.
        machines: GPUs on each machine, most first.
        racks: Machines in each level-1 domain, most first; empty for a gang on one machine.
        rings: Stages of the hierarchical ring, innermost first; those that nothing crosses are left out.
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
class LeftOut:
    """What a cluster's files name, but the cluster does not have.

    Attributes:
        names: Names of the nodes.
        why: Why they are left out, in a few words.
    """

    names: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Topology:
    """An immutable cluster tree in which every machine is equally deep.

    Machines come first in `domains`, so a machine's index is its domain's index; then the racks, and so on,
    the root last. Build one with `dally.cluster.topology_build.build_topology`.

    Attributes:
        name: What the cluster is called.
        levels: Names of the levels from machine up.
        machines: The machines.
        domains: All domains of the tree.
        islands: The domains below the root are networks of their own: no gang has GPUs in two of them.
        left_out: What the files name beyond that.
        partitions: Names of the machines of each partition; empty where nothing is known of partitions.
    """

    name: str
    levels: tuple[str, ...]
    machines: tuple[Machine, ...]
    domains: tuple[Domain, ...]
    islands: bool = False
    left_out: tuple[LeftOut, ...] = field(default=(), compare=False)
    partitions: Mapping[str, frozenset[str]] = field(default_factory=dict, compare=False)

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

    @property
    def widest(self) -> int:
        """Index of the highest level at which one domain may hold a gang."""
        return self.top - self.islands

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """The GPU types present, sorted."""
        return tuple(sorted({machine.gpu_type for machine in self.machines}))

    @cached_property
    def ancestors(self) -> tuple[tuple[int, ...], ...]:
        """For each machine, the domains from itself up to the root."""
        paths = []
        for machine in range(len(self.machines)):
            path = [machine]
            while (parent := self.domains[path[-1]].parent) is not None:
                path.append(parent)
            paths.append(tuple(path))
        return tuple(paths)

    @cached_property
    def machine_index(self) -> Mapping[str, int]:
        """Machine index by host name."""
        return {machine.name: index for index, machine in enumerate(self.machines)}

    @cached_property
    def level_domains(self) -> tuple[tuple[Domain, ...], ...]:
        """The domains of each level, in index order."""
        return tuple(tuple(group) for _, group in groupby(self.domains, key=lambda domain: domain.level))

    def beside(self, machines: Iterable[int]) -> list[int]:
        """All machines of the domains right above some, these among them."""
        blocks = {self.ancestors[machine][1] for machine in machines}
        return sorted(each for block in blocks for each in self.domains[block].children)

    def named(self, allocation: Iterable[tuple[int, int]]) -> dict[str, int]:
        """An allocation by host name."""
        return {self.machines[machine].name: gpus for machine, gpus in allocation}

    def by_type(self, allocation: Allocation) -> dict[str, int]:
        """GPUs of each type in an allocation, by type, sorted."""
        found = dict.fromkeys(sorted({self.machines[machine].gpu_type for machine, _ in allocation}), 0)
        for machine, gpus in allocation:
            found[self.machines[machine].gpu_type] += gpus
        return found

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

    def crossed(self, allocation: Allocation) -> frozenset[int]:
        """The domains whose uplinks an allocation's traffic crosses, by index; none on one machine."""
        level = self.level_of(allocation)
        return frozenset(domain for machine, _ in allocation for domain in self.ancestors[machine][:level])

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
                if ring.sharers > 1
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
        """Rings between machines of a rack, between racks, and so on up to the gang's own level.

        A pass-through domain has no uplink of its own: traffic crosses those of the used domains below it.
        """
        rings = []
        used: dict[int, list[Link]] = {machine: [] for machine, _ in allocation}
        for _ in range(level):
            above: dict[int, list[Link]] = {}
            for domain, below in used.items():
                parent = self.domains[domain].parent
                assert parent is not None, "the gang's own level is at most the root's"
                above.setdefault(parent, []).append(self.domains[domain].uplink or slowest(below))
            links = [link for group in above.values() for link in group]
            members = max(len(group) for group in above.values())
            rings.append(Ring(members, slowest(links), 2, len(links) if len(above) > 1 else None))
            used = above
        return rings


def slowest(links: Sequence[Link]) -> Link:
    """The least bandwidth and the greatest latency among links."""
    return Link(min(link.bandwidth_bps for link in links), max(link.latency_s for link in links))
