"""The life of one job in words, told from its events; of a run folder or of a live controller."""

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from dally.errors import InputError
from dally.runs.records import RUN, JobRecord, read_events, read_jobs, read_run
from dally.words import moment, plural, span

Event = Mapping[str, Any]
When = Callable[[float], str]
"""Writes a time of an event, in seconds, as people read it."""

NETWORK = "network"
"""The level of GPUs anywhere in the cluster."""

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
    click.echo(headline(records[job], _policy(folder, facts)))
    click.echo("  times are since the start of the run")
    for event in events:
        click.echo(f"{moment(event['t']):>14}  {told(event, job, moment)}")


def _policy(folder: Path, facts: Mapping[str, Any]) -> str:
    try:
        return str(facts["policy"]["spec"])
    except (LookupError, TypeError) as error:
        raise InputError(f"{folder / RUN}: lacks policy.spec") from error


def concerns(event: Event, job: str) -> bool:
    """Whether an event is about the job, or about it taking another's GPUs."""
    by = event.get("by", ())
    return event.get("job") == job or (isinstance(by, list) and job in by)


def headline(record: JobRecord, policy: str) -> str:
    """A job's life in one line."""
    model = f", {record.model}" if record.model else ""
    if record.end_s is None:
        life = f"{record.status.lower()}; so far"
    else:
        times = f" ({record.jct_s / record.ideal_s:.2f} x ideal)" if record.ideal_s else ""
        life = f"{record.status.lower()} after {span(record.jct_s)}{times}:"
    return (
        f"{record.job_id}: {plural(record.gpus, 'GPU')}{model}, under {policy}: {life} "
        f"waited {span(record.queue_s)}, ran {span(record.run_s)}, "
        f"of that {span(record.comm_s)} for the network; preempted {plural(record.preemptions, 'time')}"
    )


def told(event: Event, job: str, when: When) -> str:
    """One event in words; only its kind if it lacks what they need, being damaged or of another version."""
    words = _took if event.get("job") != job else _WORDS.get(event["event"], _kind)
    try:
        return words(event, when)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, OSError):
        return _kind(event, when)


def _kind(event: Event, when: When) -> str:
    return str(event["event"])


def _took(event: Event, when: When) -> str:
    return f"took GPUs of {event['job']}: {event['reason']}"


def _submit(event: Event, when: When) -> str:
    return f"submitted, asks for {plural(event['gpus'], 'GPU')}"


def _wait(event: Event, when: When) -> str:
    until = "" if event["until"] is None else f" until {when(event['until'])}"
    return f"waits for {within(event['level'])}{until}: {event['reason']}"


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
    lost = f"; {span(event['lost_s'])} of work are lost" if event["lost_s"] else ""
    return f"{event.get('reason', 'a machine failed under it')}{lost}"


def _end(event: Event, when: When) -> str:
    return f"ends, {event['status'].lower()}"


def _stop(event: Event, when: When) -> str:
    if not event["signal"]:
        return f"is stopped: {event['reason']}"
    grace = span(event["grace_s"])
    return f"is asked by {event['signal']} for its checkpoint, within {grace}: {event['reason']}"


def _start_failed(event: Event, when: When) -> str:
    then = f"left out for {span(event['again_in_s'])}" if event["again_in_s"] else "tries other nodes"
    return f"{event['reason']}; {then}"


def _start_declined(event: Event, when: When) -> str:
    return f"is left out until a job leaves: {event['reason']}"


def _order_refused(event: Event, when: When) -> str:
    return f"Slurm refused to {event['order'].replace('_', ' ')}: {event['said']}"


def _released(event: Event, when: When) -> str:
    return f"is no longer Dally's: {event['reason']}"


def _conflict(event: Event, when: When) -> str:
    return f"runs on GPUs that another job seems to hold: {_machines(event['gpus'])}"


def _progress_reported(event: Event, when: When) -> str:
    total = f" of {event['total']:,.0f}" if event["total"] else ""
    return f"reports its progress: {event['samples']:,.0f}{total} samples"


def _progress_missing(event: Event, when: When) -> str:
    return f"is to report its progress, and does not: {event['reason']}"


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
    "start_failed": _start_failed,
    "start_declined": _start_declined,
    "order_refused": _order_refused,
    "released": _released,
    "conflict": _conflict,
    "progress_reported": _progress_reported,
    "progress_missing": _progress_missing,
    "would_start": _would_start,
    "would_migrate": _would_migrate,
    "would_resize": _would_resize,
    "would_preempt": _would_preempt,
}


def _placed(event: Event) -> str:
    """GPUs by machine, their level, and what the placement costs."""
    slowed = f", {event['slowdown']:.2f} x slower than the best" if event["slowdown"] > 1 else ""
    return f"{_machines(event['gpus'])} ({_together(event)}{slowed})"


def _together(event: Event) -> str:
    level = event["level"]
    return "over the network" if level == NETWORK else f"one {level}"


def within(level: str) -> str:
    """GPUs for which a job waits: one rack, or any GPUs if it takes them wherever they are."""
    return "any GPUs" if level == NETWORK else f"one {level}"


def _machines(gpus: Mapping[str, int]) -> str:
    names = ", ".join(f"{name} x{count}" for name, count in list(gpus.items())[:_MOST_MACHINES])
    return names + (f" and {len(gpus) - _MOST_MACHINES} more" if len(gpus) > _MOST_MACHINES else "")
