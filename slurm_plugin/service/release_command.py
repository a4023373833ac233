"""`dally release-all`: hands every job that is held for Dally back to Slurm."""

import json
import sys
import time
from pathlib import Path

import click

from slurm_plugin.client.backends import open_slurm
from slurm_plugin.config import load_config
from slurm_plugin.controller.journal import heartbeat_s, read_managed_jobs
from slurm_plugin.service.cli import clean, config_option, json_option, lasting
from slurm_plugin.service.release_all import HandBackResult, hand_back, to_hand_back

_ALIVE_S = 90.0
_MOST_REFUSALS = 10


@click.command
@config_option
@click.option(
    "--if-silent-for",
    "silent_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Only if the controller has given no sign of life for so long.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def command(config: Path | None, silent_s: float | None, yes: bool, as_json: bool) -> None:
    """Hand every job that is held for Dally back to Slurm, which then schedules it by itself.

    Jobs that their users or administrators hold stay held, running jobs run on. It needs no controller; with
    one at work, the jobs are Slurm's all the same, only jobs submitted later are Dally's.
    """
    settings = load_config(config)
    folder = Path(settings.state_dir)
    beat_s = heartbeat_s(folder)
    silence_s = None if beat_s is None else max(0.0, time.time() - beat_s)
    if silent_s is not None and silence_s is not None and silence_s < silent_s:
        _say(as_json, HandBackResult((), {}), f"heard the controller {lasting(silence_s)} ago: all stays")
        return
    slurm, managed_jobs = open_slurm(settings.backend), read_managed_jobs(folder)
    orders = to_hand_back(slurm.jobs(), managed_jobs)
    if not orders:
        _say(as_json, HandBackResult((), {}), "no job is held for Dally")
        return
    if not yes:
        click.confirm(_question(len(orders), silence_s), abort=True, err=True)
    outcome = hand_back(slurm, orders, managed_jobs)
    _say(as_json, outcome, f"handed {_jobs(len(outcome.released))} back to Slurm")
    if outcome.refused:
        sys.exit(1)


def _question(count: int, silence_s: float | None) -> str:
    alive = ""
    if silence_s is not None and silence_s < _ALIVE_S:
        alive = (
            f"A controller is at work (sign of life {lasting(silence_s)} ago). It will leave these jobs to "
            "Slurm and go on with those submitted later; to end that, stop it first.\n"
        )
    return f"{alive}Hand {_jobs(count)} back to Slurm?"


def _jobs(count: int) -> str:
    return f"{count} job{'s' * (count != 1)}"


def _say(as_json: bool, outcome: HandBackResult, text: str) -> None:
    if as_json:
        said = {"released": list(outcome.released), "refused": dict(outcome.refused), "said": text}
        click.echo(json.dumps(said, indent=2))
        return
    click.echo(text)
    for job_id, refusal in list(outcome.refused.items())[:_MOST_REFUSALS]:
        click.echo(f"refused {job_id}: {clean(refusal)}")
    if len(outcome.refused) > _MOST_REFUSALS:
        click.echo(f"refused {len(outcome.refused) - _MOST_REFUSALS} more")
