"""`profile-models show`: the table and figure of profiles."""

import json
from pathlib import Path

import click

from dally.profiles.files import load_profiles
from profiler.driver.publish import show
from profiler.report.table import describe_profiles


@click.command()
@click.argument("out", type=click.Path(path_type=Path, exists=True))
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON, draw nothing.")
def command(out: Path, as_json: bool) -> None:
    """Print the table of the profiles in OUT, and draw their figure there."""
    profiles = load_profiles(out).profiles
    if as_json:
        click.echo(json.dumps(describe_profiles(profiles), indent=2))
    else:
        show(profiles, out if out.is_dir() else out.parent)
