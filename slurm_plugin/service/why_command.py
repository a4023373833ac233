"""`dally why`: what became of one job and why, asked of the live controller or read from a run folder."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from dally.commands.why import NETWORK, event_text, tell_run, within
from dally.errors import InputError
from dally.profiles.learnt_costs import percent
from dally.words import clean, plural, share
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.service.cli import ask, clock, config_option, folded, lasting, understood

_JOB = re.compile(r"\d{1,10}(_\d{1,10})?", re.ASCII)
_SAME_ROOM = 14


@click.command(
    epilog="\b\nExamples:\n  dally why 17\n  dally why 17_3                  a task of an array\n"
    "  dally why job-17 --run runs/batch/dally"
)
@click.argument("job")
@click.option("--run", "folder", type=click.Path(path_type=Path), help="Run folder of one policy.")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON; of a run, the job's events as lines.")
def command(job: str, folder: Path | None, config: Path | None, as_json: bool) -> None:
    """Tell the life of a job: what it waits for, which timer, where it ran, who took its GPUs.

    With --run a job of a simulation, else a job of the live controller.
    """
    if folder is not None:
        tell_run(job, folder, as_json)
        return
    if not _JOB.fullmatch(job):
        raise InputError(
            f"job {job!r} is no number of a Slurm job, like 17 or 17_3; for a simulation's, give --run"
        )
    said = ask(config, f"/why/{job}")
    with understood():
        shown = json.dumps(said, indent=2) if as_json else "\n".join(map(clean, story(job, said)))
    click.echo(shown)


def story(job: str, said: Mapping[str, Any]) -> Iterator[str]:
    """What is to be said of a job, line by line."""
    if said["job"] is None:
        yield f"{job}: has left; Dally does not look after it any more"
    else:
        yield from headline(said["job"], said["now_s"])
    for event in said["events"]:
        yield f"{clock(event['t']):>{_SAME_ROOM}}  {event_text(event, job, clock)}"


_PHASE_WORDS = {
    JobPhase.INELIGIBLE: "cannot be placed yet,",
    JobPhase.PENDING: "waits for GPUs",
    JobPhase.STARTING: "is being started",
    JobPhase.RUNNING: "runs",
    JobPhase.STOPPING: "is being stopped",
    JobPhase.RELEASED: "is Slurm's own to schedule",
}
_NEXT = {
    JobPhase.INELIGIBLE: "will be tried again at",
    JobPhase.STARTING: "goes back to waiting if it does not run by",
    JobPhase.STOPPING: "is requeued at the latest at",
    JobPhase.RUNNING: "is asked for its checkpoint, as its time limit comes too early, at",
}
"""What comes by itself at `until_s`."""


def headline(job: Mapping[str, Any], now_s: float) -> Iterator[str]:
    """Where a job is now: what it asks for, since when, what it waits for and what comes next."""
    model = f", model {job['model']}" if job["model"] else ""
    asked = f" asks for {plural(job['gpus'], 'GPU')}{model}," if job["gpus"] else ""
    since = f"since {clock(job['since_s'])} ({lasting(now_s - job['since_s'])})"
    phase = JobPhase(job["state"])
    where = f" on {folded(job['nodes'])}" if job["nodes"] and phase is not JobPhase.INELIGIBLE else ""
    yield f"{job['job']} of {job['user']}:{asked} {_PHASE_WORDS[phase]}{where} {since}"
    if job["reason"] and phase is not JobPhase.RUNNING:
        yield f"  {job['reason']}"
    comes, until_s = _NEXT.get(phase, ""), job["until_s"]
    if phase is JobPhase.PENDING and (level := job["next_level"]):
        comes = f"takes {'any GPUs' if level == NETWORK else f'GPUs of one {level}, too,'} from"
    if comes and until_s is not None:
        ahead = f" (in {lasting(until_s - now_s)})" if until_s > now_s else ""
        yield f"  {comes} {clock(until_s)}{ahead}"
    if job["refusals"]:
        yield f"  {plural(job['refusals'], 'start')} in a row failed"
    if plan := job.get("plan"):
        yield f"  {plan}"
    if assumed := job.get("assumed_slowdown"):
        missing = "it names no model, so it has no profile"
        if job["model"]:
            missing = f"no profile of {job['model']}"
        costs = f": each level farther apart than need be is assumed to make it {assumed:g} x slower"
        if job["gpus"] == 1:
            costs = ""
        elif assumed == 1:
            costs = ": distance is assumed to cost it nothing"
        yield f"  {missing}{costs}"
    if learnt := job.get("learnt"):
        yield from (f"  {line}" for line in _learnt(learnt))
    if progress := job.get("progress"):
        yield from (f"  {line}" for line in _reported(progress))


def _learnt(learnt: Mapping[str, Any]) -> Iterator[str]:
    """What is believed of a job's costs, from what, and how sure; and how fast its own steps are."""
    yield from (belief_words(belief, learnt["basis"]) for belief in learnt["beliefs"])
    if not learnt["beliefs"] and learnt["basis"] != "no profile":
        sure = percent(learnt["waiting_sigma"])
        yield f"no step times yet: its {learnt['basis']} tells what the network costs it, give or take {sure}"
    if check := learnt["check"]:
        slower = "slower than its placement explains: " if check["slower"] else ""
        yield f"{slower}{check['words']}"


