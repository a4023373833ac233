"""`dally testbed down`: end the cluster that `up` left, and remove all of it."""

from pathlib import Path

import click

from testbed.commands.options import chosen_folder, folder_option
from testbed.persistent.control import take_down


@click.command(
    epilog="""\b
Example:
  dally testbed down"""
)
@folder_option
def command(folder: Path | None) -> None:
    """End the cluster, its jobs and its network, and remove its folder; also what a killed one has left."""
    place = chosen_folder(folder)
    click.echo(f"{'down: nothing is left' if take_down(place) else 'nothing is up'} in {place}")
