"""Writes the shipped sets of profiles: `python -m dally.profiles.imports THROUGHPUTS PROFILES`."""

from collections.abc import Iterable
from pathlib import Path

import click

from dally.errors import DallyError
from dally.profiles.files import write_profile
from dally.profiles.imports.author import author_profiles
from dally.profiles.imports.gavel import gavel_profiles
from dally.profiles.imports.pollux import pollux_profiles
from dally.profiles.imports.realistic import realistic_profiles
from dally.profiles.schema import Profile


@click.command()
@click.argument("throughputs", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("profiles", type=click.Path(file_okay=False, path_type=Path))
def main(throughputs: Path, profiles: Path) -> None:
    """Read published tables from THROUGHPUTS and write one folder for each set under PROFILES."""
    try:
        write_set(profiles / "author", author_profiles())
        write_set(profiles / "realistic", realistic_profiles())
        write_set(profiles / "gavel", gavel_profiles(throughputs / "gavel" / "simulation_throughputs.json"))
        write_set(profiles / "pollux", pollux_profiles(throughputs / "pollux" / "traces"))
    except DallyError as error:
        raise click.ClickException(str(error)) from error


def write_set(folder: Path, profiles: Iterable[Profile]) -> None:
    """Write each profile as MODEL.json, or MODEL-GPUTYPE.json where the type is known."""
    folder.mkdir(parents=True, exist_ok=True)
    for profile in profiles:
        parts = (profile.model.name, profile.env.gpu_type)
        write_profile(profile, folder / f"{'-'.join(part for part in parts if part)}.json")


if __name__ == "__main__":
    main()
