"""Which forms of tables can be imported, and the published ones that the shipped sets are made of."""

from collections.abc import Mapping
from pathlib import Path

from dally.errors import InputError
from dally.profiles.imports.gavel import gavel_profiles
from dally.profiles.imports.imported import UNKNOWN, Origin
from dally.profiles.imports.pollux import POLLUX_SITE, UNKNOWN_SITE, MeasuredHardware, pollux_profiles
from dally.profiles.schema import Profile

FORMS = ("gavel", "pollux")
"""The forms of tables that can be read, by the project whose tables have it."""

PUBLISHED: Mapping[str, Origin] = {
    "gavel": Origin("stanford-futuredata/gavel c4fa40097339, simulation_throughputs.json", "MIT"),
    "pollux": Origin(
        "petuum/adaptdl c793c7089bd3, branch osdi21-artifact, traces (AWS, nodes of 4 T4 GPUs with 50 Gb/s)",
        "Apache-2.0",
    ),
}
"""Where the tables of the shipped sets are from."""


def import_profiles(
    form: str,
    tables: Path,
    origin: Origin = UNKNOWN,
    site: MeasuredHardware = UNKNOWN_SITE,
    every_batch: bool = False,
) -> tuple[Profile, ...]:
    """The profiles in tables of a form, with their errors on held-out measurements.

    Args:
        form: One of `FORMS`.
        tables: Their file or folder.
        origin: Where they are from.
        site: What they were measured on, where the tables do not say it themselves.
        every_batch: A profile for each local batch instead of for the middle one.

    Raises:
        InputError: No such form, or the tables cannot be read.
    """
    if form == "gavel":
        return gavel_profiles(tables, origin, every_batch)
    if form == "pollux":
        return pollux_profiles(tables, origin, site, every_batch)
    raise InputError(f"no importer {form}; valid: {', '.join(FORMS)}")


def import_published(name: str, tables: Path) -> tuple[Profile, ...]:
    """The profiles of a shipped set, from its published tables.

    Args:
        name: One of `PUBLISHED`.
        tables: Their file or folder.

    Raises:
        InputError: The tables cannot be read.
    """
    return import_profiles(name, tables, PUBLISHED[name], POLLUX_SITE)
