"""Switches as files list them, each with what hangs on it, turned into parents and checked."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dally.clusters.links import DefaultLinks
from dally.errors import InputError
from dally.topology import Machine, Topology
from dally.topology_build import Attached, Switch, build_topology, switch_heights


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

    def above(self, machines: Collection[str]) -> "Wiring":
        """The part of the tree above some of the machines: switches with none of them below are dropped."""
        kept: set[str] = set()
        for machine in machines:
            current: str | None = self.switch_of[machine]
            while current is not None and current not in kept:
                kept.add(current)
                current = self.parents[current]
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


def build_with_defaults(
    name: str,
    machines: Sequence[Machine],
    wiring: Wiring,
    links: DefaultLinks,
    levels: Sequence[str] | None = None,
) -> Topology:
    """Build a cluster whose file tells the tree but no link speeds.

    Raises:
        InputError: See `build_topology`.
    """
    heights = switch_heights(wiring.switch_of.values(), wiring.parents)
    attached = [Attached(machine, wiring.switch_of[machine.name], links.uplink(0)) for machine in machines]
    switches = [
        Switch(switch, parent, None if parent is None else links.uplink(heights.get(switch, 1)))
        for switch, parent in wiring.parents.items()
    ]
    return build_topology(name, attached, switches, levels)
