"""`dally why`: the life of one job of a run, in words."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from dally.errors import InputError
from dally.records import JobRecord, read_events, read_jobs, read_run

Event = Mapping[str, Any]

_MOST_MACHINES = 4


@click.command(epilog="\b\nExample:\n  dally why job-17 --run runs/batch/dally-paper")
@click.argument("job")
@click.option(
    "--run", "folder", type=click.Path(path_type=Path), required=True, help="Run folder of one policy."
)
@click.option("--json", "as_json", is_flag=True, help="Print the job's events as JSON lines.")
def command(job: str, folder: Path, as_json: bool) -> None:
    """Tell the life of a job: what it waited for, which timer, where it ran, who took its GPUs."""
    facts = read_run(folder)
    records = {record.job_id: record for record in read_jobs(folder)}
    if job not in records:
        near = get_close_matches(job, records, n=3) or list(records)[:3]
        raise InputError(f"run {folder} has no job {job!r}; there are {', '.join(near)}, ...")
    events = [event for event in read_events(folder) if concerns(event, job)]
    if as_json:
        for event in events:
            click.echo(json.dumps(event))
        return
    click.echo(headline(records[job], facts["policy"]["spec"]))
    for event in events:
        click.echo(f"{event['t']:>12,.0f} s  {told(event, job)}")


def concerns(event: Event, job: str) -> bool:
    """Whether an event is about the job, or about it taking another's GPUs."""
    return event.get("job") == job or job in event.get("by", ())


def headline(record: JobRecord, policy: str) -> str:
    """A job's life in one line."""
    model = f", {record.model}" if record.model else ""
    if record.end_s is None:
        life = f"{record.status.lower()}; so far"
    else:
        times = record.jct_s / record.ideal_s
        life = f"{record.status.lower()} after {record.jct_s:,.0f} s ({times:.2f} x ideal):"
    return (
        f"{record.job_id}: {record.gpus} GPU{'s' * (record.gpus > 1)}{model}, under {policy}: {life} "
        f"waited {record.queue_s:,.0f} s, ran {record.run_s:,.0f} s, "
        f"of that {record.comm_s:,.0f} s for the network; preempted {record.preemptions} times"
    )


def told(event: Event, job: str) -> str:
    """One event in words."""
    if event.get("job") != job:
        return f"took GPUs of {event['job']}: {event['reason']}"
    match event["event"]:
        case "submit":
            return f"submitted, asks for {event['gpus']} GPU{'s' * (event['gpus'] > 1)}"
        case "wait":
            return f"waits for one {event['level']}{_until(event['until'])}: {event['reason']}"
        case "start":
            return f"starts on {_placed(event)}: {event['reason']}"
        case "migrate":
            return f"moves to {_placed(event)}: {event['reason']}"
        case "preempt":
            return f"loses its GPUs to {', '.join(event['by']) or 'nobody'}: {event['reason']}"
        case "fail":
            return f"a machine failed under it; {event['lost_s']:,.0f} s of work are lost"
        case "end":
            return f"ends, {event['status'].lower()}"
        case other:
            return str(other)


def _until(until: float | None) -> str:
    return "" if until is None else f" until {until:,.0f} s"


def _placed(event: Event) -> str:
    """GPUs by machine, their level, and what the placement costs."""
    gpus: Mapping[str, int] = event["gpus"]
    names = ", ".join(f"{name} x{count}" for name, count in list(gpus.items())[:_MOST_MACHINES])
    more = f" and {len(gpus) - _MOST_MACHINES} more" if len(gpus) > _MOST_MACHINES else ""
    slowed = f", {event['slowdown']:.2f} x slower than the best" if event["slowdown"] > 1 else ""
    return f"{names}{more} (one {event['level']}{slowed})"
