"""Clocks for what runs on the host and for what a GPU runs later than it was asked to."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_make_event: Callable[..., torch.cuda.Event] = torch.cuda.Event


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment: on the host, and in the GPU's stream where there is one."""

    host_s: float
    event: torch.cuda.Event | None = None

    def since(self, start: "Mark") -> float:
        """Seconds from `start` to here; on a GPU only once the clock has settled."""
        if self.event is None or start.event is None:
            return self.host_s - start.host_s
        return float(start.event.elapsed_time(self.event)) / 1e3


@dataclass(frozen=True, slots=True)
class Clock:
    """Marks moments between pieces of work on a device.

    A GPU works later than it is asked to: there, marks are events in the current stream, and nothing waits
    for them.
    """

    device: torch.device

    def mark(self) -> Mark:
        """The moment at which all work asked for so far by this thread is done."""
        event = None
        if self.device.type == "cuda":
            event = _make_event(enable_timing=True)
            event.record()
        return Mark(time.perf_counter(), event)

    def settle(self) -> None:
        """Wait until all marked moments have come."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
