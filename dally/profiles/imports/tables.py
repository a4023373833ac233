"""Which published tables can be imported, by name."""

from collections.abc import Callable, Mapping
from pathlib import Path

from dally.errors import InputError
from dally.profiles.imports.gavel import gavel_profiles
from dally.profiles.imports.pollux import pollux_profiles
from dally.profiles.schema import Profile

IMPORTERS: Mapping[str, Callable[[Path], tuple[Profile, ...]]] = {
    "gavel": gavel_profiles,
    "pollux": pollux_profiles,
}
"""What makes profiles of each, from its file or folder."""


def import_profiles(name: str, tables: Path) -> tuple[Profile, ...]:
    """The profiles in published tables, with their errors on held-out measurements.

    Args:
        name: One of `IMPORTERS`.
        tables: Their file or folder.

    Raises:
        InputError: No such name, or the tables cannot be read.
    """
    if name not in IMPORTERS:
        raise InputError(f"no importer {name}; valid: {', '.join(IMPORTERS)}")
    return IMPORTERS[name](tables)
