"""`profile-models import`: profiles from published tables."""

from pathlib import Path

import click

from dally.profiles.files import write_profiles
from dally.profiles.imports.tables import IMPORTERS, import_profiles
from profiler.drive.publish import show


@click.command(
    epilog="""\b
Examples:
  profile-models import gavel simulation_throughputs.json --out profiles/gavel
  profile-models import pollux pollux/traces --out profiles/pollux"""
)
@click.argument("source", type=click.Choice(sorted(IMPORTERS)))
@click.argument("tables", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder of the profiles.",
)
def command(source: str, tables: Path, out: Path) -> None:
    """Make profiles from the published tables of SOURCE in the file or folder TABLES.

    Prints how far the predictions are from those measurements that the profiles do not rest on.
    """
    profiles = import_profiles(source, tables)
    write_profiles(profiles, out)
    show(profiles, out)
