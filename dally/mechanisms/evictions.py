"""Running jobs that a plan stops for others, on trial: their GPUs are free again until the trial ends."""

from collections.abc import Callable, Iterable

from dally.free import FreeGpus
from dally.mechanisms.placements import Placement
from dally.plan import Decision, Migrate, Preempt
from dally.state import JobState


class Evictions:
    """The jobs that a plan stops, each with the job that it stops for and why."""

    def __init__(self, free: FreeGpus) -> None:
        self._free = free
        self._stops: dict[int, tuple[JobState, Decision]] = {}

    def __contains__(self, job: JobState) -> bool:
        return job.order in self._stops

    def __len__(self) -> int:
        return len(self._stops)

    def jobs(self) -> list[JobState]:
        """The jobs that are stopped or moved."""
        return [victim for victim, _ in self._stops.values()]

    def release(self, victims: Iterable[JobState]) -> None:
        """Try what stopping these jobs would free."""
        for victim in victims:
            self._free.give(victim.allocation)

    def take_back(self, victims: Iterable[JobState]) -> None:
        """They keep their GPUs after all."""
        for victim in victims:
            self._free.take(victim.allocation)

    def stop(self, victim: JobState, by: JobState, reason: str) -> None:
        """A released job is stopped for another."""
        self._stops[victim.order] = victim, Preempt(victim.job_id, (by.job_id,), reason)

    def move(self, place: Callable[[JobState], Placement | None]) -> None:
        """Those that fit on GPUs that stay free go on there at once, in the order of their stops."""
        for order, (victim, stop) in self._stops.items():
            placement = place(victim)
            if placement is not None:
                self._free.take(placement.allocation)
                assert isinstance(stop, Preempt), "each is moved once"
                reason = f"made room for {stop.by[0]} ({stop.reason}); other GPUs stay free"
                move = Migrate(victim.job_id, placement.allocation, placement.level, reason)
                self._stops[order] = victim, move

    def stopped(self) -> list[JobState]:
        """The jobs that wait again."""
        return [victim for victim, decision in self._stops.values() if isinstance(decision, Preempt)]

    def decisions(self) -> tuple[Decision, ...]:
        """The stops and moves, in the order in which they were decided."""
        return tuple(decision for _, decision in self._stops.values())
