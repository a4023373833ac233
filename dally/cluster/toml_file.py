"""Reads Dally's own cluster files: a regular tree in a few lines, or machines and switches by name.

They are read strictly: every key known, every value of its type and range, errors by key path.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dally.cluster.topology import Link, Machine, Topology
from dally.cluster.topology_build import (
    Attached,
    Switch,
    SwitchEntry,
    Wiring,
    build_topology,
    refuse_islands,
    switch_heights,
    wire,
)
from dally.config_text import naming, parse_toml
from dally.errors import InputError
from dally.hostlist import MOST_NAMES, expand
from dally.words import plural

_TOP_KEYS = ("name", "top_level", "islands", "levels", "machines", "switches", "partitions")
_MACHINE_KEYS = ("gpus", "gpu_type", "fabric", "slots", "slot_fabric", "uplink")
_REGULAR_KEYS = ("count", "prefix")


@dataclass(frozen=True, slots=True)
class TomlTable:
    """One table of a TOML file.

    Attributes:
        path: Where it stands in the file, such as `levels[0]`; empty for the file itself.
        values: Its keys and values.
        fallback: The table to look in for a key missing here.
    """

    path: str
    values: Mapping[str, object]
    fallback: "TomlTable | None" = None

    def key_path(self, key: str) -> str:
        """Where a key stands in the file."""
        return f"{self.path}.{key}" if self.path else key

    def __contains__(self, key: str) -> bool:
        return key in self.values or (self.fallback is not None and key in self.fallback)

    def _find(self, key: str) -> tuple[str, object]:
        if key not in self.values and self.fallback is not None and key in self.fallback:
            return self.fallback._find(key)
        if key not in self.values:
            where = f" (give it there or in {self.fallback.path})" if self.fallback is not None else ""
            raise InputError(f"{self.key_path(key)} is missing{where}")
        return self.key_path(key), self.values[key]

    def check_keys(self, valid: Sequence[str]) -> None:
        """Refuse a key that is not valid here."""
        for key in self.values:
            if key not in valid:
                raise InputError(f"{self.key_path(key)} is not a known key; valid: {', '.join(valid)}")

    def text(self, key: str, default: str | None = None) -> str:
        """A string; with a default it may be missing or empty."""
        if default is not None and key not in self:
            return default
        path, value = self._find(key)
        if not isinstance(value, str):
            raise InputError(f"{path} is {value!r}, must be a string")
        if not value and default is None:
            raise InputError(f"{path} is empty")
        return value

    def flag(self, key: str) -> bool:
        """True or false; false if missing."""
        value = self._find(key)[1] if key in self else False
        if not isinstance(value, bool):
            raise InputError(f"{self.key_path(key)} is {value!r}, must be true or false")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1."""
        if default is not None and key not in self:
            return default
        path, value = self._find(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{path} is {value!r}, must be a whole number of at least 1")
        return value

    def number(self, key: str, *, positive: bool) -> float:
        """A finite number above 0, or of at least 0."""
        path, value = self._find(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InputError(f"{path} is {value!r}, must be a number")
        if not math.isfinite(value) or value < 0 or (positive and value == 0):
            raise InputError(
                f"{path} is {value:g}, must be {'above 0' if positive else '0 or more'} and finite"
            )
        return float(value)

    def table(self, key: str) -> "TomlTable":
        """A table inside this one."""
        path, value = self._find(key)
        if not isinstance(value, dict):
            raise InputError(f"{path} is {value!r}, must be a table")
        return TomlTable(path, value)

    def tables(self, key: str) -> tuple["TomlTable", ...]:
        """An array of tables, `[[key]]`; empty if missing."""
        path, value = self._find(key) if key in self else (key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise InputError(f"{path} must be an array of tables, [[{path}]]")
        return tuple(TomlTable(f"{path}[{number}]", item) for number, item in enumerate(value))

    def link(self, key: str) -> Link:
        """A link, `{ bandwidth_bps = 200e9, latency_s = 1e-6 }`."""
        table = self.table(key)
        table.check_keys(("bandwidth_bps", "latency_s"))
        return Link(table.number("bandwidth_bps", positive=True), table.number("latency_s", positive=False))


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
        top = TomlTable("", parse_toml(text))
        top.check_keys(_TOP_KEYS)
        name, root_level = top.text("name", name), top.text("top_level", "network")
        levels = top.tables("levels")
        regular = not ("machines" in top or "switches" in top)
        if regular and not levels:
            raise InputError("neither levels with counts nor machines and switches are given")
        for number, level in enumerate(levels):
            keys = (*_MACHINE_KEYS, "name") if number == 0 else ("name", "uplink")
            given = [level.key_path(key) for key in _REGULAR_KEYS if key in level]
            if given and not regular:
                raise InputError(
                    f"{given[0]} belongs to a regular tree, but this file has machines or switches"
                )
            level.check_keys([*keys, *_REGULAR_KEYS] if regular else keys)
        level_names = [*(level.text("name") for level in levels), root_level]
        if len({*level_names}) != len(level_names):
            raise InputError(f"level names {', '.join(level_names)} are not all different")
        islands = top.flag("islands")
        if regular:
            built = _regular(name, levels, level_names, islands)
        else:
            built = _explicit(name, top, levels, level_names if levels else None, islands)
        return replace(built, partitions=_partitions(top, built))


def _partitions(top: TomlTable, topology: Topology) -> dict[str, frozenset[str]]:
    """The machines of each partition."""
    table = top.table("partitions") if "partitions" in top else TomlTable("partitions", {})
    found: dict[str, frozenset[str]] = {}
    for name in table.values:
        found[name] = frozenset(_hosts(table, name))
        for machine in sorted(found[name] - topology.machine_index.keys()):
            raise InputError(f"{table.key_path(name)}: there is no machine {machine}")
    return found


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
    """A tree whose domains of one level are all alike, each with as many below it."""
    machine = _machine(levels[0].path, levels[0])
    attached: list[Attached] = []
    switches, above = [Switch(level_names[-1], None)], [level_names[-1]]
    for number in range(len(levels) - 1, -1, -1):
        level = levels[number]
        count, uplink = level.count("count"), level.link("uplink")
        total = len(above) * count
        if total > MOST_NAMES:
            raise InputError(
                f"{level.path}: {total} of {level.text('name')}, more than {MOST_NAMES}, the most"
            )
        prefix, width = level.text("prefix", level.text("name")), len(str(total))
        with naming(level.key_path("prefix")):
            expand(prefix)
        names = [f"{prefix}{at:0{width}d}" for at in range(1, total + 1)]
        placed = [(child, above[at // count]) for at, child in enumerate(names)]
        if number:
            switches += [Switch(child, parent, uplink) for child, parent in placed]
        else:
            attached = [Attached(replace(machine, name=child), parent, uplink) for child, parent in placed]
        above = names
    return build_topology(name, attached, switches, level_names, islands=islands)


def _explicit(
    name: str, top: TomlTable, levels: Sequence[TomlTable], level_names: Sequence[str] | None, islands: bool
) -> Topology:
    """A tree given by machines and switches, with what `levels` gives as defaults."""
    machines = _machines(top.tables("machines"), levels[0] if levels else None)
    tables = {table.text("name"): table for table in top.tables("switches")}
    if not machines:
        raise InputError("machines is missing: a list of [[machines]] tables, each with names")
    entries = []
    for table in top.tables("switches"):
        table.check_keys(("name", "machines", "switches", "uplink"))
        below = [_hosts(table, key) if key in table else () for key in ("machines", "switches")]
        entries.append(SwitchEntry(table.text("name"), *below))
    wiring = wire(entries)
    for machine, switch in wiring.switch_of.items():
        if machine not in machines:
            raise InputError(f"switch {switch} lists unknown machine {machine}")
    for machine in machines:
        if machine not in wiring.switch_of:
            raise InputError(f"machine {machine} is on no switch")
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


def _switches(tables: Mapping[str, TomlTable], levels: Sequence[TomlTable], wiring: Wiring) -> list[Switch]:
    """All switches, each with its own uplink or that of its level."""
    heights = switch_heights(wiring.switch_of.values(), wiring.parents)
    refuse_islands(wiring.parents, heights)
    top = max(heights.values())
    if levels and len(levels) != top:
        raise InputError(
            f"levels names {plural(len(levels), 'level')}, "
            f"but below its top the tree has {plural(top, 'level')}"
        )
    switches = []
    for name, parent in wiring.parents.items():
        default = levels[heights[name]] if heights[name] < len(levels) else None
        table = replace(tables[name], fallback=default)
        inner = parent is not None or "uplink" in tables[name]
        switches.append(Switch(name, parent, table.link("uplink") if inner else None))
    return switches
