"""A heap of events in order of time, then priority, then insertion."""

from enum import IntEnum
from heapq import heappop, heappush
from math import inf
from typing import Generic, TypeVar

Payload = TypeVar("Payload")


class Priority(IntEnum):
    """Order of events at the same moment: what frees GPUs first, what asks for them last."""

    END = 0
    PHASE = 1
    REPAIR = 2
    FAILURE = 3


class EventQueue(Generic[Payload]):
    """Events to come. Time never goes back: an event before the last one popped is refused."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Priority, int, Payload]] = []  # the first one is never cancelled
        self._cancelled: set[int] = set()
        self._pushed = 0
        self._now = -inf

    def push(self, time_s: float, priority: Priority, payload: Payload) -> int:
        """Add an event; its number, to cancel it by until it is popped."""
        if time_s < self._now:
            raise AssertionError(f"an event at {time_s} s lies before now, {self._now} s")
        self._pushed += 1
        heappush(self._heap, (time_s, priority, self._pushed, payload))
        return self._pushed

    def cancel(self, number: int) -> None:
        """Drop an event by its number."""
        self._cancelled.add(number)  # it stays in the heap until it would be the next one
        self._drop_cancelled()

    @property
    def next_s(self) -> float:
        """Time of the next event; inf if there is none."""
        return self._heap[0][0] if self._heap else inf

    def pop(self) -> tuple[Priority, Payload]:
        """Remove and return the next event."""
        self._now, priority, _, payload = heappop(self._heap)
        self._drop_cancelled()
        return priority, payload

    def _drop_cancelled(self) -> None:
        while self._heap and self._heap[0][2] in self._cancelled:
            self._cancelled.remove(heappop(self._heap)[2])
