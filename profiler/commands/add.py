"""`profile-models add`: a profile out of step times that the user types in, or that were recorded."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click

from dally.cluster import load_cluster
from dally.errors import InputError
from dally.profiles.files import add_profile
from dally.profiles.given import StepTime, given_profile
from dally.profiles.schema import TIERS, PointShape, Timing
from profiler.commands import values
from profiler.commands.options import PROFILE_PRECISIONS, profiles_folder
from profiler.driver.publish import print_tables
from profiler.recorded.record import read_run
from profiler.recorded.recorded_profile import RecordedJob, recorded_profile

_MACHINE = TIERS[0]
_Command = Callable[..., None]


def _level(tier: str, where: str) -> Callable[[_Command], _Command]:
    return click.option(
        f"--{tier}",
        multiple=True,
        type=values.step_time,
        metavar="[MACHINESxGPUS=]SECONDS",
        help=f"Of a step with all GPUs {where}.",
    )


@click.command(
    epilog="""\b
Examples:
  profile-models add my-llm --machine 1.05 --rack 1.30 --network 2.60 --gpus 16
  profile-models add my-llm --machine 1x1=0.9 --machine 1x8=1.05 --rack 2x8=1.3 --network 2x8=2.6
  profile-models add my-llm --rack 1 --network 2 --gpus 16      # slowdowns
  profile-models add my-llm --recorded records/$USER/17 --cluster /etc/slurm"""
)
@click.argument("name")
@_level("machine", "in one machine")
@_level("rack", "on machines of one rack")
@_level("network", "in several racks")
@click.option(
    "--gpus", type=click.IntRange(min=2), help="Of the job, where a time does not say how they lay."
)
@click.option(
    "--recorded",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Records of a job that dally-sbatch --learn left: they tell what a step sends, and where it ran.",
)
@click.option("--cluster", help="Of recorded jobs: cluster file, folder of Slurm's files, or a shipped one.")
@click.option("--local-batch", type=click.IntRange(min=1), help="Samples of a GPU in a recorded step.")
@click.option(
    "--precision",
    type=click.Choice(PROFILE_PRECISIONS),
    help="In which recorded jobs compute.",
)
@click.option("--gpu-type", metavar="TYPE", help="What Slurm calls the GPUs, such as h100; default: any.")
@profiles_folder
def command(
    name: str,
    gpus: int | None,
    recorded: tuple[Path, ...],
    cluster: str | None,
    local_batch: int | None,
    precision: str | None,
    gpu_type: str | None,
    out: Path,
    **seconds: tuple[tuple[PointShape | None, float], ...],
) -> None:
    """Make a profile of the model NAME from step times that you measured, with any framework, or recorded.

    A step is one iteration of the training, by the stopwatch or the training's own log, the same global batch
    everywhere. GPUs lie in one machine, in a rack or in the network on two machines with half of them each,
    unless a time says on how many machines, and how many on each. Slowdowns do in place of seconds where all
    jobs have GPUs of one type.
    """
    times = [
        _step_time(tier, shape, step_s, gpus) for tier in TIERS for shape, step_s in seconds.get(tier, ())
    ]
    if bool(recorded) != bool(cluster):
        raise InputError("--recorded and --cluster belong together: records name hosts, the cluster has them")
    if (local_batch or precision) and not cluster:
        raise InputError("--local-batch and --precision are of recorded jobs: add --recorded and --cluster")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if cluster:
        runs, topology = [read_run(folder) for folder in recorded], load_cluster(cluster)
        job = RecordedJob(name, gpu_type, local_batch, precision)
        source = f"recorded in {', '.join(map(str, recorded))}, with profile-models add"
        profile = recorded_profile(job, runs, topology, times, source, now)
    elif len(times) < 2:
        raise InputError("step times at two places or more are needed, such as --machine 1.05 --rack 1.3")
    else:
        profile = given_profile(name, times, "typed in, with profile-models add", now, gpu_type)
    path = add_profile(profile, out)
    print_tables([profile])
    click.echo(f"profile: {path}")


def _step_time(tier: str, shape: PointShape | None, step_s: float, gpus: int | None) -> StepTime:
    option = f"--{tier} {step_s:g}"
    if shape is None:
        machines = 1 if tier == _MACHINE else 2
        if gpus is None:
            raise InputError(
                f"{option} does not say on how many GPUs; add --gpus, or write {machines}x4=SECONDS"
            )
        if gpus % machines:
            raise InputError(
                f"{gpus} GPUs are not {machines} equal halves; write how they lay, {gpus}x1={step_s:g}"
            )
        shape = PointShape(machines, gpus // machines, None)
    if (shape.nodes == 1) != (tier == _MACHINE):
        lies = f"{shape.nodes}x{shape.gpus_per_node}"
        raise InputError(f"{option} is of {lies}: --machine takes 1 machine, others 2 or more")
    return StepTime(tier, shape, Timing(step_s, None, None, None))
