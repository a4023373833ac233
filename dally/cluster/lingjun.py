"""Reads the network table of Alibaba's Lingjun cluster: `ip,DSW,PSW,ASW`, a row for each host of 8 GPUs.

The labels are those of switches: an access switch (ASW, top of rack) hangs on a pod switch (PSW), that on a
core switch (DSW). ASW labels count anew in every pod, so a rack's key is (PSW, ASW). The published table has
one DSW; a table in which a PSW is below two of them is refused rather than guessed at.
"""

from dally.cluster.host_table import HostRow, read_hosts
from dally.cluster.links import DefaultLinks
from dally.cluster.source import naming
from dally.cluster.topology import Machine, Topology
from dally.cluster.wiring import Wiring, build_with_defaults
from dally.errors import InputError

COLUMNS = ("ip", "DSW", "PSW", "ASW")
"""The table's header."""

_GPUS = 8


def read_lingjun(text: str, source: str, name: str, links: DefaultLinks) -> Topology:
    """Read the table: racks (PSW, ASW) in pods (PSW) under the DSW; several get a network above.

    Args:
        text: The table.
        source: What to call the file in errors.
        name: What to call the cluster.
        links: Links by level; the table gives none, nor the GPUs' type.

    Raises:
        InputError: The table is not valid; the message names file, line and value.
    """
    with naming(source):
        rows = list(read_hosts(text, COLUMNS))
        machines = [Machine(row.host, _GPUS, "", links.fabric) for row in rows]
        wiring = Wiring({row.host: _rack(row) for row in rows}, _parents(rows))
        return build_with_defaults(name, machines, wiring, links)


def _rack(row: HostRow) -> str:
    return f"{row.fields[1]}-{row.fields[2]}"


def _parents(rows: list[HostRow]) -> dict[str, str | None]:
    parents: dict[str, str | None] = {}
    for row in rows:
        core, pod, _ = row.fields
        for switch, parent in ((_rack(row), pod), (pod, core)):
            other = parents.setdefault(switch, parent)
            if other != parent:
                raise InputError(
                    f"line {row.line}: {switch} is below {parent}, in a line before below {other}"
                )
    cores = dict.fromkeys(row.fields[0] for row in rows)
    if len(cores) > 1:
        return parents | dict.fromkeys(cores, "network") | {"network": None}
    return parents | dict.fromkeys(cores)
