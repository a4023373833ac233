"""The options that all measuring commands share, and what these commands do once they know their runs."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from profiler.commands import values
from profiler.spec import MeasurementSpec
from workloads.registry import WORKLOADS, find_workload
from workloads.settings import Backend, Precision

_TERA = 1e12


@dataclass(frozen=True, slots=True)
class MeasurementSettings:
    """What the user asked for, alike for all places.

    Attributes:
        models: What is measured.
        out: Folder of the profiles and raw files.
        dry_run: Only print the commands.
        resume: Go on from what is stored.
        backend: What carries the collectives; None for what the place has.
        precision: What is computed in; None for bf16 where the GPU has it, else fp32.
        local_batches: Samples per rank, and other batches whose compute is timed too; empty for each model's
            own, and half of it.
        emulated_flops: Speed of the pretended GPU; None to compute for real.
        repetitions: Most repetitions of each timing.
        budget_s: When a timing stops early.
        warmup_s: When a timing begins although nothing has settled.
        sweep_bytes: Sizes of the all-reduce sweep.
        allow_busy: Measure on a busy machine too.
        stall_s: Longest that a rank may get no further.
        timeout_s: Longest that one run may take.
    """

    models: tuple[str, ...]
    out: Path
    dry_run: bool
    resume: bool
    backend: Backend | None
    precision: Precision | None
    local_batches: tuple[int, ...]
    emulated_flops: float | None
    repetitions: int
    budget_s: float
    warmup_s: float
    sweep_bytes: tuple[int, ...]
    allow_busy: bool
    stall_s: float
    timeout_s: float

    def spec(self, backend: Backend, gpu_type: str | None = None) -> MeasurementSpec:
        """What ranks are asked; the place knows the backend if the user does not say, and the type of GPU."""
        return MeasurementSpec(
            models=self.models,
            backend=self.backend or backend,
            precision=self.precision,
            local_batch=self.local_batches[0] if self.local_batches else None,
            more_local_batches=self.local_batches[1:],
            emulated_flops=self.emulated_flops,
            sweep_bytes=self.sweep_bytes,
            repetitions=self.repetitions,
            budget_s=self.budget_s,
            warmup_s=self.warmup_s,
            allow_busy=self.allow_busy,
            stall_s=self.stall_s,
            gpu_type=gpu_type,
        )


_OPTIONS = (
    click.argument("models", nargs=-1, metavar="[MODEL]..."),
    click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        required=True,
        help="Folder of the profiles.",
    ),
    click.option("--dry-run", is_flag=True, help="Print the commands to run, touch nothing."),
    click.option("--resume", is_flag=True, help="Go on from what --out holds; adds models not yet measured."),
    click.option(
        "--backend",
        type=click.Choice([str(item) for item in Backend]),
        help="Default: nccl where GPUs are, else gloo.",
    ),
    click.option(
        "--precision",
        type=click.Choice([str(item) for item in Precision]),
        help="What is computed in; default: bf16 where the GPU has it, else fp32.",
    ),
    click.option(
        "--local-batch",
        "local_batches",
        type=values.batches,
        default="",
        metavar="N[,N...]",
        help="Samples per rank, and others whose compute is timed besides; default: each model's own, half.",
    ),
    click.option(
        "--emulate",
        "emulate_tflops",
        type=values.positive,
        metavar="TFLOPS",
        help="Pretend a GPU of this speed: compute is slept, communication is real.",
    ),
    click.option(
        "--repetitions",
        type=click.IntRange(min=3),
        default=30,
        show_default=True,
        help="Most repetitions of each timing.",
    ),
    click.option(
        "--budget",
        "budget_s",
        type=values.positive,
        default="10",
        show_default=True,
        metavar="SECONDS",
        help="After which a timing ends, with 3 repetitions or more.",
    ),
    click.option(
        "--warm-up",
        "warmup_s",
        type=values.positive,
        default="10",
        show_default=True,
        metavar="SECONDS",
        help="After which a timing begins although its times have not settled; the profile says so.",
    ),
    click.option(
        "--sweep",
        "sweep_bytes",
        type=values.sweep,
        default="4K:256M",
        show_default=True,
        metavar="MIN:MAX",
        help="Sizes of all-reduces, besides those of the models' buckets.",
    ),
    click.option(
        "--allow-busy",
        is_flag=True,
        help="Measure on a machine that others keep busy too; the profile says so.",
    ),
    click.option(
        "--stall",
        "stall_s",
        type=values.positive,
        default="300",
        show_default=True,
        metavar="SECONDS",
        help="After which a run ends whose ranks get no further, as one of them hangs.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=values.positive,
        default="3600",
        show_default=True,
        metavar="SECONDS",
        help="Longest that one run may take.",
    ),
)

_APART = (
    click.option(
        "--shapes",
        type=values.shapes,
        default="",
        metavar="[TIER-]HOSTSxRANKS,...",
        help="Shapes to measure instead of the usual ones, such as 2x1,rack-4x1.",
    ),
    click.option(
        "--background",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        metavar="FLOWS",
        help="Measure between hosts once more under so many foreign flows each way.",
    ),
)


_NAMING_GPUS = (
    click.option(
        "--gpu-type",
        metavar="NAME",
        help="What Slurm calls these GPUs, such as h100; default: CUDA's name of the device.",
    ),
)


def measuring(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the shared options; it is called with `settings` and its own options."""

    @functools.wraps(command)
    def with_settings(
        models: tuple[str, ...],
        backend: str | None,
        precision: str | None,
        emulate_tflops: float | None,
        **options: Any,
    ) -> None:
        own = {
            name: options.pop(name) for name in tuple(options) if name not in MeasurementSettings.__slots__
        }
        settings = MeasurementSettings(
            models=tuple(find_workload(name).name for name in dict.fromkeys(models)) or tuple(WORKLOADS),
            backend=Backend(backend) if backend else None,
            precision=Precision(precision) if precision else None,
            emulated_flops=emulate_tflops * _TERA if emulate_tflops else None,
            **options,
        )
        command(settings, **own)

    return _decorate(with_settings, _OPTIONS)


def naming_gpus(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option of places that do not know what Slurm calls their GPUs: `gpu_type`."""
    return _decorate(command, _NAMING_GPUS)


def apart(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of places with several hosts: `shapes` and `background`."""
    return _decorate(command, _APART)


def _decorate(
    command: Callable[..., None], options: tuple[Callable[[Callable[..., None]], Callable[..., None]], ...]
) -> Callable[..., None]:
    """Apply options so that `--help` lists them in this order."""
    return functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)
