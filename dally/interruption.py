"""Ends a program between two steps: SIGINT and SIGTERM are noted, and the program asks for them."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""Exit status of a program that was ended so, as shells have it for SIGINT."""


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Note SIGINT and SIGTERM instead of dying of them, so that the program can end after its present step.

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
