"""A TOML table read strictly: every key known, every value of its type and range, errors by key path."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dally.cluster.topology import Link
from dally.errors import InputError


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
