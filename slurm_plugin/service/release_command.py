"""`dally release-all`: releases every job that is held for Dally to Slurm, with or without a controller."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from dally.words import clean, plural
from slurm_plugin.client.backends import open_slurm
from slurm_plugin.client.orders import ReleaseToSlurm, Unreserve
from slurm_plugin.client.slurm import Hold, Slurm, SlurmJob, State
from slurm_plugin.config import load_config
from slurm_plugin.controller.job_requests import read_request, release_order
from slurm_plugin.controller.journal import heartbeat_s, read_managed_jobs, written_at
from slurm_plugin.controller.managed_job import ManagedJob, StartingPhase
from slurm_plugin.controller.node_sets import is_pinned
from slurm_plugin.controller.unavailable_gpus import is_claim
from slurm_plugin.service.cli import config_option, json_option, lasting
from slurm_plugin.service.partition_lock import WATCH_S

_ALIVE_S = 90.0
_MOST_REFUSALS = 10


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """What became of the jobs: those that are Slurm's now, and what Slurm said against the others."""

    released: tuple[str, ...]
    refused: Mapping[str, str]


def release_orders(
    jobs: Sequence[SlurmJob], managed_jobs: Mapping[str, ManagedJob]
) -> tuple[ReleaseToSlurm, ...]:
    """The orders for all jobs that wait for Dally, and for those that it has pinned to nodes.

    Jobs that their users or an administrator hold stay held.
    """
    orders = []
    for job in jobs:
        request = read_request(job.comment, job.admin_comment)
        if job.state is not State.PENDING or request is None or job.hold is Hold.ADMIN:
            continue
        managed = managed_jobs.get(job.job_id)
        if managed is not None and not managed.same_as(job, request.tag):
            managed = None
        if job.hold is Hold.NONE:
            wanted = is_pinned(job, request) and (managed is None or isinstance(managed.phase, StartingPhase))
        else:
            said = request.held and not (managed is not None and managed.user_released)
            wanted = not said and not (managed is not None and managed.requeued_held)
        if wanted:
            orders.append(release_order(job, request, managed))
    return tuple(orders)


def release_to_slurm(
    slurm: Slurm, orders: Sequence[ReleaseToSlurm], managed_jobs: Mapping[str, ManagedJob]
) -> ReleaseResult:
    """Carry out the orders; a job that has left meanwhile counts neither way.

    The nodes that were kept for one of them are open to all first.

    Raises:
        SlurmUnavailableError: Slurm did not answer.
    """
    slurm.run([Unreserve(each.name, unused=True) for each in slurm.reservations() if is_claim(each)])
    answers = slurm.run(orders)
    said = {order.job_id: answer for order, answer in zip(orders, answers, strict=True) if answer is not None}
    still = {order.job_id for order in release_orders(slurm.jobs(), managed_jobs)} if said else set()
    return ReleaseResult(
        tuple(order.job_id for order in orders if order.job_id not in said),
        {job_id: answer for job_id, answer in said.items() if job_id in still},
    )


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
        _print(as_json, ReleaseResult((), {}), f"heard the controller {lasting(silence_s)} ago: all stays")
        return
    if silent_s is not None and _is_heard(folder):
        _print(
            as_json, ReleaseResult((), {}), "heard the controller just now, so a clock is wrong: all stays"
        )
        return
    slurm, managed_jobs = open_slurm(settings.backend), read_managed_jobs(folder)
    orders = release_orders(slurm.jobs(), managed_jobs)
    if not orders:
        _print(as_json, ReleaseResult((), {}), "no job is held for Dally")
        return
    if not yes:
        alive = ""
        if silence_s is not None and silence_s < _ALIVE_S:
            alive = (
                f"A controller is at work (sign of life {lasting(silence_s)} ago). It will leave these jobs "
                "to Slurm and go on with those submitted later; to end that, stop it first.\n"
            )
        click.confirm(f"{alive}Hand {plural(len(orders), 'job')} back to Slurm?", abort=True, err=True)
    result = release_to_slurm(slurm, orders, managed_jobs)
    _print(as_json, result, f"handed {plural(len(result.released), 'job')} back to Slurm")
    if result.refused:
        sys.exit(1)


def _is_heard(folder: Path) -> bool:
    """Whether a controller gives a sign of life while one waits for it, whatever the clock says."""
    before = written_at(folder)
    if before:
        time.sleep(WATCH_S)
    return written_at(folder) != before


def _print(as_json: bool, result: ReleaseResult, text: str) -> None:
    if as_json:
        click.echo(json.dumps({**asdict(result), "said": text}, indent=2))
        return
    click.echo(text)
    for job_id, refusal in list(result.refused.items())[:_MOST_REFUSALS]:
        click.echo(f"refused {job_id}: {clean(refusal)}")
    if len(result.refused) > _MOST_REFUSALS:
        click.echo(f"refused {len(result.refused) - _MOST_REFUSALS} more")
