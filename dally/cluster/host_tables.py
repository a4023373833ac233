"""Published CSV tables of hosts: the network of Alibaba's Lingjun, the machines of Microsoft's Philly.

They are read strictly: the expected header, every row complete, no host twice.
"""

import csv
from collections.abc import Iterator, Sequence

from dally.cluster.links import DefaultLinks
from dally.cluster.topology import Machine, Topology
from dally.cluster.topology_build import Wiring, build_with_defaults
from dally.config_text import naming
from dally.errors import InputError
from dally.hostlist import expand

LINGJUN_COLUMNS = ("ip", "DSW", "PSW", "ASW")
PHILLY_COLUMNS = ("machineId", "number of GPUs", "single GPU mem")

_LINGJUN_GPUS = 8
_NETWORK = "network"


def header_of(text: str) -> tuple[str, ...]:
    """The column names of a CSV text, blanks around them dropped; empty for an empty text."""
    return tuple(name.strip() for name in text.lstrip().split("\n", 1)[0].split(","))


def read_hosts(text: str, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The rows below the header, each with its line number; its first column is a host.

    Raises:
        InputError: The header is another, a row does not fill the columns, or a host comes twice.
    """
    if header_of(text) != tuple(columns):
        raise InputError(f"header is {', '.join(header_of(text))!r}, must be {', '.join(columns)!r}")
    reader = csv.reader(text.lstrip().splitlines())
    first_line: dict[str, int] = {}
    try:
        next(reader)
        for row in filter(None, reader):
            line = reader.line_num
            fields = [field.strip() for field in row]
            if len(row) != len(columns) or not all(fields):
                raise InputError(
                    f"line {line}: {','.join(row)!r} does not fill the columns {', '.join(columns)}"
                )
            host = fields[0]
            if host in first_line:
                raise InputError(f"line {line}: host {host} is already in line {first_line[host]}")
            first_line[host] = line
            with naming(f"line {line}"):
                expand(host)
            yield line, fields
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}: broken CSV: {error}") from error


def read_lingjun(text: str, source: str, name: str, links: DefaultLinks) -> Topology:
    """Read Lingjun's network table, a row for each host of 8 GPUs.

    Its labels are those of switches: an access switch (ASW, top of rack) hangs on a pod switch (PSW), that on
    a core switch (DSW). ASW labels count anew in every pod, so a rack's key is (PSW, ASW). The published
    table has one DSW; several get a network above. A table in which a PSW is below two of them is refused
    rather than guessed at.

    Args:
        text: The table.
        source: What to call the file in errors.
        name: What to call the cluster.
        links: Links by level; the table gives none, nor the GPUs' type.

    Raises:
        InputError: The table is not valid; the message names file, line and value.
    """
    switch_of: dict[str, str] = {}
    parents: dict[str, str | None] = {}
    cores: dict[str, None] = {}
    with naming(source):
        for line, (host, core, pod, access) in read_hosts(text, LINGJUN_COLUMNS):
            cores[core] = None
            rack = switch_of[host] = f"{pod}-{access}"
            for switch, parent in ((rack, pod), (pod, core)):
                other = parents.setdefault(switch, parent)
                if other != parent:
                    raise InputError(
                        f"line {line}: {switch} is below {parent}, in a line before below {other}"
                    )
        if len(cores) > 1:
            parents |= dict.fromkeys(cores, _NETWORK) | {_NETWORK: None}
        else:
            parents |= dict.fromkeys(cores)
        machines = [Machine(host, _LINGJUN_GPUS, "", links.fabric) for host in switch_of]
        return build_with_defaults(name, machines, Wiring(switch_of, parents), links)


def read_philly(text: str, source: str, name: str, links: DefaultLinks, machines_per_rack: int) -> Topology:
    """Read Philly's machine list; the GPUs' memory, such as 24GB, stands for their type.

    The list does not tell the racks. They are made up: machines of one kind side by side, as listed.

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
    machines: list[Machine] = []
    racks: dict[str, str] = {}
    seen: dict[tuple[int, str], int] = {}
    with naming(source):
        for line, (host, count, memory) in read_hosts(text, PHILLY_COLUMNS):
            if not (count.isascii() and count.isdecimal() and len(count) < 10 and int(count)):
                raise InputError(
                    f"line {line}: number of GPUs is {count!r}, must be a whole number of at least 1"
                )
            kind = int(count), memory
            seen[kind] = seen.get(kind, 0) + 1
            number = -(-seen[kind] // machines_per_rack)
            racks[host] = f"{int(count)}x{memory}-rack{number}"
            machines.append(Machine(host, int(count), memory, links.fabric))
        parents = dict.fromkeys(racks.values(), _NETWORK) | {_NETWORK: None}
        return build_with_defaults(name, machines, Wiring(racks, parents), links)
