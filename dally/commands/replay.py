"""`dally replay`: decides a recorded run again and shows whether the policy decides the same."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from dally import __version__
from dally.commands.terminal import say
from dally.errors import InputError
from dally.scheduling.recording.recorder import FACTS
from dally.scheduling.recording.replay import Replay, replay
from dally.words import plural

_EPILOG = """\b
Examples:
  dally replay runs/site/dally
  dally replay /var/lib/dally/facts.jsonl --policy dally:timers=no-wait
Record with `record` in dally.toml, or with `dally simulate --record`.
"""

_CAVEAT = """The facts stay those of the recording: jobs run where its policy put them,
whatever this one decides. Waits, timers and reasons are not compared.
`dally simulate` tells what would have come of it."""


@click.command(epilog=_EPILOG)
@click.argument("recording", metavar="RUN_OR_FILE", type=click.Path(path_type=Path))
@click.option("--policy", default="", help="Ask NAME[:knob=value,...] instead, on the same facts.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def command(recording: Path, policy: str, as_json: bool) -> None:
    """Decide every decision of a recorded run again, and compare plan for plan.

    Exits with 0 if the policy decides the same each time, else with 1. With --policy it says how often
    another policy would have decided something else, and exits with 0.
    """
    path = recording / FACTS if recording.is_dir() else recording
    if not path.is_file():
        raise InputError(f"{path}: no such recording; `record` in dally.toml or `--record` make one")
    found = replay(path, policy)
    other = bool(policy) and found.policies != [policy]
    if as_json:
        click.echo(json.dumps({"schema": 1, "recording": str(path), **asdict(found)}, indent=2))
    else:
        _show(path, found, other)
    if found.differing and not other:
        sys.exit(1)


def _show(path: Path, found: Replay, other: bool) -> None:
    say(
        f"{path}: {plural(found.decisions, 'decision')} of {' and '.join(found.policies)} asked again, "
        f"with {found.facts:,} facts in {found.segments:,} segment{'s' * (found.segments > 1)}"
    )
    for number in found.torn_lines:
        say(f"line {number} is torn: the recorder was killed there, and what came after is not known")
    if found.versions != [__version__]:
        say(f"recorded by version {', '.join(found.versions)}; this is {__version__}")
    if other:
        acts = found.acts
        say(
            f"{found.asked} would have started, stopped or moved other jobs in {found.differing:,} of them: "
            f"{acts['both']:,} acts both decide, {acts['then']:,} only the recorded, {acts['now']:,} only it"
        )
        say(_CAVEAT)
    elif not found.differing:
        say("all the same")
    else:
        say(f"{found.differing:,} are not the same")
    if found.differences:
        say("what differs first:")
    for difference in found.differences:
        say(f"  at {difference.t!r} s (line {difference.line}), {difference.what}:")
        say(f"    then: {difference.then}")
        say(f"    now:  {difference.now}")
