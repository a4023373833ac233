"""`profile-models local`: measure between hosts in network namespaces of this machine, over shaped links."""

from contextlib import nullcontext

import click

from dally.hosts.network import LocalNetwork
from dally.hosts.network_spec import NetworkSpec, Rack
from profiler.commands import values
from profiler.commands.measuring import measure_and_show
from profiler.commands.options import MeasurementSettings, apart, measuring, naming_gpus
from profiler.driver.local_hosts import LocalHosts, racks_of
from profiler.driver.plan import RankSpread, plan_runs, spreads_for
from profiler.launch.here import count_gpus
from workloads.settings import Backend


@click.command(
    epilog="""\b
Examples:
  profile-models local mobilenetv3 --racks 2,2 --rate 1Gb --uplink 500Mb --emulate 30 --out profiles
  profile-models local resnet50 --racks 1,1 --rate 200Mb --shapes 2x1 --background 2 --out profiles"""
)
@measuring
@naming_gpus
@apart
@click.option(
    "--racks",
    "hosts",
    type=values.counts,
    default="2,2",
    show_default=True,
    metavar="N,N,...",
    help="Hosts of each rack.",
)
@click.option(
    "--rate", type=values.rate, default="1Gb", show_default=True, help="Of each host's link, each way."
)
@click.option(
    "--uplink", type=values.rate, default="1Gb", show_default=True, help="Of each rack's link, each way."
)
@click.option(
    "--ranks", type=click.IntRange(min=1), default=1, show_default=True, help="Most ranks on each host."
)
def command(
    settings: MeasurementSettings,
    gpu_type: str | None,
    shapes: tuple[tuple[RankSpread, ...], ...],
    background: int,
    hosts: tuple[int, ...],
    rate: float,
    uplink: float,
    ranks: int,
) -> None:
    """Measure between emulated hosts: network namespaces of this machine, in racks, over shaped links.

    They share its CPUs and GPUs: use few hosts, and --emulate where compute is not to slow down with their
    number. Needs root, or user namespaces. Measures all MODELs if none is named.
    """
    network = LocalNetwork(NetworkSpec(tuple(Rack(count, rate, uplink) for count in hosts)))
    racks = racks_of(network.spec, ranks)
    spec = settings.spec(Backend.NCCL if count_gpus() else Backend.GLOO, gpu_type)
    runs = plan_runs(spreads_for(shapes, racks), racks, spec, background)
    hosts_of_runs = LocalHosts(network, max(run.shape.gpus for run in runs))
    with nullcontext() if settings.dry_run else network:
        measure_and_show(runs, hosts_of_runs, settings)
