"""The rows of a heat map: a cluster's GPUs, machines or racks, the finest of which there are few enough."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dally.cluster.topology import Topology

MOST_ROWS = 256


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of GPUs, those of one machine and of one rack beside each other.

    Attributes:
        unit: What a row is: GPU, machine, rack and so on.
        names: The name of each.
        groups: For each row the domain that holds it; empty if unknown.
        racks: For each row the rack that it lies in; empty if unknown, or if a row is one or more.
        gpus: GPUs in each.
        places: For each machine the row of each of its GPUs.
    """

    unit: str
    names: list[str]
    groups: list[str]
    racks: list[str]
    gpus: list[int]
    places: Mapping[str, tuple[int, ...]]


def lay_rows(machines: Mapping[str, int], topology: Topology | None) -> Rows:
    """The rows of a cluster.

    Args:
        machines: GPUs of each machine by name.
        topology: The cluster; None if nobody knows its racks.
    """
    if topology is None:
        names = sorted(machines, key=_natural)
        racks = dict.fromkeys(names, "")
    else:
        order = sorted(range(len(topology.machines)), key=lambda place: topology.ancestors[place][::-1])
        names = [topology.machines[place].name for place in order]
        racks = {topology.machines[place].name: _rack(topology, place) for place in order}
        machines = {machine.name: machine.gpus for machine in topology.machines}
    if sum(machines.values()) <= MOST_ROWS:
        return _by_gpu(names, machines, racks)
    if len(names) <= MOST_ROWS:
        return _by_machine(names, machines, racks)
    return _by_block(names, machines) if topology is None else _by_domain(topology)


def _rack(topology: Topology, machine: int) -> str:
    return topology.domains[topology.ancestors[machine][1]].name if topology.top > 1 else ""


def _by_gpu(names: list[str], machines: Mapping[str, int], racks: Mapping[str, str]) -> Rows:
    each = [(name, slot) for name in names for slot in range(machines[name])]
    row = {gpu: number for number, gpu in enumerate(each)}
    return Rows(
        "GPU",
        [f"{name}, GPU {slot}" for name, slot in each],
        [name for name, _ in each],
        [racks[name] for name, _ in each],
        [1] * len(each),
        {name: tuple(row[name, slot] for slot in range(machines[name])) for name in names},
    )


def _by_machine(names: list[str], machines: Mapping[str, int], racks: Mapping[str, str]) -> Rows:
    above = [racks[name] for name in names]
    places = {name: (number,) * machines[name] for number, name in enumerate(names)}
    return Rows("machine", names, above, above, [machines[name] for name in names], places)


def _by_block(names: list[str], machines: Mapping[str, int]) -> Rows:
    """So many machines to a row, by name, that the rows are few enough."""
    size = -(-len(names) // MOST_ROWS)
    blocks = [names[start : start + size] for start in range(0, len(names), size)]
    nowhere = [""] * len(blocks)
    places = {name: (row,) * machines[name] for row, block in enumerate(blocks) for name in block}
    gpus = [sum(machines[name] for name in block) for block in blocks]
    named = [f"{block[0]} to {block[-1]}" for block in blocks]
    return Rows(f"{size} machines", named, nowhere, nowhere, gpus, places)


def _by_domain(topology: Topology) -> Rows:
    """The domains of the lowest level that has few enough."""
    level = next(n for n, domains in enumerate(topology.level_domains) if len(domains) <= MOST_ROWS)
    domains = topology.level_domains[level]
    row = {domain.index: number for number, domain in enumerate(domains)}
    above = [topology.domains[domain.parent].name if domain.parent is not None else "" for domain in domains]
    places = {
        machine.name: (row[topology.ancestors[number][level]],) * machine.gpus
        for number, machine in enumerate(topology.machines)
    }
    names, nowhere = [domain.name for domain in domains], [""] * len(domains)
    return Rows(topology.levels[level], names, above, nowhere, [domain.gpus for domain in domains], places)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts node2 before node10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.findall(r"\d+|\D+", name)]
