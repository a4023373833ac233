"""The options that all measuring commands share."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from profiler.commands import values
from profiler.spec import MeasurementSpec
from workloads.registry import WORKLOADS, find_workload
from workloads.settings import Backend, Precision

PROFILE_PRECISIONS = ("fp32", "bf16", "fp16", "fp8", "fp4")
"""In which the passes of a job of one's own may compute."""

_TERA = 1e12
_FOR_RANKS = ("repetitions", "budget_s", "warmup_s", "sweep_bytes", "allow_busy", "stall_s")
"""Options that are called as what they are in a `MeasurementSpec`."""


@dataclass(frozen=True, slots=True)
class MeasurementSettings:
    """What the user asked for, alike for all places.

    Attributes:
        out: Folder of the profiles and raw files.
        dry_run: Only print the commands.
        resume: Go on from what is stored.
        timeout_s: Longest that one run may take.
        backend: What carries the collectives; None for what the place has.
        options: What ranks measure, but for the backend and the type of GPU, which depend on the place.
    """

    out: Path
    dry_run: bool
    resume: bool
    timeout_s: float
    backend: Backend | None
    options: MeasurementSpec

    def spec(self, backend: Backend, gpu_type: str | None = None) -> MeasurementSpec:
        """What ranks measure; the place knows the backend if the user does not say, and the type of GPU."""
        return replace(self.options, backend=self.backend or backend, gpu_type=gpu_type)


Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def seconds(name: str, variable: str, default: float, what: str) -> Decorator:
    """An option of so many seconds."""
    given: dict[str, Any] = {"type": values.positive, "default": f"{default:g}", "show_default": True}
    return click.option(name, variable, metavar="SECONDS", help=what, **given)


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
    seconds("--budget", "budget_s", 10, "After which a timing ends, with 3 repetitions or more."),
    seconds(
        "--warm-up",
        "warmup_s",
        10,
        "After which a timing begins although its times have not settled; the profile says so.",
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
    seconds(
        "--stall", "stall_s", 300, "After which a run ends whose ranks get no further, as one of them hangs."
    ),
    seconds("--timeout", "timeout_s", 3600, "Longest that one run may take."),
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

naming_gpus = click.option(
    "--gpu-type",
    metavar="NAME",
    help="What Slurm calls these GPUs, such as h100; default: CUDA's name of the device.",
)
"""The option of places that do not know what Slurm calls their GPUs."""


profiles_folder = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="profiles",
    show_default=True,
    help="Folder of the profiles.",
)
"""The option of commands that add a profile to a folder or take one away."""


def measuring(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the shared options; it is called with `settings` and its own options."""

    @functools.wraps(command)
    def with_settings(
        models: tuple[str, ...],
        out: Path,
        dry_run: bool,
        resume: bool,
        timeout_s: float,
        backend: str | None,
        precision: str | None,
        local_batches: tuple[int, ...],
        emulate_tflops: float | None,
        **options: Any,
    ) -> None:
        asked = {name: options.pop(name) for name in _FOR_RANKS}
        spec = MeasurementSpec(
            models=tuple(find_workload(name).name for name in dict.fromkeys(models)) or tuple(WORKLOADS),
            backend=Backend(backend) if backend else Backend.NCCL,
            precision=Precision(precision) if precision else None,
            local_batch=local_batches[0] if local_batches else None,
            more_local_batches=local_batches[1:],
            emulated_flops=emulate_tflops * _TERA if emulate_tflops else None,
            **asked,
        )
        chosen = Backend(backend) if backend else None
        command(MeasurementSettings(out, dry_run, resume, timeout_s, chosen, spec), **options)

    return decorate(with_settings, _OPTIONS)


def apart(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of places with several hosts: `shapes` and `background`."""
    return decorate(command, _APART)


def decorate(command: Callable[..., None], options: tuple[Decorator, ...]) -> Callable[..., None]:
    """Apply options so that `--help` lists them in this order."""
    return functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)
