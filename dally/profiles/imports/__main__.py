"""Writes the shipped sets of profiles: `python -m dally.profiles.imports THROUGHPUTS PROFILES`."""

from pathlib import Path

import click

from dally.errors import DallyError
from dally.profiles.files import write_profiles
from dally.profiles.imports.dally import dally_profiles
from dally.profiles.imports.realistic import realistic_profiles
from dally.profiles.imports.tables import PUBLISHED, import_published


@click.command()
@click.argument("throughputs", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("profiles", type=click.Path(file_okay=False, path_type=Path))
def main(throughputs: Path, profiles: Path) -> None:
    """Read published tables from THROUGHPUTS and write one folder for each set under PROFILES."""
    try:
        write_profiles(dally_profiles(), profiles / "dally")
        write_profiles(realistic_profiles(), profiles / "realistic")
        for name in PUBLISHED:
            write_profiles(import_published(name, throughputs / name), profiles / name)
    except DallyError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
