"""Why a job may not start whatever is free: holds, dependencies, begin times, limits of its array."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from functools import cached_property
from math import inf

from dally.words import plural
from slurm_plugin.client.job_json import RESERVATION_OVER
from slurm_plugin.client.slurm import HOLDS_GPUS, Hold, SlurmJob, State
from slurm_plugin.controller.managed_job import IneligiblePhase, ManagedJob, StartingPhase, asks_for_requeue

_NEVER = "DependencyNeverSatisfied"
_LONGEST_SHOWN = 200
"""Of a dependency in a reason: Slurm takes 100 KB of it, and each task of an array has a reason."""

_FAILED = "(failed)"
_LEFT_HELD = "Slurm holds it since its dependency could not come; an administrator can release it"
_ON_JOBS = re.compile(r"(afterok|afternotok):([0-9]{1,10}(?:_[0-9]{1,10})?)(?:_\*)?(?![0-9_])", re.ASCII)

_ON_JOB = re.compile(
    r"(after|afterany|afterok|afternotok):([0-9]{1,10}(?:_[0-9]{1,10})?)(?:\([a-z]+\))?", re.ASCII
)
_ON_ARRAY = re.compile(r"afterany:([0-9]{1,10})_\*(?:\([a-z]+\))?", re.ASCII)
_SINGLETON = re.compile(r"singleton(?:\([a-z]+\))?")


class SeenJobs:
    """The jobs of one look, as others depend on them.

    Thousands of jobs may wait for the same thousands, so what is found is kept, by each dependency's text.

    Attributes:
        by_id: All jobs that Slurm knows, by number.
    """

    def __init__(self, jobs: Mapping[str, SlurmJob]) -> None:
        self.by_id = jobs
        self._unwanted: dict[tuple[str, str], SlurmJob | None] = {}
        self._why_never: dict[str, SlurmJob | None] = {}
        self._satisfied: dict[tuple[str, bool], bool] = {}
        self._all_ended: dict[str, bool] = {}

    @cached_property
    def tasks_of(self) -> Mapping[str, list[SlurmJob]]:
        """The tasks of each array, by its number."""
        found = defaultdict[str, list[SlurmJob]](list)
        for job in self.by_id.values():
            if job.array_id:
                found[job.array_id].append(job)
        return found

    @cached_property
    def first_of_name(self) -> Mapping[tuple[str, str], str]:
        """Which of a user's jobs of one name is first, as `singleton` counts: it runs, or is the oldest."""
        left = [job for job in self.by_id.values() if not _has_ended(job)]
        left.sort(key=lambda job: (job.state is State.PENDING, job.arrival[1]), reverse=True)
        return {(job.user, job.job_name): job.job_id for job in left}

    def satisfy(self, dependency: str, is_first: bool) -> bool:
        """Whether they satisfy a dependency for certain.

        Args:
            dependency: The dependency as Slurm shows it.
            is_first: The job that depends is the first of its name, as `singleton` wants.
        """
        known, key = self._satisfied, (dependency, is_first)
        if key not in known:
            enough = any if "?" in dependency else all
            known[key] = enough(self._satisfy(part, is_first) for part in re.split("[,?]", dependency))
        return known[key]

    def _satisfy(self, part: str, is_first: bool) -> bool:
        """Whether they satisfy one part of a dependency."""
        if _SINGLETON.fullmatch(part):
            return is_first
        if found := _ON_ARRAY.fullmatch(part):
            if found[1] not in self._all_ended:
                tasks = self.tasks_of.get(found[1], [])
                self._all_ended[found[1]] = bool(tasks) and all(map(_has_ended, tasks))
            return self._all_ended[found[1]]
        found = _ON_JOB.fullmatch(part)
        other = self.by_id.get(found[2]) if found else None
        if not found or other is None:
            return False
        if found[1] == "after":
            return other.state is not State.PENDING
        completed = other.state_name == "COMPLETED"
        return _has_ended(other) and (found[1] == "afterany" or completed == (found[1] == "afterok"))

    def why_never(self, dependency: str) -> SlurmJob | None:
        """The first job whose end keeps a dependency, all parts of which count, from ever being satisfied."""
        known = self._why_never
        if dependency not in known:
            ends = (self._first_unwanted(*each) for each in dict.fromkeys(_ON_JOBS.findall(dependency)))
            known[dependency] = next(filter(None, ends), None)
        return known[dependency]

    def _first_unwanted(self, kind: str, number: str) -> SlurmJob | None:
        """The first job of a number, or task of its array, that has ended otherwise than is wanted."""
        known, key = self._unwanted, (kind, number)
        if key not in known:
            alone = self.by_id.get(number)
            others = [*self.tasks_of.get(number, ()), *([alone] if alone else ())]
            otherwise = (
                other
                for other in others
                if (other.state_name == "COMPLETED") == (kind == "afternotok") and _has_ended(other)
            )
            known[key] = next(otherwise, None)
        return known[key]


