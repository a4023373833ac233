"""Why a job may not start whatever is free: holds, dependencies, begin times, limits of its array."""

from collections import Counter
from collections.abc import Collection, Mapping
from math import inf

from slurm_plugin.access.slurm import HOLDS_GPUS, Hold, SlurmJob
from slurm_plugin.control.tickets import Standing, Ticket
from slurm_plugin.request import Request


def obstacle(ticket: Ticket, job: SlurmJob, request: Request, slots: Counter[str], now: float) -> str:
    """Why a pending job may not start now, in words; empty if it may.

    Args:
        ticket: Its ticket.
        job: As Slurm shows it.
        request: What its comments say now.
        slots: How many more tasks of each limited array may run; a task that may takes one.
        now: The time, seconds.
    """
    if job.hold is Hold.ADMIN:
        return "held by an administrator"
    if request.held and not ticket.unheld:
        return "held by its user"
    if ticket.standing is Standing.ASIDE and now < ticket.until_s < inf:
        return ticket.why
    if job.dependency:
        return "waits for jobs it depends on"
    # The begin time of a job that was released once is of our making.
    if not ticket.released and job.begin_s > max(now, job.submit_s + 1):
        return "its begin time has not come"
    if job.array_throttle:
        slots[job.array_id] -= 1
        if slots[job.array_id] < 0:
            return f"its array runs at most {job.array_throttle} tasks at once"
    return ""


def array_slots(jobs: Collection[SlurmJob], tickets: Mapping[str, Ticket]) -> Counter[str]:
    """How many more tasks of each limited array may run, by the array's number."""
    slots = Counter({job.array_id: job.array_throttle for job in jobs if job.array_throttle})
    for job in jobs:
        if job.array_throttle:
            ticket = tickets.get(job.job_id)
            starting = ticket is not None and ticket.standing is Standing.STARTING
            slots[job.array_id] -= starting or job.state in HOLDS_GPUS
    return slots
