"""Starts that were decided and cannot be carried out yet, as others still write their checkpoints there."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from dally.cluster.topology import Topology
from dally.hostlist import fold
from dally.plan import Migrate, Start
from slurm_plugin.controller.managed_job import ManagedJob, PendingPhase, StoppingPhase
from slurm_plugin.controller.unavailable_gpus import kept_gpus


@dataclass(frozen=True, slots=True)
class PendingStart:
    """One such decision, and the jobs that leave for it by number; itself among them, if it moves."""

    decision: Start | Migrate
    leaving: frozenset[str]


class PendingStarts:
    """Reserves the GPUs of such starts, and tells when they have become free.

    A policy may have nothing new to decide until its next round; what it decided stands until then.

    Args:
        managed_jobs: Our jobs, by number.
        topology: The cluster.
        restart_gap_s: A job does not go back to nodes that it left less than this ago, seconds.
    """

    def __init__(
        self, managed_jobs: Mapping[str, ManagedJob], topology: Topology, restart_gap_s: float
    ) -> None:
        self._managed_jobs, self._topology, self._gap_s = managed_jobs, topology, restart_gap_s
        self._pending: dict[str, PendingStart] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._pending

    def gpus(self, job_id: str) -> int:
        """GPUs that a job is to have; 0 if no start of it is pending."""
        start = self._pending.get(job_id)
        return 0 if start is None else sum(count for _, count in start.decision.allocation)

    def explanation(self, job_id: str) -> str:
        """Whom a job waits for whose start is pending, in words; empty if none is."""
        start, known = self._pending.get(job_id), self._managed_jobs
        if start is None or not self._stands(job_id):
            return ""
        leaving = (each for each in start.leaving if each in known and each != job_id)
        stopping = sorted(each for each in leaving if isinstance(known[each].phase, StoppingPhase))
        nodes = fold([*self._topology.named(start.decision.allocation)])
        left = f"{', '.join(stopping)} {'has' if len(stopping) == 1 else 'have'} left"
        return f"starts on {nodes} once {left if stopping else 'they are free'}"

    def cover(self, job_ids: Collection[str]) -> bool:
        """Whether all these jobs have GPUs coming to them."""
        return self._pending.keys() >= set(job_ids)

    def add(self, start: PendingStart) -> None:
        """A start is to be carried out later; an earlier one of the same job stands."""
        self._pending.setdefault(start.decision.job_id, start)

    def reserved_gpus(self, now: float) -> list[Mapping[str, int]]:
        """GPUs by node that others must not get meanwhile; starts whose jobs do something else by now end."""
        self._pending = {job_id: start for job_id, start in self._pending.items() if self._stands(job_id)}
        known, named = self._managed_jobs, self._topology.named
        return [
            kept_gpus(self._topology, known[each.job_id].job, named(each.allocation))
            for each, _ in self.early(now)
        ]

    def early(self, now: float) -> Iterator[tuple[Start | Migrate, float]]:
        """The starts for which others have yet to leave, and when the last of these must have, seconds."""
        for start in self._pending.values():
            if self._stands(start.decision.job_id) and not self._is_due(start, now):
                leaving = (self._managed_jobs[each] for each in start.leaving if each in self._managed_jobs)
                until_s = (each.phase.until_s for each in leaving if isinstance(each.phase, StoppingPhase))
                yield start.decision, max(until_s, default=now)

    def take_due(self, now: float) -> list[Start | Migrate]:
        """The starts for which nobody has to leave any more; they are no longer pending."""
        due = [start.decision for start in self._pending.values() if self._is_due(start, now)]
        for decision in due:
            del self._pending[decision.job_id]
        return due

    def may_start(self, decision: Start | Migrate, now: float) -> bool:
        """Whether its job waits, and left none of these nodes just now: Slurm might still clean up there."""
        managed = self._managed_jobs[decision.job_id]
        rested = now >= managed.left_s + self._gap_s
        nodes = self._topology.named(decision.allocation)
        waits = isinstance(managed.phase, PendingPhase)
        return waits and (rested or nodes.keys().isdisjoint(managed.left_nodes))

    def _stands(self, job_id: str) -> bool:
        """Whether its job still waits for it, has this size and may use these nodes: users change jobs."""
        managed = self._managed_jobs.get(job_id)
        if managed is None or not (isinstance(managed.phase, PendingPhase) or managed.stops_to_migrate):
            return False
        job, gpus = managed.job, self._topology.named(self._pending[job_id].decision.allocation)
        whole = all(count == (job.gpus_per_machine or count) for count in gpus.values())
        has_size = whole and job.runs_on([*gpus.values()])
        return has_size and (job.machines is None or job.machines >= gpus.keys())

    def _is_due(self, start: PendingStart, now: float) -> bool:
        ready = self._stands(start.decision.job_id) and self.may_start(start.decision, now)
        known = self._managed_jobs
        return ready and not any(
            each in known and isinstance(known[each].phase, StoppingPhase) for each in start.leaving
        )
