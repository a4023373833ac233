"""Makes the profiles of a folder from its raw files, and shows them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from dally.commands.terminal import TextConsole
from dally.optional import MissingModuleError, import_optional
from dally.profiles.files import write_profiles
from dally.profiles.schema import Profile
from profiler.driver.store import MeasurementStore
from profiler.report.assemble import assemble
from profiler.report.raw import read_folder
from profiler.report.table import print_profiles

_FIGURE = "profiles.png"
_FILE_WIDTH = 120
"""Columns of a table that goes to a file."""


def publish(store: MeasurementStore) -> tuple[Profile, ...]:
    """Write a profile for each model and GPU type found in the raw files.

    Raises:
        InputError: There are no raw files, or they are wrong or do not belong together; or a profile cannot
            be written.
    """
    measured_s = max((path.stat().st_mtime for path in store.raw.glob("*.jsonl")), default=0.0)
    utc_time = datetime.fromtimestamp(measured_s, UTC).isoformat(timespec="seconds")
    profiles = assemble(read_folder(store.raw), utc_time)
    write_profiles(profiles, store.out)
    return profiles


def print_tables(profiles: Sequence[Profile]) -> Console:
    """Print the table of profiles; where to, for what is to follow."""
    console = TextConsole() if TextConsole().is_terminal else TextConsole(width=_FILE_WIDTH)
    print_profiles(profiles, console)
    return console


def show(profiles: Sequence[Profile], folder: Path) -> None:
    """Print the table of profiles, and draw their figure into the folder if matplotlib is there.

    Raises:
        InputError: The figure cannot be written.
    """
    console = print_tables(profiles)
    try:
        figure = import_optional("profiler.report.figure", "analysis")
    except MissingModuleError as error:
        drawn = f"no figure: {error}"
    else:
        figure.draw_profiles(profiles, folder / _FIGURE)
        drawn = f"figure: {folder / _FIGURE}"
    console.print(f"profiles: {folder}/   {drawn}", markup=False, highlight=False, soft_wrap=True)
