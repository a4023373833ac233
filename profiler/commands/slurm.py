"""`profile-models slurm`: measure on the nodes of a Slurm cluster, by srun."""

from pathlib import Path

import click

from profiler.commands.measuring import measure_and_show
from profiler.commands.options import MeasurementSettings, apart, measuring, seconds
from profiler.driver.plan import NoRoomError, RankSpread, plan_runs, spreads_for
from profiler.driver.slurm_queue import read_partition
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
@click.option(
    "--partition", envvar="SLURM_PARTITION", help="Partition to measure in; default: Slurm's default one."
)
@click.option(
    "--cluster",
    type=click.Path(path_type=Path),
    help="Cluster file with racks and links; default: Slurm's configuration.",
)
@click.option("--gpu-type", help="GPUs to measure on, where there are several types.")
@seconds("--wait", "wait_s", 14400, "Longest that one run may queue for its nodes; the others then go on.")
def command(
    settings: MeasurementSettings,
    shapes: tuple[tuple[RankSpread, ...], ...],
    background: int,
    partition: str | None,
    cluster: Path | None,
    gpu_type: str | None,
    wait_s: float,
) -> None:
    """Measure on a Slurm cluster: in one node, on two nodes of a rack, on nodes of two racks.

    Queues for the nodes of one run after the other, idle ones first. Measures all MODELs if none is named;
    `profile-models models` lists them. Python must be at the same path on all nodes.
    """
    there = read_partition(partition, cluster, gpu_type)
    spreads = spreads_for(shapes, there.racks)
    try:
        spec = settings.spec(Backend.NCCL, there.gpu_type)
        runs = plan_runs(spreads, there.usable, spec, background)
    except NoRoomError as error:
        error.hint = (
            "nodes that are drained, down or reserved for others do not count; measure what fits now, with "
            "--shapes; --resume adds the rest"
        )
        raise
    measure_and_show(runs, there.queue(settings.timeout_s, wait_s), settings)
