"""Bounds on what reading one document may take: processor time and memory."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_PAGE_BYTES = resource.getpagesize()


class TooLongError(Exception):
    """Reading took more processor time than it may."""


@contextmanager
def bounded_memory(more_bytes: int) -> Iterator[None]:
    """Give this process only so much more memory; what asks for more gets a MemoryError."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    now_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (now_bytes + more_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextmanager
def bounded_time(processor_s: float) -> Iterator[None]:
    """Raise TooLongError in what takes more processor time."""
    before = signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, processor_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLongError
