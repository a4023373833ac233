"""`dally step-time`: the time of a training step under parallel plans, by phase and axis."""

import json
import re
from collections.abc import Sequence
from typing import Any

import click

from dally.errors import InputError
from dally.jobs.parallelism import Parallelism
from dally.jobs.training_plan import PRECISIONS
from dally.markdown import table
from dally.optional import import_optional
from dally.profiles.parallel.gpu_specs import GPUS, GpuSpec, gpu_spec
from dally.profiles.parallel.rank_groups import whole_machines
from dally.profiles.parallel.step_constants import StepConstants
from dally.profiles.parallel.training_step import BatchSizes, TrainingStep
from dally.profiles.parallel.transformer import MODELS, read_model
from dally.words import plural, share

_MACHINES = re.compile(r"(\d+)x(\d+)")

_EPILOG = f"""\b
Models: {", ".join(MODELS)}
GPU types: {", ".join(GPUS)}

\b
Examples:
  dally step-time --model llama3-70b --gpus h100 --batch 256 --sequence 8192 \\
      --parallel tp=4,pp=8,dp=2,vp=5,zero=1 --parallel tp=8,pp=4,dp=2,vp=5,zero=1
  dally step-time --model llama3-8b --gpus a100:4x4 --batch 64 --sequence 4096 --parallel dp=16,zero=3
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--model", required=True, help="NAME, or layers=...,hidden=...,heads=...,ffn=...,vocabulary=..."
)
@click.option(
    "--parallel",
    "plans",
    multiple=True,
    required=True,
    help="A plan such as tp=8,pp=4,dp=2; may be repeated.",
)
@click.option(
    "--gpus",
    required=True,
    help="TYPE, or TYPE:MACHINES such as h100:4x8 or h100:8+8+4; full machines if left out.",
)
@click.option("--batch", "global_batch", type=int, required=True, help="Sequences of a step, of all ranks.")
@click.option("--micro-batch", type=int, default=1, show_default=True, help="Sequences at once.")
@click.option("--sequence", type=int, required=True, help="Tokens of a sequence.")
@click.option("--precision", type=click.Choice(PRECISIONS), default="bf16", show_default=True)
@click.option(
    "--measured", multiple=True, help="PLAN@SECONDS: a step of this job that was measured; may be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    model: str,
    plans: Sequence[str],
    gpus: str,
    global_batch: int,
    micro_batch: int,
    sequence: int,
    precision: str,
    measured: Sequence[str],
    as_json: bool,
) -> None:
    """Predict the time of a training step under parallel plans, the fastest first.

    The constants are those of published steps on this GPU type, moved towards what --measured tells.
    """
    gpu_type, _, placement = gpus.partition(":")
    shape, gpu = read_model(model), gpu_spec(gpu_type)
    batch = BatchSizes(global_batch, micro_batch, sequence)

    def step(text: str) -> TrainingStep:
        plan = Parallelism.parse(text)
        return TrainingStep(shape, plan, batch, gpu, _machines(placement, plan, gpu), precision)

    steps = [step(text) for text in plans]
    known = [(step(text), seconds) for text, seconds in map(_measured, measured)]
    constants = gpu.constants
    if known:
        constants = import_optional("dally.profiles.parallel.constants_fit").fit_constants(known, constants)
    steps.sort(key=lambda each: each.seconds(constants) * each.plan.gpus)
    if as_json:
        click.echo(json.dumps([_figures(each, constants) for each in steps], indent=2))
        return
    click.echo("\n\n".join(_text(each, constants) for each in steps))


def _measured(text: str) -> tuple[str, float]:
    """The plan and the seconds of a measured step.

    Raises:
        InputError: It is not of that form.
    """
    plan, _, seconds = text.partition("@")
    try:
        return plan, float(seconds)
    except ValueError as error:
        raise InputError(f"measured: is {text!r}, must be PLAN@SECONDS such as tp=8,dp=2@1.5") from error


def _machines(text: str, plan: Parallelism, gpu: GpuSpec) -> tuple[int, ...]:
    """GPUs on each machine, from `4x8`, `8+8+4`, or nothing for full machines.

    Raises:
        InputError: It is not of that form.
    """
    if not text:
        return whole_machines(plan.gpus, gpu.domain_gpus)
    if even := _MACHINES.fullmatch(text):
        machines, each = (int(number) for number in even.groups())
        found = [each] * machines if machines <= plan.gpus else []
    else:
        parts = text.split("+")
        found = [int(part) for part in parts] if all(part.isdecimal() for part in parts) else []
    if not found or min(found) < 1 or sum(found) != plan.gpus:
        raise InputError(
            f"gpus: machines are {text!r}, must be like 4x8 or 8+8+4 and have the "
            f"{plural(plan.gpus, 'GPU')} of {plan}"
        )
    return tuple(found)


def _text(step: TrainingStep, constants: StepConstants) -> str:
    """A plan's step in words: a line, and a table of its phases."""
    seconds, groups = step.seconds(constants), step.spread.groups
    rows = []
    for phase in step.phases(constants):
        group = next((group for axis, group in groups.items() if axis.value == phase.name), None)
        where = ""
        if group is not None:
            place = f"cross {group.machines} machines" if group.crosses else "inside a machine"
            where = f"groups of {group.size}, {place}"
        rows.append([phase.name, f"{phase.seconds:.3g} s", share(phase.seconds / seconds), where])
    crossing = ", ".join(axis.value for axis in step.spread.crossing) or "nothing"
    head = (
        f"{step.plan}: {seconds:.3g} s a step on {plural(step.plan.gpus, 'GPU')}, "
        f"{_tokens_per_gpu(step, seconds):,.0f} tokens/s each; across machines: {crossing}"
    )
    return f"{head}\n\n{table(['phase', 'time', 'share', 'ranks'], rows)}"


def _figures(step: TrainingStep, constants: StepConstants) -> dict[str, Any]:
    seconds = step.seconds(constants)
    return {
        "plan": str(step.plan),
        "gpus": step.plan.gpus,
        "machines": len(step.machines),
        "step_s": seconds,
        "tokens_per_s_per_gpu": _tokens_per_gpu(step, seconds),
        "phases_s": {phase.name: phase.seconds for phase in step.phases(constants)},
        "groups": {
            axis.value: {"ranks": group.size, "machines": group.machines}
            for axis, group in step.spread.groups.items()
        },
        "crossing": [axis.value for axis in step.spread.crossing],
    }


def _tokens_per_gpu(step: TrainingStep, seconds: float) -> float:
    return step.batch.tokens / step.plan.gpus / seconds
