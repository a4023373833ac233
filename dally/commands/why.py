"""The events of one job in words, from a run folder or from a live controller."""

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from dally.commands.terminal import say
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
    """Print the events of a job of a run, as JSON or in words.

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
    try:
        policy = str(facts["policy"]["spec"])
    except (LookupError, TypeError) as error:
        raise InputError(f"{folder / RUN}: lacks policy.spec") from error
    say(headline(records[job], policy))
    say("  times are since the start of the run")
    for event in events:
        say(f"{moment(event['t']):>14}  {event_text(event, job, moment)}")


def concerns(event: Event, job: str) -> bool:
    """Whether an event is about the job, or about it taking another's GPUs."""
    by = event.get("by", ())
    return event.get("job") == job or (isinstance(by, list) and job in by)


def headline(record: JobRecord, policy: str) -> str:
    """What became of a job, in one line."""
    model = f", {record.model}" if record.model else ""
    if record.end_s is None:
        outcome = f"{record.status.lower()}; so far"
    else:
        times = f" ({record.jct_s / record.ideal_s:.2f} x ideal)" if record.ideal_s else ""
        outcome = f"{record.status.lower()} after {span(record.jct_s)}{times}:"
    return (
        f"{record.job_id}: {plural(record.gpus, 'GPU')}{model}, under {policy}: {outcome} "
        f"waited {span(record.queue_s)}, ran {span(record.run_s)}, "
        f"of that {span(record.comm_s)} for the network; preempted {plural(record.preemptions, 'time')}"
    )


def event_text(event: Event, job: str, when: When) -> str:
    """One event in words; only its kind if it lacks what they need, being damaged or of another version."""
    kind = str(event["event"])
    try:
        if event.get("job") != job:
            return f"took GPUs of {event['job']}: {event['reason']}"
        return _TEXTS[kind](event, when) if kind in _TEXTS else kind
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, OSError):
        return kind


def _wait(event: Event, when: When) -> str:
    until = "" if event["until"] is None else f" until {when(event['until'])}"
    return f"waits for {within(event['level'])}{until}: {event['reason']}"


def _stop(event: Event, when: When) -> str:
    if not event["signal"]:
        return f"is stopped: {event['reason']}"
    grace = span(event["grace_s"])
    return f"is asked by {event['signal']} for its checkpoint, within {grace}: {event['reason']}"


_TEXTS: Mapping[str, Callable[[Event, When], str]] = {
    "submit": lambda event, when: f"submitted, asks for {plural(event['gpus'], 'GPU')}",
    "wait": _wait,
    "start": lambda event, when: f"starts on {_placed(event)}: {event['reason']}",
    "migrate": lambda event, when: f"moves to {_placed(event)}: {event['reason']}",
    "resize": lambda event, when: f"goes on on {_placed(event)}: {event['reason']}",
    "pace": lambda event, when: (
        f"goes on at another pace, {event['slowdown']:.2f} x slower than at the best placement: "
        f"{event['reason']}"
    ),
    "preempt": lambda event, when: (
        f"loses its GPUs to {', '.join(event['by']) or 'nobody'}: {event['reason']}"
    ),
    "fail": lambda event, when: (
        f"{event.get('reason', 'a machine failed under it')}"
        + (f"; {span(event['lost_s'])} of work are lost" if event["lost_s"] else "")
    ),
    "end": lambda event, when: f"ends, {event['status'].lower()}",
    "stop": _stop,
    "start_failed": lambda event, when: (
        f"{event['reason']}; "
        + (f"left out for {span(event['again_in_s'])}" if event["again_in_s"] else "tries other nodes")
    ),
    "start_declined": lambda event, when: f"is left out until a job leaves: {event['reason']}",
    "segment_torn": lambda event, when: f"runs on other nodes than its --segment wants: {event['reason']}",
    "order_refused": lambda event, when: (
        f"Slurm refused to {event['order'].replace('_', ' ')}: {event['said']}"
    ),
    "released": lambda event, when: f"is no longer Dally's: {event['reason']}",
    "conflict": lambda event, when: (
        f"runs on GPUs that another job seems to hold: {_machines(event['gpus'])}"
    ),
    "progress_reported": lambda event, when: (
        f"tells its steps: {event['step_s']:.3g} s each"
        if event.get("step_s") and not event["samples"]
        else f"reports its progress: {event['samples']:,.0f}"
        + (f" of {event['total']:,.0f} samples" if event["total"] else " samples")
    ),
    "slower_than_expected": lambda event, when: f"is slower than its placement explains: {event['reason']}",
    "progress_missing": lambda event, when: f"is to report its progress, and does not: {event['reason']}",
    "would_start": lambda event, when: f"would start on {_machines(event['gpus'])}: {event['reason']}",
    "would_migrate": lambda event, when: f"would move to {_machines(event['gpus'])}: {event['reason']}",
    "would_resize": lambda event, when: f"would go on on {_machines(event['gpus'])}: {event['reason']}",
    "would_preempt": lambda event, when: f"would lose its GPUs: {event['reason']}",
}
"""What each kind of event of a job says."""


def _placed(event: Event) -> str:
    """GPUs by machine, their level, and what the placement costs."""
    slowed = f", {event['slowdown']:.2f} x slower than the best" if event["slowdown"] > 1 else ""
    level = "over the network" if event["level"] == NETWORK else f"one {event['level']}"
    return f"{_machines(event['gpus'])} ({level}{slowed})"


def within(level: str) -> str:
    """GPUs for which a job waits: one rack, or any GPUs if it takes them wherever they are."""
    return "any GPUs" if level == NETWORK else f"one {level}"


def _machines(gpus: Mapping[str, int]) -> str:
    names = ", ".join(f"{name} x{count}" for name, count in list(gpus.items())[:_MOST_MACHINES])
    return names + (f" and {len(gpus) - _MOST_MACHINES} more" if len(gpus) > _MOST_MACHINES else "")
