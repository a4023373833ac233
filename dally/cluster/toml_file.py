"""Reads Dally's own cluster files: a regular tree in a few lines, or machines and switches by name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dally.cluster.hostlist import expand
from dally.cluster.source import naming
from dally.cluster.toml_table import TomlTable
from dally.cluster.topology import Link, Machine, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology, refuse_islands, switch_heights
from dally.cluster.wiring import SwitchEntry, Wiring, refuse_strays, wire
from dally.config_text import parse_toml
from dally.errors import InputError

_TOP_KEYS = ("name", "top_level", "islands", "levels", "machines", "switches")
_MACHINE_KEYS = ("gpus", "gpu_type", "fabric", "slots", "slot_fabric", "uplink")
_LEVEL_KEYS = ("name", "uplink")
_REGULAR_KEYS = ("count", "prefix")
_MOST_MACHINES = 1_000_000


def read_toml(text: str, source: str, name: str) -> Topology:
    """Read a cluster file in TOML; docs/cluster-files.md describes it.

    Args:
        text: The file's text.
        source: What to call the file in errors.
        name: The cluster's name where the file gives none.

    Raises:
        InputError: The file is not valid; the message names file, key and value.
    """
    with naming(source):
        return _read(TomlTable("", parse_toml(text)), name)


def _read(top: TomlTable, default_name: str) -> Topology:
    top.check_keys(_TOP_KEYS)
    name, root_level = top.text("name", default_name), top.text("top_level", "network")
    levels = top.tables("levels")
    regular = not ("machines" in top or "switches" in top)
    if regular and not levels:
        raise InputError("neither levels with counts nor machines and switches are given")
    for number, level in enumerate(levels):
        own = (*_MACHINE_KEYS, *_LEVEL_KEYS[:1]) if number == 0 else _LEVEL_KEYS
        _check_level(level, own, regular)
    level_names = [level.text("name") for level in levels]
    if len({*level_names, root_level}) != len(levels) + 1:
        raise InputError(f"level names {', '.join([*level_names, root_level])} are not all different")
    islands = top.flag("islands")
    if regular:
        return _regular(name, levels, [*level_names, root_level], islands)
    return _explicit(name, top, levels, [*level_names, root_level] if levels else None, islands)


def _check_level(level: TomlTable, keys: Sequence[str], regular: bool) -> None:
    given = [level.key_path(key) for key in _REGULAR_KEYS if key in level]
    if given and not regular:
        raise InputError(f"{given[0]} belongs to a regular tree, but this file has machines or switches")
    level.check_keys([*keys, *_REGULAR_KEYS] if regular else keys)


def _machine(name: str, table: TomlTable) -> Machine:
    return Machine(
        name=name,
        gpus=table.count("gpus"),
        gpu_type=table.text("gpu_type", ""),
        fabric=table.link("fabric"),
        slots=table.count("slots", 1),
        slot_fabric=table.link("slot_fabric") if "slot_fabric" in table else None,
    )


def _regular(name: str, levels: Sequence[TomlTable], level_names: Sequence[str], islands: bool) -> Topology:
    """A tree whose domains of one level are all alike."""
    names = _numbered_names(levels, level_names[-1])
    bottom, bottom_link = _machine(levels[0].path, levels[0]), levels[0].link("uplink")
    attached = [
        Attached(replace(bottom, name=machine), switch, bottom_link)
        for machine, switch in _with_parents(names[0], names[1])
    ]
    switches = [Switch(names[-1][0], None)]
    for height in range(len(levels) - 1, 0, -1):
        uplink = levels[height].link("uplink")
        switches += [
            Switch(child, parent, uplink) for child, parent in _with_parents(names[height], names[height + 1])
        ]
    return build_topology(name, attached, switches, level_names, islands=islands)


def _numbered_names(levels: Sequence[TomlTable], root: str) -> list[list[str]]:
    """The names of all domains by level, machines first, the root last."""
    names = [[root]]
    for level in reversed(levels):
        total = len(names[-1]) * level.count("count")
        if total > _MOST_MACHINES:
            raise InputError(f"{level.path}: {total} of {level.text('name')}, more than {_MOST_MACHINES}")
        prefix, width = level.text("prefix", level.text("name")), len(str(total))
        with naming(level.key_path("prefix")):
            expand(prefix)
        names.append([f"{prefix}{number:0{width}d}" for number in range(1, total + 1)])
    return names[::-1]


def _with_parents(children: Sequence[str], parents: Sequence[str]) -> list[tuple[str, str]]:
    each = len(children) // len(parents)
    return [(child, parents[number // each]) for number, child in enumerate(children)]


def _explicit(
    name: str, top: TomlTable, levels: Sequence[TomlTable], level_names: Sequence[str] | None, islands: bool
) -> Topology:
    """A tree given by machines and switches, with what `levels` gives as defaults."""
    machines = _machines(top.tables("machines"), levels[0] if levels else None)
    tables = {table.text("name"): table for table in top.tables("switches")}
    if not machines:
        raise InputError("machines is missing: a list of [[machines]] tables, each with names")
    wiring = wire([_switch_entry(table) for table in top.tables("switches")])
    refuse_strays(wiring, machines, machines)
    attached = [
        Attached(machine, wiring.switch_of[machine.name], uplink) for machine, uplink in machines.values()
    ]
    return build_topology(name, attached, _switches(tables, levels, wiring), level_names, islands=islands)


def _machines(tables: Sequence[TomlTable], defaults: TomlTable | None) -> dict[str, tuple[Machine, Link]]:
    """The machines of all entries and their uplinks, by name."""
    found: dict[str, tuple[Machine, Link]] = {}
    for table in tables:
        table.check_keys(("names", *_MACHINE_KEYS))
        filled = replace(table, fallback=defaults)
        model, uplink = _machine(table.path, filled), filled.link("uplink")
        for machine in _hosts(table, "names"):
            if machine in found:
                raise InputError(f"{table.key_path('names')}: machine {machine} is defined twice")
            found[machine] = replace(model, name=machine), uplink
    return found


def _hosts(table: TomlTable, key: str) -> tuple[str, ...]:
    text = table.text(key)
    with naming(table.key_path(key)):
        return expand(text)


def _switch_entry(table: TomlTable) -> SwitchEntry:
    table.check_keys(("name", "machines", "switches", "uplink"))
    return SwitchEntry(
        table.text("name"),
        _hosts(table, "machines") if "machines" in table else (),
        _hosts(table, "switches") if "switches" in table else (),
    )


def _switches(tables: Mapping[str, TomlTable], levels: Sequence[TomlTable], wiring: Wiring) -> list[Switch]:
    """All switches, each with its own uplink or that of its level."""
    heights = switch_heights(wiring.switch_of.values(), wiring.parents)
    refuse_islands(wiring.parents, heights)
    top = max(heights.values())
    if levels and len(levels) != top:
        raise InputError(f"levels has {len(levels)} entries, but below its top the tree has {top} levels")
    switches = []
    for name, parent in wiring.parents.items():
        default = levels[heights[name]] if heights[name] < len(levels) else None
        table = replace(tables[name], fallback=default)
        inner = parent is not None or "uplink" in tables[name]
        switches.append(Switch(name, parent, table.link("uplink") if inner else None))
    return switches
