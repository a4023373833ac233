"""`profile-models here`: measure on this machine."""

import socket

import click

from dally.errors import InputError
from profiler.commands.measuring import measure_and_show
from profiler.commands.options import MeasurementSettings, measuring, naming_gpus
from profiler.driver.plan import PlannedHost, PlannedRack, RankSpread, plan_runs
from profiler.launch.here import Here, count_gpus
from workloads.settings import Backend

_RANKS_ON_CPUS = 2


@click.command(
    epilog="""\b
Examples:
  profile-models here --out profiles
  profile-models here resnet50 gpt2 --gpu-type h100 --out profiles
  profile-models here mobilenetv3 --emulate 30 --out profiles      # without a GPU"""
)
@measuring
@naming_gpus
@click.option(
    "--ranks", type=click.IntRange(min=1), help="Most ranks; default: one for each GPU, 2 without GPUs."
)
def command(settings: MeasurementSettings, gpu_type: str | None, ranks: int | None) -> None:
    """Measure on this machine: one rank, then 2, 4 and so on up to all GPUs.

    Measures all MODELs if none is named; `profile-models models` lists them.
    """
    gpus = count_gpus()
    spec = settings.spec(Backend.NCCL if gpus else Backend.GLOO, gpu_type)
    most = ranks or (gpus if spec.backend is Backend.NCCL else _RANKS_ON_CPUS)
    if spec.backend is Backend.NCCL and not 1 <= most <= gpus:
        raise InputError(
            f"{max(most, 1)} ranks need as many GPUs, this machine has {gpus}; use --backend gloo"
        )
    racks = (PlannedRack((PlannedHost(socket.gethostname(), most),)),)
    spreads = [RankSpread("machine", 1, count) for count in doubled_up_to(most)]
    measure_and_show(plan_runs(spreads, racks, spec), Here(most), settings)


def doubled_up_to(most: int) -> tuple[int, ...]:
    """1, 2, 4 and so on, and last of all this number itself."""
    powers = (2**exponent for exponent in range(most.bit_length()))
    return tuple(dict.fromkeys((*powers, most)))
