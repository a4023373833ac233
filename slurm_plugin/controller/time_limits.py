"""Time limits of jobs that run slower than they were asked for, and what is done where these are too short.

A user's limit is for the GPUs that were asked for. On fewer or slower ones, or farther apart, the same work
takes longer, so the limit is raised in proportion as the job is released, as far as its partition allows.
Where that is not enough, the job is asked for its checkpoint before its limit and requeued: each start has
the whole limit again. A job that has had the time that it asked for is ended by Slurm at its limit as always.
"""

from collections.abc import Callable, Collection
from math import ceil, inf

from dally.cluster.topology import Allocation
from dally.policies.common.estimates import restart_s
from dally.state import ClusterState, JobState
from slurm_plugin.client.slurm import SlurmJob
from slurm_plugin.controller.managed_job import ON_GPUS, ManagedJob

SPARE_S = 30.0
"""A checkpoint is asked for so much earlier than its grace before a limit, seconds."""

_START_S = 30.0
"""A job may start so long after it was decided, seconds."""

ENOUGH = 0.95
"""A job has had its time once it could do so much of the work that it was given time for."""


class TimeLimits:
    """How far time limits must be raised, and may be.

    Args:
        longest_s: The longest limit that a job may have, seconds.
        reserved_at_s: When the first of some nodes is reserved for others than a job, from a time on; inf for
            never.
        state: What the costs of placements come from.
    """

    def __init__(
        self,
        longest_s: Callable[[SlurmJob], float],
        reserved_at_s: Callable[[SlurmJob, Collection[str], float], float],
        state: ClusterState,
    ) -> None:
        self._longest_s, self._reserved_at_s, self._state = longest_s, reserved_at_s, state

    def needed_s(self, managed: ManagedJob, allocation: Allocation) -> float:
        """The limit in which a waiting job can do there what it could do in its own where it asked to run."""
        own_s = managed.job.duration_s
        life, costs = self._state.jobs[managed.job_id], self._state.costs
        slowdown = costs.cost(managed.job, allocation, life.done(0.0)).slowdown
        return own_s if slowdown <= 1 else own_s * slowdown + restart_s(life, costs)

    def is_too_short(self, managed: ManagedJob, job: SlurmJob, allocation: Allocation, now: float) -> bool:
        """Whether a job would run into its limit there for being slow, with no checkpoint to go on from."""
        own_s = managed.job.time_limit_s
        if own_s is None or can_be_saved(managed, job):
            return False
        needed_s = self.needed_s(managed, allocation)
        return needed_s > own_s and needed_s > self._most_s(job, own_s, allocation, now)

    def given_s(self, managed: ManagedJob, job: SlurmJob, allocation: Allocation, now: float) -> float | None:
        """The limit that a job is to have there, whole minutes; None if it has no limit."""
        own_s = managed.job.time_limit_s
        if own_s is None:
            return None
        needed_s = self.needed_s(managed, allocation)
        if needed_s <= own_s:
            return own_s
        return 60.0 * ceil(min(needed_s, self._most_s(job, own_s, allocation, now)) / 60)

    def _most_s(self, job: SlurmJob, own_s: float, allocation: Allocation, now: float) -> float:
        """The longest limit that a job may have there, but never less than its own.

        Slurm starts no job on a node that is reserved for others before its limit ends, and cancels one whose
        limit would end after its deadline.
        """
        reserved_s = self._reserved_at_s(job, self._state.topology.named(allocation), now)
        free_s = min(reserved_s, job.deadline_s or inf) - now - _START_S
        whole_min_s = free_s if free_s == inf else 60.0 * (free_s // 60)
        return max(own_s, min(self._longest_s(job), whole_min_s))


def save_at_s(managed: ManagedJob, job: SlurmJob, life: JobState) -> float:
    """When a running job must be asked for its checkpoint, as its limit comes too early; inf if it does not.

    Args:
        managed: What the controller knows of it.
        job: As Slurm shows it.
        life: Its work so far, and its speed.
    """
    phase = managed.phase
    if job.time_limit_s is None or not isinstance(phase, ON_GPUS) or not can_be_saved(managed, job):
        return inf
    end_s = phase.interval.since_s + job.time_limit_s
    if life.work_s(end_s) >= min(ENOUGH * life.job.duration_s, life.whole_s):
        return inf
    return end_s - min(managed.request.grace_s + SPARE_S, job.time_limit_s / 2)


def can_be_saved(managed: ManagedJob, job: SlurmJob) -> bool:
    """Whether a job writes a checkpoint when it is asked for it, and may be requeued."""
    return bool(managed.request.signal) and job.requeue
