"""What priorities Slurm would give held jobs, to which it gives none: worked out from the same factors.

Source: Slurm's page on its Multifactor Priority Plugin, and version 22.05's own figures on a local cluster.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

from dally.scheduling.scheduler import Scheduler
from slurm_plugin.client.slurm import (
    PriorityFactors,
    Slurm,
    SlurmJob,
    SlurmNode,
    SlurmUnavailableError,
    State,
)
from slurm_plugin.controller.transitions import Log

REFRESH_S = 300.0
"""Factors are read, and ages counted, anew so often: as Slurm does by default (PriorityCalcPeriod)."""

SHARES_PART = 0.1
"""After so much of PriorityCalcPeriod fair shares may be read anew: within it Slurm changes them once."""

LEAST = 1.0
"""The least priority of a job that nobody holds, as in Slurm."""


class JobPriorities:
    """Keeps the priorities of the scheduler's jobs up to date.

    A job has one from the first look on; those that wait get new ones every five minutes, those that run keep
    theirs. Fair shares are read anew sooner where jobs have come or ended since. If a part of the factors
    cannot be read, those read last hold.

    Args:
        slurm: Access to Slurm.
        scheduler: Told of priorities; if its ratio is 0, nothing is read.
        log: Told once of each reason why factors cannot be read.
    """

    def __init__(self, slurm: Slurm, scheduler: Scheduler, log: Log) -> None:
        self._slurm, self._scheduler, self._log = slurm, scheduler, log
        self._factors = PriorityFactors()
        self._due_s, self._unread = -inf, ""
        self._is_renewed = False
        self._shares_due_s, self._jobs = -inf, frozenset[str]()

    def refresh(self, now: float) -> None:
        """Read the factors if they are due."""
        if not self._scheduler.state.priority_ratio or now < self._due_s:
            return
        self._due_s, self._is_renewed = now + REFRESH_S, True
        self._read(lambda: self._slurm.priority_factors(), now)

    def _refresh_shares(self, jobs: Mapping[str, SlurmJob], now: float) -> None:
        """Read the fair shares if jobs have come or ended since, though not again and again."""
        if not self._factors.weight_fair_share or now < self._shares_due_s:
            return
        present = frozenset(job.job_id for job in jobs.values() if job.state is not State.ENDED)
        if present == self._jobs:
            return
        self._jobs, before = present, self._factors.fair_share
        self._read(lambda: replace(self._factors, fair_share=self._slurm.fair_shares()), now)
        self._is_renewed = self._is_renewed or self._factors.fair_share != before

    def _read(self, factors: Callable[[], PriorityFactors], now: float) -> None:
        unread = ""
        try:
            self._factors = factors()
        except SlurmUnavailableError as error:
            unread = str(error)
        if unread and unread != self._unread:
            self._log(now, "priorities_unread", reason=unread)
        self._unread = unread
        self._shares_due_s = now + SHARES_PART * self._factors.period_s

    def assign(self, seen: Mapping[str, SlurmJob], nodes: Sequence[SlurmNode], now: float) -> None:
        """Tell the scheduler the priorities of jobs that have none yet, and of all that wait if they are new.

        Args:
            seen: All jobs as Slurm last showed them, by number.
            nodes: The cluster's nodes.
            now: The time, seconds.
        """
        state = self._scheduler.state
        if not state.priority_ratio:
            return
        self._refresh_shares(seen, now)
        renewed, self._is_renewed = self._is_renewed, False
        chosen = [job for job in state.jobs.values() if not job.priority or (renewed and not job.allocation)]
        count, cpus = len(nodes), sum(node.cpus for node in nodes)
        priorities = {
            job.job_id: priority_of(seen[job.job_id], job.job.submit_s, self._factors, (count, cpus), now)
            for job in chosen
        }
        if priorities:
            self._scheduler.set_priorities(priorities, now)


def priority_of(
    job: SlurmJob, submit_s: float, factors: PriorityFactors, cluster: tuple[float, float], now: float
) -> float:
    """The priority that Slurm would give a job if nobody held it.

    The age counts from the first submission, also after a requeue, at which Slurm begins anew.

    Args:
        job: The job.
        submit_s: When it was submitted, seconds.
        factors: Weights and factors.
        cluster: Nodes and CPUs of the cluster.
        now: The time, seconds.
    """
    nodes, cpus = cluster
    size = job.min_nodes / max(1.0, nodes)
    if cpus:
        size = (size + job.tasks * job.cpus_per_task / cpus) / 2
    partitions = (factors.partitions.get(name, 0.0) for name in job.partition.split(","))
    return max(
        LEAST,
        factors.weight_age * min(1.0, max(0.0, now - submit_s) / factors.max_age_s)
        + factors.weight_fair_share * factors.fair_share.get((job.account, job.user), 0.0)
        + factors.weight_job_size * min(1.0, 1 - size if factors.favors_small else size)
        + factors.weight_partition * max(partitions)
        + factors.weight_qos * factors.qos.get(job.qos, 0.0)
        - job.nice,
    )
