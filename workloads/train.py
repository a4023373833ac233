"""`dally-train`: train a model, alone, under torchrun or under srun.

Ends with 0 when all steps are done, and with 85 after a checkpoint that a signal asked for: Dally's
controller then puts the job back into the queue. torch, which takes seconds to load, comes only after the
command line is checked and signals are heard.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from dally.errors import DallyError
from dally.jobs.job import CHECKPOINTED
from dally.progress import BATCHING, told_file
from workloads.preload_client import run_preloaded
from workloads.registry import WORKLOADS
from workloads.settings import Backend, BatchRule, Elastic, Fork, Precision, Settings, TrainingJob
from workloads.stopping import StopRequest, end_at_once

_TERA = 1e12
_POLICYS = "policy"
_FILE = click.Path(dir_okay=False, path_type=Path)


def _numbers(text: str) -> tuple[float, ...]:
    """`2,1,1`: numbers with commas between, or one."""
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} must be numbers with commas between, such as 2,1,1") from None


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]}, epilog=f"Models: {', '.join(WORKLOADS)}."
)
@click.argument("model", type=click.Choice(list(WORKLOADS)), metavar="MODEL")
@click.option("--steps", type=int, required=True, help="After how many steps it is done.")
@click.option("--global-batch", type=int, required=True, help="Samples of a step, all ranks together.")
@click.option("--shares", type=_numbers, metavar="W,...", help="Weight of each rank's part of a batch.")
@click.option("--size", type=int, help="Pixels on a side, or tokens.  [default: the model's own]")
@click.option("--precision", type=click.Choice([*map(str, Precision)]), default="fp32", show_default=True)
@click.option("--backend", type=click.Choice([*map(str, Backend)]), default="nccl", show_default=True)
@click.option("--data", help="synthetic, or an .npz file of inputs and targets.", default="synthetic")
@click.option("--checkpoint", type=_FILE, help="Go on from this file if it exists, and write it.")
@click.option("--checkpoint-every", type=int, metavar="STEPS", help="Write it that often, too.")
@click.option("--log-file", type=_FILE, help="Append a JSON line for each step.")
@click.option("--progress", type=_FILE, help="Tell Dally how far it is.  [default: that of dally-sbatch]")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--emulate",
    type=_numbers,
    metavar="TFLOPS[,...]",
    help="Sleep as long as a GPU of this speed would compute; with --data, compute no faster. One for all "
    "ranks, or one for each.",
)
@click.option(
    "--pace",
    type=_numbers,
    metavar="SECONDS[,...]",
    help="A step lasts at least so long; one for all ranks, or one for each.",
)
@click.option("--forked", is_flag=True, help="Each rank trains a copy; they are averaged once in a slot.")
@click.option("--slot", type=float, default=360.0, show_default=True, help="Seconds of it, with --forked.")
@click.option(
    "--ranks-per-copy", type=int, default=1, show_default=True, help="On one machine, with --forked."
)
@click.option(
    "--elastic",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Ranks may join and leave; they meet in this folder.",
)
@click.option("--join", is_flag=True, help="Join the job that meets in --elastic's folder.")
@click.option(
    "--batch-rule",
    type=click.Choice([*map(str, BatchRule), _POLICYS]),
    default="keep",
    show_default=True,
    help="With --elastic: hold the global batch, grow it and the learning rate with the ranks, take what "
    "makes most progress, or as the policy plans for the job that dally-sbatch submitted.",
)
@click.option(
    "--asked-ranks", type=int, default=1, show_default=True, help="Of which --global-batch is, if it grows."
)
@click.option("--max-batch", type=int, help="Largest global batch, where it changes.")
@click.option("--max-lr", type=float, help="Highest learning rate, where it changes.")
@click.option("--lr-ramp", type=int, default=1, show_default=True, help="Steps to a new learning rate.")
@click.option("--judge-every", type=int, metavar="STEPS", help="Evaluate that often on samples held out.")
@click.option(
    "--join-timeout", type=float, default=300.0, show_default=True, help="Seconds to wait for ranks."
)
def main(
    model: str,
    steps: int,
    global_batch: int,
    shares: tuple[float, ...] | None,
    size: int | None,
    precision: str,
    backend: str,
    data: str,
    checkpoint: Path | None,
    checkpoint_every: int | None,
    log_file: Path | None,
    progress: Path | None,
    seed: int,
    emulate: tuple[float, ...] | None,
    pace: tuple[float, ...] | None,
    forked: bool,
    slot: float,
    ranks_per_copy: int,
    elastic: Path | None,
    join: bool,
    batch_rule: str,
    asked_ranks: int,
    max_batch: int | None,
    max_lr: float | None,
    lr_ramp: int,
    judge_every: int | None,
    join_timeout: float,
) -> None:
    """Train MODEL, from its checkpoint if there is one.

    Started by torchrun or srun, all processes train together. With --checkpoint, they write it at SIGUSR2,
    SIGUSR1 or SIGTERM and exit with 85.
    """
    if join and not elastic:
        raise click.UsageError("--join needs --elastic FOLDER: where the job's ranks meet")
    if batch_rule == _POLICYS:
        batch_rule, max_batch, asked_ranks = _planned(max_batch, asked_ranks)
    try:
        job = TrainingJob(
            model,
            steps,
            Settings(global_batch, Precision(precision), seed, size),
            Backend(backend),
            data=None if data == "synthetic" else Path(data),
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            log_file=log_file,
            join_timeout_s=join_timeout,
            shares=shares,
            emulated_flops=emulate and tuple(speed * _TERA for speed in emulate),
            pace_s=pace,
            fork=Fork(slot, ranks_per_copy) if forked else None,
            elastic=Elastic(elastic, join, BatchRule(batch_rule), max_batch, max_lr, lr_ramp, asked_ranks)
            if elastic
            else None,
            judge_every=judge_every,
            progress=progress or told_file(os.environ),
        )
        stop = StopRequest()
        if job.checkpoint or (job.elastic and job.elastic.joins):
            stop.listen()
        done = importlib.import_module("workloads.loop").run_job(job, stop)
    except DallyError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is not installed; in Dally's folder: pip install '.[training]'")
    except OSError as error:
        _fail(f"{error.filename or 'cannot write'}: {error.strerror}" if error.errno else str(error))
    sys.exit(0 if done else CHECKPOINTED)


def _planned(max_batch: int | None, asked_ranks: int) -> tuple[BatchRule, int | None, int]:
    """The batch rule by which the policy plans, with its largest batch and the ranks of the given one.

    Raises:
        UsageError: No largest batch is given: neither the policy nor this job would know how far to go.
    """
    if max_batch is None:
        raise click.UsageError("--batch-rule policy needs --max-batch: how far the policy may let it grow")
    if (planned := os.environ.get(BATCHING)) in (BatchRule.LINEAR, BatchRule.GOODPUT):
        return BatchRule(planned), max_batch, asked_ranks
    return BatchRule.KEEP, None, 1


def _fail(message: str) -> NoReturn:
    click.echo(f"dally-train: {message}", err=True)
    sys.exit(1)


def train(arguments: Sequence[str]) -> int:
    """Carry a command line out in this process; the exit code."""
    try:
        main(list(arguments), prog_name="dally-train")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def console() -> None:
    """The command `dally-train`; where this node has a preloaded process, that one carries it out."""
    code = run_preloaded(sys.argv[1:])
    end_at_once(train(sys.argv[1:]) if code is None else code)


if __name__ == "__main__":
    console()