def ineligible_reason(
    managed: ManagedJob,
    job: SlurmJob,
    slots: Counter[str],
    now: float,
    jobs: SeenJobs,
) -> str:
    """Why a pending job may not start now, in words; empty if it may.

    Args:
        managed: What the controller knows of it.
        job: As Slurm shows it.
        slots: How many more tasks of each limited array may run; a task that may takes one.
        now: The time, seconds.
        jobs: All jobs that Slurm knows.
    """
    if job.reason == RESERVATION_OVER:
        return "the reservation that it asked for is over, and Slurm holds it"
    # A while later Slurm says of such a job that an administrator holds it.
    if _FAILED in job.dependency and "?" not in job.dependency:
        return never_satisfied(managed, job, jobs)
    if job.hold is Hold.ADMIN:
        by_slurm = managed.reason.startswith((_NEVER, _LEFT_HELD))
        return _LEFT_HELD if by_slurm else "held by an administrator"
    if managed.ended_as:
        how = f"it had ended ({managed.ended_as}) when slurmctld came back with an older state"
        return f"{how}; `scancel` ends it, `scontrol release` lets it run again"
    if managed.requeued_held:
        return "requeued and held; `scontrol release` lets it start again"
    if managed.held_by_its_user:
        return "held by its user"
    if isinstance(managed.phase, IneligiblePhase) and now < managed.phase.until_s < inf:
        return managed.reason
    if job.dependency and not satisfied(job, jobs):
        return never_satisfied(managed, job, jobs) or "waits for jobs it depends on"
    # The begin time of a job that was released once is of our making.
    if not managed.placed_once and job.begin_s > max(now, job.submit_s + 1):
        return "its begin time has not come"
    if job.array_throttle:
        slots[job.array_id] -= 1
        if slots[job.array_id] < 0:
            return f"its array runs at most {plural(job.array_throttle, 'task')} at once"
    return ""


def satisfied(job: SlurmJob, jobs: SeenJobs) -> bool:
    """Whether the jobs that a job depends on are seen to have begun or ended as it wants.

    Slurm looks at the dependencies of jobs that somebody holds once in `sched_interval` only, a minute. When
    such a job is released, it looks at once. How all tasks of an array ended is left to it: it may have
    forgotten some.
    """
    is_first = (
        "singleton" in job.dependency
        and not job.array_id
        and jobs.first_of_name.get((job.user, job.job_name)) == job.job_id
    )
    return jobs.satisfy(job.dependency, is_first)


def _has_ended(job: SlurmJob) -> bool:
    """Whether a job has ended, and does not come back."""
    return job.state is State.ENDED and not asks_for_requeue(job)


def _shown(dependency: str) -> str:
    more = len(dependency) > _LONGEST_SHOWN
    return f"{dependency[:_LONGEST_SHOWN]}..." if more else dependency


def never_satisfied(managed: ManagedJob, job: SlurmJob, jobs: SeenJobs) -> str:
    """Why the jobs that a job depends on can never let it start, in words; empty if they still may.

    Slurm itself says DependencyNeverSatisfied of jobs that nobody holds only, and forgets ended jobs after a
    while: what was found is found for good.
    """
    words = f"{_NEVER}: it waits for {_shown(job.dependency)}"
    if _FAILED in job.dependency or job.reason == _NEVER or managed.reason.startswith(f"{words},"):
        return (
            managed.reason
            if managed.reason.startswith(f"{words},")
            else f"{words}, which cannot come any more"
        )
    if "?" in job.dependency:  # any one of them is enough
        return ""
    other = jobs.why_never(job.dependency)
    return f"{words}, and job {other.job_id} is {other.state_name}" if other else ""


def array_slots(jobs: Collection[SlurmJob], managed_jobs: Mapping[str, ManagedJob]) -> Counter[str]:
    """How many more tasks of each limited array may run, by the array's number."""
    slots = Counter({job.array_id: job.array_throttle for job in jobs if job.array_throttle})
    for job in jobs:
        if job.array_throttle:
            managed = managed_jobs.get(job.job_id)
            starting = managed is not None and isinstance(managed.phase, StartingPhase)
            slots[job.array_id] -= starting or job.state in HOLDS_GPUS
    return slots
