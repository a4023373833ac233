"""Which running jobs must leave before a maintenance: those that write a checkpoint and end too late."""

from collections.abc import Iterable
from math import inf

from dally.state import JobState
from dally.words import span
from slurm_plugin.client.slurm import Reservation, SlurmJob
from slurm_plugin.controller.managed_job import ON_GPUS, ManagedJob
from slurm_plugin.controller.time_limits import SPARE_S, can_be_saved


def leave_reason(
    managed: ManagedJob, job: SlurmJob, life: JobState, reservations: Iterable[Reservation], now: float
) -> str:
    """Why a running job must be asked for its checkpoint now; empty if no maintenance calls for that.

    A maintenance that has begun leaves the jobs alone that it found: its administrator chose so.

    Args:
        managed: What the controller knows of it.
        job: As Slurm shows it.
        life: Its work so far, and its speed.
        reservations: All reservations.
        now: The time, seconds.
    """
    if not isinstance(managed.phase, ON_GPUS) or not can_be_saved(managed, job):
        return ""
    end_s = inf if job.time_limit_s is None else managed.phase.interval.since_s + job.time_limit_s
    needed_s = managed.request.grace_s + SPARE_S
    for each in reservations:
        is_near = each.maintenance and each.start_s - needed_s <= now < each.start_s < end_s
        taken = managed.gpus.keys() & set(each.nodes) if is_near else ()
        if taken and life.work_s(each.start_s) < life.whole_s:
            begins = f"maintenance {each.name} begins in {span(each.start_s - now)} on {min(taken)}"
            return f"{begins}, before it can be done; it goes on elsewhere or later"
    return ""
