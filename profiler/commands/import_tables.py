"""`profile-models import`: profiles from published tables."""

from pathlib import Path

import click

from dally.errors import InputError
from dally.profiles.files import write_profiles
from dally.profiles.imports.imported import Origin
from dally.profiles.imports.pollux import MeasuredHardware
from dally.profiles.imports.tables import FORMS, import_profiles
from profiler.driver.publish import show


@click.command(
    epilog="""\b
Examples:
  profile-models import gavel simulation_throughputs.json --out profiles/gavel \\
      --source "stanford-futuredata/gavel c4fa400" --licence MIT
  profile-models import pollux my-tables --gpu-type a100 --link-gbps 100 --out profiles/mine"""
)
@click.argument("form", type=click.Choice(FORMS))
@click.argument("tables", type=click.Path(path_type=Path, exists=True))
@click.option("--source", default="unknown", show_default=True, help="Where the tables are from.")
@click.option("--licence", default="unknown", show_default=True, help="Their licence.")
@click.option("--gpu-type", help="Slurm's name of the GPUs they were measured on; gavel's tables say it.")
@click.option("--link-gbps", type=float, help="Rate of each node's link; only for pollux's form.")
@click.option("--every-batch", is_flag=True, help="A profile for each local batch, not for the middle one.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder of the profiles.",
)
def command(
    form: str,
    tables: Path,
    source: str,
    licence: str,
    gpu_type: str | None,
    link_gbps: float | None,
    every_batch: bool,
    out: Path,
) -> None:
    """Make profiles from the file or folder TABLES, which has the FORM of Gavel's or of Pollux's tables.

    Prints how far the predictions are from those measurements that the profiles do not rest on. What
    contradicts itself in the tables is in the profiles' flags.
    """
    if form == "gavel" and (gpu_type, link_gbps) != (None, None):
        raise click.UsageError("--gpu-type and --link-gbps are for pollux's form only")
    if link_gbps is not None and not 0 < link_gbps < float("inf"):
        raise InputError(f"--link-gbps is {link_gbps:g}, must be a positive number")
    site = MeasuredHardware(gpu_type, None if link_gbps is None else link_gbps * 1e9)
    profiles = import_profiles(form, tables, Origin(source, licence), site, every_batch)
    write_profiles(profiles, out)
    show(profiles, out)
