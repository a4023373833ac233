"""Why a job may not start whatever is free: holds, dependencies, begin times, limits of its array."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from math import inf

from dally.words import plural
from slurm_plugin.client.job_json import RESERVATION_OVER
from slurm_plugin.client.slurm import HOLDS_GPUS, Hold, SlurmJob, State
from slurm_plugin.controller.managed_job import IneligiblePhase, ManagedJob, StartingPhase, asks_for_requeue
from slurm_plugin.request import Request

_NEVER = "DependencyNeverSatisfied"
_FAILED = "(failed)"
_LEFT_HELD = "Slurm holds it since its dependency could not come; an administrator can release it"
_ON_JOBS = re.compile(r"(afterok|afternotok):([0-9]{1,10}(?:_[0-9]{1,10})?)(?:_\*)?(?![0-9_])", re.ASCII)

_ON_JOB = re.compile(r"(afterany|afterok|afternotok):([0-9]{1,10}(?:_[0-9]{1,10})?)(?:\([a-z]+\))?", re.ASCII)


def ineligible_reason(
    managed: ManagedJob,
    job: SlurmJob,
    request: Request,
    slots: Counter[str],
    now: float,
    jobs: Mapping[str, SlurmJob],
) -> str:
    """Why a pending job may not start now, in words; empty if it may.

    Args:
        managed: What the controller knows of it.
        job: As Slurm shows it.
        request: What its comments say now.
        slots: How many more tasks of each limited array may run; a task that may takes one.
        now: The time, seconds.
        jobs: All jobs that Slurm knows, by number.
    """
    if job.reason == RESERVATION_OVER:
        return "the reservation that it asked for is over, and Slurm holds it"
    # A while later Slurm says of such a job that an administrator holds it.
    if _FAILED in job.dependency and "?" not in job.dependency:
        return never_satisfied(managed, job, jobs)
    if job.hold is Hold.ADMIN:
        by_slurm = managed.reason.startswith((_NEVER, _LEFT_HELD))
        return _LEFT_HELD if by_slurm else "held by an administrator"
    if request.held and not managed.user_released:
        return "held by its user"
    if isinstance(managed.phase, IneligiblePhase) and now < managed.phase.until_s < inf:
        return managed.reason
    if job.dependency and not satisfied(job.dependency, jobs):
        return never_satisfied(managed, job, jobs) or "waits for jobs it depends on"
    # The begin time of a job that was released once is of our making.
    if not managed.placed_once and job.begin_s > max(now, job.submit_s + 1):
        return "its begin time has not come"
    if job.array_throttle:
        slots[job.array_id] -= 1
        if slots[job.array_id] < 0:
            return f"its array runs at most {plural(job.array_throttle, 'task')} at once"
    return ""


def satisfied(dependency: str, jobs: Mapping[str, SlurmJob]) -> bool:
    """Whether the jobs that a job depends on are seen to have ended as it wants.

    Slurm looks at the dependencies of jobs that somebody holds once in `sched_interval` only, a minute. When
    such a job is released, it looks at once. Arrays, of which Slurm may have forgotten tasks, are left to it.
    """
    parts = re.split("[,?]", dependency)
    return (any if "?" in dependency else all)(_ended_as_wanted(part, jobs) for part in parts)


def _ended_as_wanted(part: str, jobs: Mapping[str, SlurmJob]) -> bool:
    """Whether a dependency on one job is satisfied for certain."""
    found = _ON_JOB.fullmatch(part)
    other = jobs.get(found[2]) if found else None
    if not found or other is None or other.state is not State.ENDED or asks_for_requeue(other):
        return False
    completed = other.state_name == "COMPLETED"
    return found[1] == "afterany" or completed == (found[1] == "afterok")


def never_satisfied(managed: ManagedJob, job: SlurmJob, jobs: Mapping[str, SlurmJob]) -> str:
    """Why the jobs that a job depends on can never let it start, in words; empty if they still may.

    Slurm itself says DependencyNeverSatisfied of jobs that nobody holds only, and forgets ended jobs after a
    while: what was found is found for good.
    """
    words = f"{_NEVER}: it waits for {job.dependency}"
    if _FAILED in job.dependency or job.reason == _NEVER or managed.reason.startswith(f"{words},"):
        return (
            managed.reason
            if managed.reason.startswith(f"{words},")
            else f"{words}, which cannot come any more"
        )
    if "?" in job.dependency:  # any one of them is enough
        return ""
    for kind, number in _ON_JOBS.findall(job.dependency):
        for other in jobs.values():
            if other.state is not State.ENDED or asks_for_requeue(other):
                continue
            unwanted = (other.state_name == "COMPLETED") == (kind == "afternotok")
            if unwanted and number in (other.job_id, other.array_id):
                return f"{words}, and job {other.job_id} is {other.state_name}"
    return ""


def array_slots(jobs: Collection[SlurmJob], managed_jobs: Mapping[str, ManagedJob]) -> Counter[str]:
    """How many more tasks of each limited array may run, by the array's number."""
    slots = Counter({job.array_id: job.array_throttle for job in jobs if job.array_throttle})
    for job in jobs:
        if job.array_throttle:
            managed = managed_jobs.get(job.job_id)
            starting = managed is not None and isinstance(managed.phase, StartingPhase)
            slots[job.array_id] -= starting or job.state in HOLDS_GPUS
    return slots
