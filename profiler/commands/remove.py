"""`profile-models remove`: takes a profile out of a folder."""

from pathlib import Path

import click

from dally.profiles.files import remove_profile
from profiler.commands.options import PROFILE_PRECISIONS, profiles_folder


@click.command()
@click.argument("name")
@click.option("--gpu-type", metavar="TYPE", help="Of the profile, where the model has several; or any.")
@click.option("--plan", help="Of the profile, where the model has several, such as tp=8,dp=2.")
@click.option(
    "--local-batch", type=click.IntRange(min=1), help="Of the profile, where the model has several."
)
@click.option(
    "--precision",
    type=click.Choice(PROFILE_PRECISIONS),
    help="Of the profile, where the model has several.",
)
@profiles_folder
def command(
    name: str,
    gpu_type: str | None,
    plan: str | None,
    local_batch: int | None,
    precision: str | None,
    out: Path,
) -> None:
    """Remove the profile of the model NAME.

    What was measured for it stays. `profile-models fit` makes it again of OUT/raw; of OUT/steps the same
    `profile-models run` with --resume does.

    Example: profile-models remove my-llm --gpu-type h100
    """
    click.echo(f"removed: {remove_profile(out, name, gpu_type, plan, local_batch, precision)}")
