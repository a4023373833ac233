"""`dally queue`: the jobs that Dally knows, like squeue, with what each waits for and how long."""

import getpass
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from dally.commands.why import NETWORK
from dally.words import clean, share
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.service.cli import ask, clock, config_option, folded, json_option, lasting, understood

_SINCE = "SINCE"
_HEADS = ("JOBID", "USER", "MODEL", "GPUS", "STATE", _SINCE, "TIMER", "NODES or REASON")
_RIGHT = 3
_WIDEST = (14, 8, 10, 5, 10, 12, 15)
"""Widest that a column gets on a narrow terminal; the last one takes what is left."""

_NO_PROFILE = "*"
_SLOW = "!"
_ROOMY = 120


@click.command
@config_option
@click.option("--me", is_flag=True, help="Only my own jobs.")
@json_option
def command(config: Path | None, me: bool, as_json: bool) -> None:
    """Show the jobs that Dally schedules: their states, and what they wait for.

    TIMER says when a job will take GPUs that are farther apart (`rack 4m`: any of one rack in 4 minutes).
    """
    said = ask(config, "/queue")
    with understood():
        jobs = [job for job in said["jobs"] if not me or job["user"] == getpass.getuser()]
        shown = json.dumps(jobs, indent=2) if as_json else "\n".join(_lines(jobs, said["now_s"]))
    click.echo(shown)


def _lines(jobs: Sequence[Mapping[str, Any]], now_s: float) -> Iterator[str]:
    yield from table(jobs, now_s, shutil.get_terminal_size().columns)
    if any(job.get("assumed_slowdown") for job in jobs):
        yield f"{_NO_PROFILE} no profile (dally models): what distance costs it is assumed"
    if any(map(slower, jobs)):
        yield f"{_SLOW} slower than its placement explains (dally why JOBID)"


def slower(job: Mapping[str, Any]) -> bool:
    """Whether a job is slower than its placement explains."""
    check = (job.get("learnt") or {}).get("check")
    return bool(check and check["slower"])


def table(jobs: Sequence[Mapping[str, Any]], now_s: float, width: int, ages: bool = False) -> list[str]:
    """The lines of the table.

    Args:
        jobs: The jobs, as the controller shows them.
        now_s: Its time, seconds since 1970.
        width: Characters in a line.
        ages: Whether it tells for how long a job has been in its state, and not since when.
    """
    heads = tuple("FOR" if ages and head == _SINCE else head for head in _HEADS)
    rows = [heads, *(_cells(job, now_s, ages) for job in jobs)]
    widths = [
        min(max(len(row[column]) for row in rows), 99 if width >= _ROOMY else widest)
        for column, widest in enumerate(_WIDEST)
    ]
    rest = max(len(_HEADS[-1]), width - sum(widths) - len(widths))
    lines = []
    for row in rows:
        cells = []
        for column, (cell, room) in enumerate(zip(row, (*widths, rest), strict=True)):
            fit = cell if len(cell) <= room else f"{cell[: room - 1]}+"
            cells.append(fit.rjust(room) if column == _RIGHT else fit.ljust(room))
        lines.append(clean(" ".join(cells)).rstrip())
    return lines


def _cells(job: Mapping[str, Any], now_s: float, ages: bool) -> tuple[str, ...]:
    running = job["state"] in (JobPhase.RUNNING, JobPhase.STARTING) and job["nodes"]
    return (
        job["job"],
        job["user"],
        f"{_NO_PROFILE if job.get('assumed_slowdown') else ''}{job['model']}{_SLOW if slower(job) else ''}"
        or "-",
        str(job["gpus"] or "-"),
        job["state"],
        lasting(now_s - job["since_s"]) if ages else clock(job["since_s"]),
        timer(job, now_s),
        folded(job["nodes"]) if running else job["reason"],
    )


def timer(job: Mapping[str, Any], now_s: float) -> str:
    """What comes next for a job by itself, and in how long, or how far it is; `-` if there is nothing."""
    until_s = job["until_s"]
    done = (job.get("progress") or {}).get("done")
    if job["state"] == JobPhase.RUNNING and done is not None:
        return f"{share(done)} done"
    what = {
        JobPhase.PENDING: "any GPUs" if job["next_level"] == NETWORK else job["next_level"],
        JobPhase.INELIGIBLE: "again",
        JobPhase.STOPPING: "stop",
    }.get(job["state"])
    if not what or until_s is None:
        return "-"
    return f"{what} {lasting(until_s - now_s)}" if until_s > now_s else f"{what} now"
