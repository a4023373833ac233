"""What will happen by itself in a Slurm in memory, in order of time."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from tests.slurm_plugin.fake_job import FakeJob


@dataclass(order=True, slots=True)
class _Event:
    at_s: float
    number: int
    job: FakeJob | None = field(compare=False)
    run_number: int = field(compare=False)
    action: Callable[[], None] = field(compare=False)

    @property
    def stale(self) -> bool:
        """Whether the event belongs to an earlier run of its job."""
        return self.job is not None and self.job.run_number != self.run_number


class FakeEvents:
    """Events to come; those of one moment in the order in which they were added."""

    def __init__(self) -> None:
        self._heap: list[_Event] = []
        self._numbers = count(1)

    def add(self, at_s: float, action: Callable[[], None], job: FakeJob | None = None) -> None:
        """Let something happen at a time; if it is about a job, only while the job's present run lasts."""
        run_number = job.run_number if job else 0
        heapq.heappush(self._heap, _Event(at_s, next(self._numbers), job, run_number, action))

    @property
    def next_s(self) -> float | None:
        """When something will happen; None if nothing will."""
        while self._heap and self._heap[0].stale:
            heapq.heappop(self._heap)
        return self._heap[0].at_s if self._heap else None

    def happen(self, at_s: float) -> None:
        """Let all happen that comes next at this time, with what that brings about at once."""
        while self.next_s == at_s:
            heapq.heappop(self._heap).action()
