"""`profile-models remove`: takes a profile out of a folder."""

from pathlib import Path

import click

from dally.profiles.files import remove_profile
from profiler.commands.options import profiles_folder


@click.command()
@click.argument("name")
@click.option("--gpu-type", metavar="TYPE", help="The GPUs, where the model has profiles on several types.")
@profiles_folder
def command(name: str, gpu_type: str | None, out: Path) -> None:
    """Remove the profile of the model NAME.

    Of one that was measured, the raw files stay: `profile-models fit` makes it again.
    """
    click.echo(f"removed: {remove_profile(out, name, gpu_type)}")
