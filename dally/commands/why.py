"""The life of one job in words, told from its events; of a run folder or of a live controller."""

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from dally.errors import InputError
from dally.records import JobRecord, read_events, read_jobs, read_run

Event = Mapping[str, Any]
When = Callable[[float], str]
"""Writes a time of an event, in seconds, as people read it."""

_MOST_MACHINES = 4


def tell_run(job: str, folder: Path, as_json: bool) -> None:
    """Print the life of a job of a run.

    Raises:
        InputError: There is no such run folder, or no such job in it.
    """
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
        click.echo(f"{event['t']:>12,.0f} s  {told(event, job, run_time)}")


def concerns(event: Event, job: str) -> bool:
    """Whether an event is about the job, or about it taking another's GPUs."""
    return event.get("job") == job or job in event.get("by", ())


def run_time(t: float) -> str:
    """A time of a run, which begins at 0."""
    return f"{t:,.0f} s"


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


def told(event: Event, job: str, when: When) -> str:
    """One event in words."""
    if event.get("job") != job:
        return f"took GPUs of {event['job']}: {event['reason']}"
    words = _WORDS.get(event["event"])
    return words(event, when) if words else str(event["event"])


def _submit(event: Event, when: When) -> str:
    return f"submitted, asks for {event['gpus']} GPU{'s' * (event['gpus'] > 1)}"


def _wait(event: Event, when: When) -> str:
    until = "" if event["until"] is None else f" until {when(event['until'])}"
    return f"waits for one {event['level']}{until}: {event['reason']}"


def _start(event: Event, when: When) -> str:
    return f"starts on {_placed(event)}: {event['reason']}"


def _migrate(event: Event, when: When) -> str:
    return f"moves to {_placed(event)}: {event['reason']}"


def _resize(event: Event, when: When) -> str:
    return f"goes on on {_placed(event)}: {event['reason']}"


def _pace(event: Event, when: When) -> str:
    pace = f"{event['slowdown']:.2f} x slower than at the best placement"
    return f"goes on at another pace, {pace}: {event['reason']}"


def _preempt(event: Event, when: When) -> str:
    return f"loses its GPUs to {', '.join(event['by']) or 'nobody'}: {event['reason']}"


def _fail(event: Event, when: When) -> str:
    lost = f"; {event['lost_s']:,.0f} s of work are lost" if event["lost_s"] else ""
    return f"a machine failed under it{lost}"


def _end(event: Event, when: When) -> str:
    return f"ends, {event['status'].lower()}"


def _stop(event: Event, when: When) -> str:
    if not event["signal"]:
        return f"is stopped: {event['reason']}"
    return f"is asked by {event['signal']} for its checkpoint, within {event['grace_s']} s: {event['reason']}"


def _refuse(event: Event, when: When) -> str:
    return f"{event['reason']}; left out for {event['again_in_s']:,.0f} s"


def _refused(event: Event, when: When) -> str:
    return f"Slurm refuses to {event['order']} it: {event['said']}"


def _leave(event: Event, when: When) -> str:
    return f"is no longer Dally's: {event['reason']}"


def _conflict(event: Event, when: When) -> str:
    return f"runs on GPUs that another job seems to hold: {_machines(event['gpus'])}"


def _would_start(event: Event, when: When) -> str:
    return f"would start on {_machines(event['gpus'])}: {event['reason']}"


def _would_migrate(event: Event, when: When) -> str:
    return f"would move to {_machines(event['gpus'])}: {event['reason']}"


def _would_resize(event: Event, when: When) -> str:
    return f"would go on on {_machines(event['gpus'])}: {event['reason']}"


def _would_preempt(event: Event, when: When) -> str:
    return f"would lose its GPUs: {event['reason']}"


_WORDS: Mapping[str, Callable[[Event, When], str]] = {
    "submit": _submit,
    "wait": _wait,
    "start": _start,
    "migrate": _migrate,
    "resize": _resize,
    "pace": _pace,
    "preempt": _preempt,
    "fail": _fail,
    "end": _end,
    "stop": _stop,
    "refuse": _refuse,
    "refused": _refused,
    "leave": _leave,
    "conflict": _conflict,
    "would_start": _would_start,
    "would_migrate": _would_migrate,
    "would_resize": _would_resize,
    "would_preempt": _would_preempt,
}


def _placed(event: Event) -> str:
    """GPUs by machine, their level, and what the placement costs."""
    slowed = f", {event['slowdown']:.2f} x slower than the best" if event["slowdown"] > 1 else ""
    return f"{_machines(event['gpus'])} (one {event['level']}{slowed})"


def _machines(gpus: Mapping[str, int]) -> str:
    names = ", ".join(f"{name} x{count}" for name, count in list(gpus.items())[:_MOST_MACHINES])
    return names + (f" and {len(gpus) - _MOST_MACHINES} more" if len(gpus) > _MOST_MACHINES else "")
