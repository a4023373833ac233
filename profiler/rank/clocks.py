"""Clocks for what runs on the host and for what a GPU runs later than it was asked to."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

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


class Stopwatch(Protocol):
    """Marks moments between pieces of work."""

    def mark(self) -> Mark:
        """The moment at which all work asked for so far by this thread is done."""

    def settle(self) -> None:
        """Wait until all marked moments have come."""


class HostClock:
    """For work that is done when its call returns."""

    def mark(self) -> Mark:
        """Now."""
        return Mark(time.perf_counter())

    def settle(self) -> None:
        """Nothing to wait for."""


class CudaClock:
    """For work that a GPU does later: marks are events in the current stream, nothing waits for them."""

    def mark(self) -> Mark:
        """An event behind the work queued so far."""
        event = _make_event(enable_timing=True)
        event.record()
        return Mark(time.perf_counter(), event)

    def settle(self) -> None:
        """Wait for all streams of the GPU."""
        torch.cuda.synchronize()


def clock_of(device: torch.device) -> Stopwatch:
    """The clock for work on a device."""
    return CudaClock() if device.type == "cuda" else HostClock()
