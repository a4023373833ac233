"""`profile-models ssh`: measure on hosts reached over SSH."""

from contextlib import nullcontext
from pathlib import Path

import click

from dally.hosts.hosts_file import read_hosts_file
from dally.hosts.ssh import SshHosts
from profiler.commands.measuring import measure_and_show
from profiler.commands.options import MeasurementSettings, apart, measuring, naming_gpus
from profiler.driver.plan import RankSpread, plan_runs, spreads_for
from profiler.driver.remote_hosts import RemoteHosts, racks_of
from workloads.settings import Backend


@click.command(
    epilog="""\b
Examples:
  profile-models ssh --hosts hosts.toml --out profiles
  profile-models ssh resnet50 --hosts hosts.toml --backend gloo --shapes 2x1,4x1 --out profiles
Variables NCCL_* and GLOO_* that are set here are set on the hosts too."""
)
@measuring
@naming_gpus
@apart
@click.option(
    "--hosts",
    "hosts_file",
    type=click.Path(path_type=Path),
    required=True,
    help="TOML file of the hosts, their racks and how to log in.",
)
def command(
    settings: MeasurementSettings,
    gpu_type: str | None,
    shapes: tuple[tuple[RankSpread, ...], ...],
    background: int,
    hosts_file: Path,
) -> None:
    """Measure on hosts reached over SSH: on one, on two of a rack, on hosts of two racks.

    Measures all MODELs if none is named; `profile-models models` lists them.
    """
    file = read_hosts_file(hosts_file)
    racks = racks_of(file.hosts)
    runs = plan_runs(spreads_for(shapes, racks), racks, settings.spec(Backend.NCCL, gpu_type), background)
    ssh = SshHosts(file)
    with nullcontext() if settings.dry_run else ssh:
        measure_and_show(runs, RemoteHosts(file, ssh), settings)
