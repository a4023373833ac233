"""Running jobs that a plan stops or moves, on trial: their GPUs are free again until the trial ends."""

from collections.abc import Callable, Iterable

from dally.cluster.free import FreeGpus
from dally.plan import Decision, Migrate, Preempt
from dally.policies.common.placements import Placement
from dally.state import JobState


class Evictions:
    """The jobs that a plan stops, each with the job that it stops for and why, and those that it moves."""

    def __init__(self, free: FreeGpus) -> None:
        self._free = free
        self._decided: dict[int, tuple[JobState, Decision]] = {}

    def __contains__(self, job: JobState) -> bool:
        return job.order in self._decided

    def __len__(self) -> int:
        return len(self._decided)

    def jobs(self) -> list[JobState]:
        """The jobs that are stopped or moved."""
        return [victim for victim, _ in self._decided.values()]

    def release(self, victims: Iterable[JobState]) -> None:
        """Try what stopping these jobs would free."""
        for victim in victims:
            self._free.give(victim.allocation)

    def take_back(self, victims: Iterable[JobState]) -> None:
        """End the trial: these jobs keep their GPUs."""
        for victim in victims:
            self._free.take(victim.allocation)

    def stop(self, victim: JobState, by: JobState, reason: str) -> None:
        """Stop a released job for another."""
        self._decided[victim.order] = victim, Preempt(victim.job_id, (by.job_id,), reason)

    def move(self, job: JobState, placement: Placement, reason: str) -> None:
        """Move a released job to other free GPUs at once."""
        self._free.take(placement.allocation)
        self._decided[job.order] = job, Migrate(job.job_id, placement.allocation, placement.level, reason)

    def move_stopped(self, place: Callable[[JobState], Placement | None]) -> None:
        """Move stopped jobs that fit on GPUs that stay free, in the order of their stops."""
        for victim, stop in list(self._decided.values()):
            if isinstance(stop, Preempt) and (placement := place(victim)) is not None:
                reason = f"made room for job {stop.by[0]} ({stop.reason}); other GPUs stay free"
                self.move(victim, placement, reason)

    def stopped(self) -> list[JobState]:
        """The jobs that wait again."""
        return [victim for victim, decision in self._decided.values() if isinstance(decision, Preempt)]

    def decisions(self) -> tuple[Decision, ...]:
        """The stops and moves, in the order in which they were decided."""
        return tuple(decision for _, decision in self._decided.values())
