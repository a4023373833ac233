"""Reads the machine list of Microsoft's Philly cluster, which tells the machines but not their racks.

Racks are made up: machines of one kind side by side, in the order of the list.
"""

import re

from dally.cluster.host_table import HostRow, read_hosts
from dally.cluster.links import DefaultLinks
from dally.cluster.source import naming
from dally.cluster.topology import Machine, Topology
from dally.cluster.wiring import Wiring, build_with_defaults
from dally.errors import InputError

COLUMNS = ("machineId", "number of GPUs", "single GPU mem")
"""The list's header."""

_ROOT = "network"
_COUNT = re.compile("[0-9]{1,9}", re.ASCII)


def read_philly(text: str, source: str, name: str, links: DefaultLinks, machines_per_rack: int) -> Topology:
    """Read the list; the GPUs' memory, such as 24GB, stands for their type.

    Args:
        text: The list.
        source: What to call the file in errors.
        name: What to call the cluster.
        links: Links by level; the list gives none.
        machines_per_rack: Machines of one kind that share a rack; the last rack of a kind may hold fewer.

    Raises:
        InputError: The list is not valid, or machines_per_rack is below 1.
    """
    if machines_per_rack < 1:
        raise InputError(f"machines per rack is {machines_per_rack}, must be at least 1")
    with naming(source):
        machines = [_machine(row, links) for row in read_hosts(text, COLUMNS)]
        switch_of = _racks(machines, machines_per_rack)
        parents = dict.fromkeys(switch_of.values(), _ROOT) | {_ROOT: None}
        return build_with_defaults(name, machines, Wiring(switch_of, parents), links)


def _machine(row: HostRow, links: DefaultLinks) -> Machine:
    gpus, memory = row.fields
    if not _COUNT.fullmatch(gpus) or int(gpus) < 1:
        raise InputError(f"line {row.line}: number of GPUs is {gpus!r}, must be a whole number of at least 1")
    return Machine(row.host, int(gpus), memory, links.fabric)


def _racks(machines: list[Machine], machines_per_rack: int) -> dict[str, str]:
    """The rack of each machine, by name: rack 1, 2, ... of its kind."""
    seen: dict[tuple[int, str], int] = {}
    racks: dict[str, str] = {}
    for machine in machines:
        kind = machine.gpus, machine.gpu_type
        seen[kind] = seen.get(kind, 0) + 1
        number = -(-seen[kind] // machines_per_rack)
        racks[machine.name] = f"{machine.gpus}x{machine.gpu_type}-rack{number}"
    return racks
