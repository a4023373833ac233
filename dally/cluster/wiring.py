"""Switches as files list them, each with what hangs on it, turned into parents and checked."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dally.cluster.links import DefaultLinks
from dally.cluster.topology import LeftOut, Link, Machine, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology, switch_heights
from dally.errors import InputError


@dataclass(frozen=True, slots=True)
class SwitchEntry:
    """A switch and the names of the machines and switches directly below it."""

    name: str
    machines: tuple[str, ...]
    switches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wiring:
    """What hangs on what.

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


def refuse_strays(wiring: Wiring, defined: Collection[str], wanted: Collection[str]) -> None:
    """Check that switches list defined machines only, and every wanted machine.

    Raises:
        InputError: A machine is unknown, or in no switch.
    """
    for machine, switch in wiring.switch_of.items():
        if machine not in defined:
            raise InputError(f"switch {switch} lists unknown machine {machine}")
    for machine in wanted:
        if machine not in wiring.switch_of:
            raise InputError(f"machine {machine} is on no switch")


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
