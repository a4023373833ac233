"""Writes any cluster as a TOML file that reads back as the same cluster."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import groupby

from dally.cluster.topology import Domain, Link, Machine, Topology
from dally.hostlist import fold

_SMALL = 1e-3


def write_toml(topology: Topology) -> str:
    """The text of a cluster file for `read_toml`, with machines and switches by name.

    The link most common in a level stands once, in `levels`.

    Raises:
        InputError: A name cannot stand in a host list.
    """
    common = [
        Counter(domain.uplink for domain in domains if domain.uplink is not None).most_common(1)[0][0]
        for domains in topology.level_domains[:-1]
    ]
    lines = [f"name = {_text(topology.name)}", f"top_level = {_text(topology.levels[-1])}"]
    if topology.islands:
        lines.append("islands = true")
    for level, link in zip(topology.levels, common, strict=False):
        lines += ["", "[[levels]]", f"name = {_text(level)}", f"uplink = {_link(link)}"]
    keyed = [
        ((_machine_values(machine), domain.uplink), machine.name)
        for machine, domain in zip(topology.machines, topology.domains, strict=False)
    ]
    for (values, uplink), run in groupby(keyed, key=lambda item: item[0]):  # machines in a row that are alike
        lines += ["", "[[machines]]", f"names = {_text(fold([name for _, name in run]))}", *values]
        if uplink is not None and uplink != common[0]:
            lines.append(f"uplink = {_link(uplink)}")
    for domain in topology.domains[len(topology.machines) :]:
        if not _passes_through(domain):
            lines += _switch_lines(topology, domain, common)
    if topology.partitions:
        lines += ["", "[partitions]"]
        lines += [f"{_text(name)} = {_text(fold(sorted(of)))}" for name, of in topology.partitions.items()]
    return "\n".join(lines) + "\n"


def _passes_through(domain: Domain) -> bool:
    """Whether a domain only fills a level of a tree whose machines are not equally deep."""
    return domain.uplink is None and domain.parent is not None


def _machine_values(machine: Machine) -> tuple[str, ...]:
    lines = [f"gpus = {machine.gpus}"]
    if machine.gpu_type:
        lines.append(f"gpu_type = {_text(machine.gpu_type)}")
    if machine.slots > 1:
        lines.append(f"slots = {machine.slots}")
    if machine.slot_fabric is not None:
        lines.append(f"slot_fabric = {_link(machine.slot_fabric)}")
    return (*lines, f"fabric = {_link(machine.fabric)}")


def _switch_lines(topology: Topology, domain: Domain, common: Sequence[Link]) -> Iterator[str]:
    yield from ("", "[[switches]]", f"name = {_text(domain.name)}")
    children = list(_real_children(topology, domain))
    for key, is_machine in (("machines", True), ("switches", False)):
        names = [child.name for child in children if (child.level == 0) == is_machine]
        if names:
            yield f"{key} = {_text(fold(names))}"
    is_island = topology.islands and domain.parent == topology.root.index  # of any height
    if domain.uplink is not None and (is_island or domain.uplink != common[domain.level]):
        yield f"uplink = {_link(domain.uplink)}"


def _real_children(topology: Topology, domain: Domain) -> Iterator[Domain]:
    """The machines and switches that hang on a switch, those behind pass-through domains included."""
    for index in domain.children:
        child = topology.domains[index]
        if _passes_through(child):
            yield from _real_children(topology, child)
        else:
            yield child


def _link(link: Link) -> str:
    return f"{{ bandwidth_bps = {_number(link.bandwidth_bps)}, latency_s = {_number(link.latency_s)} }}"


def _number(value: float) -> str:
    """A number in as few digits as give it back exactly, such as 200e9 or 2.5e-6."""
    exact = Decimal(repr(float(value))).normalize()
    if 0 < value < _SMALL:
        return f"{exact.scaleb(6):f}e-6"
    return exact.to_eng_string().replace("E+", "e")


def _text(text: str) -> str:
    """A TOML string: JSON's escapes are TOML's too, but for DEL, which JSON leaves as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
