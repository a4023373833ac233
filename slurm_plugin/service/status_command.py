"""`dally status`: how the controller is, on one screen."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from dally.words import clean, plural
from slurm_plugin.controller.running_times import in_words
from slurm_plugin.service.cli import UNHEALTHY, ask, clock, config_option, json_option, lasting, understood

_MOST_PROBLEMS = 3


@click.command
@config_option
@json_option
def command(config: Path | None, as_json: bool) -> None:
    """Show how the controller is: its mode, last cycle, jobs, GPUs, timers and problems.

    The exit code is 3 if it answers but is not well, 1 if it does not answer.
    """
    said = ask(config, "/status")
    with understood():
        words = (clean(f"{name:<11}{text}").rstrip() for name, text in lines(said))
        shown, healthy = json.dumps(said, indent=2) if as_json else "\n".join(words), said["healthy"]
    click.echo(shown)
    if not healthy:
        sys.exit(UNHEALTHY)


def lines(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and text of each line."""
    health = "well" if said["healthy"] else f"NOT WELL: {clean(said['reason'])}"
    yield "controller", f"{said['mode']} mode, {health}; Dally {said['version']}"
    if "policy" in said:
        yield "policy", f"{said['policy']}, partitions {', '.join(said['partitions'])}"
        yield "run times", in_words(said["running_times"])
        took = f"took {said['cycle_s']:.2f} s, {said['observe_s']:.2f} s of it to look at Slurm"
        yield "last cycle", f"{lasting(said['age_s'])} ago, {took}"
        jobs = [f"{count} {state}" for state, count in said["jobs"].items() if count]
        yield "jobs", ", ".join(jobs) or "none"
        gpus = said["gpus"]
        use = f"{gpus['used']} used by Dally's jobs, {gpus['free']} free, {gpus['unavailable']} unavailable"
        yield "GPUs", f"{gpus['total']} on {plural(said['nodes'], 'node')}: {use}"
        if wrong := miscounted(said):
            yield "", wrong
        for number, text in enumerate(timer_lines(said["timers"])):
            yield "" if number else "timers", text
    for number, problem in enumerate(reversed(said["problems"][-_MOST_PROBLEMS:])):
        text = f"{clock(problem['t'])} {problem['event']}: {clean(problem['reason'])}"
        yield "" if number else "problems", text


def miscounted(said: Mapping[str, Any]) -> str:
    """Where Slurm counts GPUs as in use that no job holds, and what helps; empty if nowhere."""
    nodes = [f"{gpus} of {name}" for name, gpus in sorted(said["miscounted"].items())]
    return f"Slurm counts {', '.join(nodes)} as in use by no job; run: scontrol reconfigure" if nodes else ""


def timer_lines(timers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How long gangs of each size decline GPUs above each level, a line for each size."""
    for gpus, group in groupby(timers, key=lambda timer: timer["gpus"]):
        parts = []
        for timer in group:
            learnt = f" (from {timer['waits']} waits)" if timer["waits"] else ""
            delay = "for ever" if timer["delay_s"] is None else lasting(timer["delay_s"])
            parts.append(f"{timer['level']} {delay}{learnt}")
        yield f"{plural(gpus, 'GPU')}: {', '.join(parts)}"
