"""A job that computes is asked for its checkpoint, ends and goes on: by a signal, and by the controller."""

import csv
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from profiler.gpu_validation.checks import CheckFolder
from profiler.gpu_validation.commands import StepError, last_line, run_command, start_command, wait_for

_CHECKPOINTED = 85
"""Exit status of a training that wrote its checkpoint at a signal."""

_STEPS, _ASKED_AT = 60, 12
_SLOWEST_S = 0.1
"""A step lasts at least so long, so that the signal comes before the end."""

_SAME = 0.01
"""Losses of the same step are alike to this fraction: the GPU adds up in another order each time."""

_LOOK_S = 0.05


def checkpoint_and_resume(work: CheckFolder, model: str = "resnet18", backend: str = "nccl") -> str:
    """Train to the end; then again, with a signal on the way, and go on: the steps and losses are the same.

    Raises:
        StepError: It ended otherwise, or went on from elsewhere.
    """
    until_s = time.monotonic() + work.limit_s
    folder = work.folder / "checkpoint"
    folder.mkdir(parents=True)
    whole, parts = folder / "whole.jsonl", folder / "parts.jsonl"
    run_command(_train(model, backend, whole), work.log("train-whole"), until_s - time.monotonic())
    asked = _train(model, backend, parts, f"--checkpoint={folder / 'job.pt'}", f"--pace={_SLOWEST_S}")
    log = work.log("train-parts")
    with start_command(asked, log) as process:
        while len(_losses(parts)) < _ASKED_AT:
            if process.poll() is not None:
                raise StepError(f"ended with {process.returncode} before the signal: {last_line(log)}")
            if time.monotonic() > until_s:
                wait_for(process, 0.0)
                raise StepError(f"took no {_ASKED_AT} steps in its time; see {log}")
            time.sleep(_LOOK_S)
        process.send_signal(signal.SIGUSR1)
        code = wait_for(process, until_s - time.monotonic())
    if code != _CHECKPOINTED:
        raise StepError(f"after the signal it ended with {code}, must be {_CHECKPOINTED}: {last_line(log)}")
    stopped = len(_losses(parts))
    run_command(asked, log, until_s - time.monotonic())
    return compare_losses(_losses(whole), _losses(parts), stopped)


def compare_losses(whole: Sequence[float], parts: Sequence[float], stopped: int) -> str:
    """Whether a training that was stopped after so many steps went on as if it had not been.

    Args:
        whole: Loss of each step of one that was not stopped.
        parts: Of the one that was.
        stopped: Its steps before the stop.

    Raises:
        StepError: It has other steps, or the first loss after the stop is another.
    """
    if not 0 < stopped < len(parts):
        raise StepError(f"it was stopped after {stopped} steps of {len(parts)}, and did not go on")
    if len(parts) != len(whole):
        raise StepError(f"it took {len(parts)} steps in all, must be {len(whole)}")
    apart = abs(parts[stopped] / whole[stopped] - 1)
    if apart > _SAME:
        raise StepError(
            f"step {stopped + 1}, the first after the checkpoint, has loss {parts[stopped]:.5g}; "
            f"without a stop it is {whole[stopped]:.5g}"
        )
    return f"stopped after step {stopped} of {len(whole)}, went on with a loss {apart:.2g} apart"


def controller_preempts(work: CheckFolder, gpu_type: str, model: str = "resnet18") -> str:
    """The controller takes the GPU of a long job for a short one, on a real Slurm, and gives it back.

    Both train on the GPU; the profiles are those measured before.

    Raises:
        StepError: A job was lost, or none was preempted.
    """
    jobs = work.folder / "two-jobs.csv"
    jobs.write_text(
        "job_id,submit_s,gpus,duration_s,user,group,model,status,time_limit_s\n"
        f"long,0,1,20,,,{model},,1200\nshort,8,1,3,,,{model},,60\n"
    )
    out = work.folder / "controller"
    cluster = ("--racks=1", "--gpus=1", f"--gpu-types={gpu_type}")
    policy = ("--policy=srtf", f"--workload={jobs}", f"--profiles={work.folder / 'profiles'}")
    limit = f"--timeout-s={work.limit_s * 0.7:.0f}"
    argv = (sys.executable, "-m", "dally", "testbed", "run", *cluster, *policy, limit, f"--out={out}")
    run_command(argv, work.log("controller"), work.limit_s)
    return judge_jobs(next(out.glob("*/jobs.csv"), out / "jobs.csv"))


def judge_jobs(path: Path) -> str:
    """Whether all jobs of a run were completed, and one was preempted on the way.

    Raises:
        StepError: Not so.
    """
    if not path.exists():
        raise StepError("the run left no jobs.csv")
    with path.open(newline="") as file:
        rows = {row["job_id"]: row for row in csv.DictReader(file)}
    lost = [name for name, row in rows.items() if row["status"] != "COMPLETED"]
    if lost or not rows:
        raise StepError(f"not completed: {', '.join(lost) or 'there was no job'}")
    preempted = {name: row["preemptions"] for name, row in rows.items() if int(row["preemptions"])}
    if not preempted:
        raise StepError("no job was preempted")
    return (
        f"{len(rows)} jobs completed; preempted: {', '.join(f'{name} {n}x' for name, n in preempted.items())}"
    )


def _train(model: str, backend: str, log_file: Path, *more: str) -> tuple[str, ...]:
    fixed = ("--global-batch=16", f"--steps={_STEPS}", "--seed=1", "--precision=fp32")
    program = (sys.executable, "-m", "workloads.train", model)
    return (*program, *fixed, f"--backend={backend}", f"--log-file={log_file}", *more)


def _losses(log_file: Path) -> list[float]:
    """The loss of each step, in order; a step that was done again counts once."""
    if not log_file.exists():
        return []
    whole = [line for line in log_file.read_text().splitlines(keepends=True) if line.endswith("\n")]
    lines = [json.loads(line) for line in whole]
    losses = {line["step"]: line["loss"] for line in lines if "step" in line}
    return [losses[step] for step in sorted(losses)]
