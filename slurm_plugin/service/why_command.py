"""`dally why`: what became of one job and why, asked of the live controller or read from a run folder."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from dally.commands.why import NETWORK, event_text, tell_run
from dally.errors import InputError
from dally.words import plural
from slurm_plugin.controller.tickets import Standing
from slurm_plugin.service.live import ask, clean, clock, config_option, folded, lasting

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
    if as_json:
        click.echo(json.dumps(said, indent=2))
        return
    for line in story(job, said):
        click.echo(clean(line))


def story(job: str, said: Mapping[str, Any]) -> Iterator[str]:
    """What is to be said of a job, line by line."""
    if said["job"] is None:
        yield f"{job}: has left; Dally does not look after it any more"
    else:
        yield from headline(said["job"], said["now_s"])
    for event in said["events"]:
        yield f"{clock(event['t']):>{_SAME_ROOM}}  {event_text(event, job, clock)}"


def headline(job: Mapping[str, Any], now_s: float) -> Iterator[str]:
    """Where a job stands now: what it asks for, since when, what it waits for and what comes next."""
    model = f", model {job['model']}" if job["model"] else ""
    asked = f" asks for {plural(job['gpus'], 'GPU')}{model}," if job["gpus"] else ""
    since = f"since {clock(job['since_s'])} ({lasting(now_s - job['since_s'])})"
    standing = Standing(job["standing"])
    where = f" on {folded(job['nodes'])}" if job["nodes"] and standing is not Standing.ASIDE else ""
    yield f"{job['job']} of {job['user']}:{asked} {_STANDS[standing]}{where} {since}"
    if job["why"] and standing is not Standing.RUNNING:
        yield f"  {job['why']}"
    if comes := _next(job, now_s):
        yield f"  {comes}"
    if job["refusals"]:
        yield f"  {plural(job['refusals'], 'start')} in a row came to nothing"
    if assumed := job.get("assumed_slowdown"):
        yield f"  {_without_profile(job, assumed)}"
    if progress := job.get("progress"):
        yield from (f"  {line}" for line in _reported(progress))


def _reported(progress: Mapping[str, Any]) -> Iterator[str]:
    """What a job has reported, and how fast it was on each size."""
    if "samples" not in progress:
        yield f"reports in {progress['file']}, and has not yet"
        return
    parts = [f"{progress['samples']:,.0f} samples"]
    if progress["total"]:
        parts = [f"{progress['samples']:,.0f} of {progress['total']:,.0f} samples ({progress['done']:.0%})"]
    if progress["epoch"]:
        parts.append(f"{progress['samples'] / progress['epoch']:.1f} epochs")
    if progress["batch"]:
        parts.append(f"batches of {progress['batch']:,.0f}")
    if progress["loss"] is not None:
        parts.append(f"loss {progress['loss']:.4g}")
    if progress["noise"]:
        parts.append(f"gradient noise {progress['noise']:,.0f}")
    yield f"reported at {clock(progress['heard_s'])}: {', '.join(parts)}"
    if progress["throughputs"]:
        yield f"samples a second: {', '.join(map(_throughput, progress['throughputs']))}"


def _throughput(measured: Mapping[str, Any]) -> str:
    kind = f" {measured['gpu_types']}" if measured["gpu_types"] else ""
    batch = f" in batches of {measured['batch']:,.0f}" if measured["batch"] else ""
    return f"{measured['rate']:,.0f} on {measured['gpus']}{kind}{batch}"


def _without_profile(job: Mapping[str, Any], assumed: float) -> str:
    """That a job has no profile, and of a gang what is assumed in its place."""
    missing = f"no profile of {job['model']}" if job["model"] else "it names no model, so it has no profile"
    if job["gpus"] == 1:
        return missing
    if assumed == 1:
        return f"{missing}: distance is assumed to cost it nothing"
    return f"{missing}: each level farther apart than need be is assumed to make it {assumed:g} x slower"


_STANDS = {
    Standing.ASIDE: "cannot be placed yet,",
    Standing.WAITING: "waits for GPUs",
    Standing.STARTING: "is being started",
    Standing.RUNNING: "runs",
    Standing.STOPPING: "is being stopped",
    Standing.LEFT: "is Slurm's own to schedule",
}


def _farther(level: str) -> str:
    return "any GPUs" if level == NETWORK else f"GPUs of one {level}, too,"


def _next(job: Mapping[str, Any], now_s: float) -> str:
    """What comes by itself, and when; empty if nothing does."""
    words = {
        Standing.WAITING: f"takes {_farther(job['next_level'])} from" if job["next_level"] else "",
        Standing.ASIDE: "will be tried again at",
        Standing.STARTING: "goes back to waiting if it does not run by",
        Standing.STOPPING: "is put back at the latest at",
        Standing.RUNNING: "is asked for its checkpoint, as its time limit comes too early, at",
    }.get(Standing(job["standing"]), "")
    if not words or job["until_s"] is None:
        return ""
    ahead = f" (in {lasting(job['until_s'] - now_s)})" if job["until_s"] > now_s else ""
    return f"{words} {clock(job['until_s'])}{ahead}"
