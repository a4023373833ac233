"""An end between two steps: SIGINT and SIGTERM are noted, and whoever works asks for them."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""Exit status after such an end, as shells have it for SIGINT."""


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Let SIGINT and SIGTERM end what goes on at its next moment instead of tearing it apart.

    Yields:
        Whether one came.
    """
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
