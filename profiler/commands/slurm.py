"""`profile-models slurm`: measure on the nodes of a Slurm cluster, by srun."""

from pathlib import Path

import click

from dally.clusters import load_cluster
from profiler.commands.carrying_out import carry_out
from profiler.commands.options import Settings, apart, measuring
from profiler.drive.cluster_racks import only_gpu_type, racks_of
from profiler.drive.plan import NoRoomError, Spread, only_idle, plan_runs, spreads_for
from profiler.hosts.slurm import Slurm, configuration_folder, idle_nodes
from workloads.settings import Backend


@click.command(
    epilog="""\b
Examples:
  profile-models slurm --partition gpu --out profiles
  profile-models slurm resnet50 gpt2 --shapes 2x8,4x8 --background 2 --out profiles
  profile-models slurm --partition gpu --out profiles --dry-run
Account, QOS and reservation: set SLURM_ACCOUNT, SLURM_QOS, SLURM_RESERVATION, as for any srun."""
)
@measuring
@apart
@click.option("--partition", help="Partition to take idle nodes of; default: Slurm's default one.")
@click.option(
    "--cluster",
    type=click.Path(path_type=Path),
    help="Cluster file with racks and links; default: Slurm's configuration.",
)
@click.option("--gpu-type", help="GPUs to measure on, where there are several types.")
def command(
    settings: Settings,
    shapes: tuple[tuple[Spread, ...], ...],
    background: int,
    partition: str | None,
    cluster: Path | None,
    gpu_type: str | None,
) -> None:
    """Measure on a Slurm cluster: in one node, on two nodes of a rack, on nodes of two racks.

    Takes idle nodes, chosen by the topology. Measures all MODELs if none is named; `profile-models models`
    lists them. Python must be at the same path on all nodes.
    """
    topology = load_cluster(cluster or configuration_folder())
    racks = racks_of(topology, only_gpu_type(topology, gpu_type))
    addresses = {node.name: node.address for node in idle_nodes(partition)}
    spreads = spreads_for(shapes, racks)
    try:
        runs = plan_runs(spreads, only_idle(racks, addresses), settings.order(Backend.NCCL), background)
    except NoRoomError as error:
        error.hint = (
            "wait until more nodes are idle, or measure what fits now, with --shapes; --resume adds the rest"
        )
        raise
    carry_out(runs, Slurm(addresses, partition, settings.timeout_s), settings)
