"""`profile-models fit`: make profiles again from raw files, also of runs launched by hand."""

from pathlib import Path

import click

from dally.errors import InputError
from profiler.driver.publish import publish, show
from profiler.driver.store import MeasurementStore


@click.command()
@click.argument("out", type=click.Path(path_type=Path, exists=True, file_okay=False))
def command(out: Path) -> None:
    """Make the profiles of the folder OUT again from its raw files, OUT/raw/*.jsonl.

    Partial files count too, and the profiles say so.
    """
    store = MeasurementStore(out)
    if not store.raw.is_dir():
        raise InputError(f"folder {out} has no folder raw with raw files (*.jsonl)")
    with store.locked():
        show(publish(store), out)