def belief_words(belief: Mapping[str, Any], basis: str) -> str:
    """A belief in a line: its factors, each with how sure it is, and on what it rests."""
    kind = f" on {belief['gpu_type']}" if belief["gpu_type"] else ""
    rests = f"{plural(belief['runs'], 'run')} of {plural(belief['jobs'], 'job')}"
    waiting = ", ".join(
        f"{within(level)} {factor_words(each['factor'], each['sigma'])}"
        for level, each in belief["waiting"].items()
    )
    pace = "" if basis == "no profile" else f"computes {factor_words(belief['pace'], belief['pace_sigma'])}, "
    return f"{belief['model']}{kind}: {basis}, corrected by {rests}: {pace}waits for the network {waiting}"


def factor_words(factor: float, sigma: float) -> str:
    """A factor on what was predicted, and how sure it is."""
    return f"x {factor:.2f} (± {percent(sigma)})"


def _reported(progress: Mapping[str, Any]) -> Iterator[str]:
    """What a job has reported, and how fast it was on each size."""
    if "samples" not in progress:
        yield f"reports in {progress['file']}, and has not yet"
        return
    parts = [f"{progress['samples']:,.0f} samples"]
    if progress["total"]:
        parts = [
            f"{progress['samples']:,.0f} of {progress['total']:,.0f} samples ({share(progress['done'])})"
        ]
    if progress["epoch"]:
        parts.append(f"{progress['samples'] / progress['epoch']:.1f} epochs")
    if progress["batch"]:
        parts.append(f"batches of {progress['batch']:,.0f}")
    if progress["loss"] is not None:
        parts.append(f"loss {progress['loss']:.4g}")
    if progress["noise"]:
        parts.append(f"gradient noise {progress['noise']:,.0f}")
    if not progress["samples"] and progress.get("step_s"):
        yield f"reported at {clock(progress['heard_s'])}: steps of {progress['step_s']:.3g} s"
        return
    yield f"reported at {clock(progress['heard_s'])}: {', '.join(parts)}"
    rates = []
    for measured in progress["throughputs"]:
        kind = f" {measured['gpu_types']}" if measured["gpu_types"] else ""
        batch = f" in batches of {measured['batch']:,.0f}" if measured["batch"] else ""
        rates.append(f"{measured['rate']:,.0f} on {measured['gpus']}{kind}{batch}")
    if rates:
        yield f"samples a second: {', '.join(rates)}"
