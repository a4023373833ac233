"""Hands jobs that are held for Dally back to Slurm; needs neither a controller nor its journal."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import inf
from pathlib import Path

from dally.errors import DallyError, InputError
from slurm_plugin.access.slurm import HandBack, Hold, Slurm, SlurmJob, State
from slurm_plugin.control.journal import NAME
from slurm_plugin.control.tickets import Standing, Ticket, from_data
from slurm_plugin.request import Request, decode_job

_BUSY_S = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the jobs: those that are Slurm's now, and what Slurm said against the others."""

    released: tuple[str, ...]
    refused: Mapping[str, str]


def read_tickets(folder: Path) -> dict[str, Ticket]:
    """The tickets of a journal that somebody else may be writing; none if it cannot be read."""
    tickets: dict[str, Ticket] = {}
    address = f"{(folder / NAME).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_S)) as database:
            for (body,) in database.execute("SELECT body FROM tickets"):
                ticket = from_data(json.loads(body))
                tickets[ticket.job_id] = ticket
    except (sqlite3.Error, KeyError, TypeError, ValueError, DallyError):
        return tickets
    return tickets


def to_hand_back(jobs: Sequence[SlurmJob], tickets: Mapping[str, Ticket]) -> tuple[HandBack, ...]:
    """The orders for all jobs that wait for Dally, and for those that it has pinned to nodes.

    Jobs that their users or an administrator hold stay held.
    """
    known = {job.job_id: _ticket(job, tickets) for job in jobs}
    return tuple(
        HandBack(job.job_id, nodes_asked(job, known[job.job_id]))
        for job in jobs
        if _waits_for_dally(job, known[job.job_id])
    )


def hand_back(slurm: Slurm, orders: Sequence[HandBack], tickets: Mapping[str, Ticket]) -> Outcome:
    """Carry out the orders; a job that has left meanwhile counts neither way.

    Raises:
        SlurmUnavailableError: Slurm did not answer.
    """
    answers = slurm.run(orders)
    said = {order.job_id: answer for order, answer in zip(orders, answers, strict=True) if answer is not None}
    still = {order.job_id for order in to_hand_back(slurm.jobs(), tickets)} if said else set()
    return Outcome(
        tuple(order.job_id for order in orders if order.job_id not in said),
        {job_id: answer for job_id, answer in said.items() if job_id in still},
    )


def _waits_for_dally(job: SlurmJob, ticket: Ticket | None) -> bool:
    if job.state is not State.PENDING or job.hold is Hold.ADMIN:
        return False
    try:
        request = decode_job(job.comment, job.admin_comment)
    except InputError:
        request = Request()
    if request is None:
        return False
    if job.hold is Hold.NONE:
        return bool(job.required_nodes) and (ticket is None or ticket.standing is Standing.STARTING)
    return not request.held or (ticket is not None and ticket.unheld)


def _ticket(job: SlurmJob, tickets: Mapping[str, Ticket]) -> Ticket | None:
    ticket = tickets.get(job.job_id)
    try:
        request = decode_job(job.comment, job.admin_comment)
    except InputError:
        request = None
    tag = request.tag if request else ""
    return ticket if ticket is not None and ticket.same_as(job, tag) else None


def nodes_asked(job: SlurmJob, ticket: Ticket | None) -> int:
    """Fewest nodes that the job was submitted with: a placement changes what Slurm shows."""
    if ticket is None or ticket.standing is Standing.LEFT:
        return job.min_nodes
    if ticket.job.gpus_per_machine:
        return max(1, ticket.job.gpus // ticket.job.gpus_per_machine)
    placed = ticket.refusals or ticket.standing is Standing.STARTING or ticket.past.first_start_s < inf
    return 1 if placed else job.min_nodes
