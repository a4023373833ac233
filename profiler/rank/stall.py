"""Ends a rank that gets no further: a collective for which another rank never comes has no end of its own."""

import threading
import time
from collections.abc import Callable

_LOOKS = 20
"""How often it is looked within the time."""


class StallWatch:
    """Ends this process with one line when it has not said for a while that it goes on.

    A thread of Python's is enough: torch lets go of the interpreter while it waits for a collective or a GPU.

    Attributes:
        doing: What goes on, for the message.
    """

    def __init__(self, stall_s: float, end: Callable[[str], object]) -> None:
        """Begin to watch.

        Args:
            stall_s: Longest time between two calls of `go_on`.
            end: Called once with what is wrong; it is to end the process.
        """
        self.doing = "meeting the other ranks"
        self._stall_s, self._end = stall_s, end
        self._ended = threading.Event()
        self._last_s = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def go_on(self) -> None:
        """Say that this rank is not stuck."""
        self._last_s = time.monotonic()

    def stop(self) -> None:
        """Watch no longer."""
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(self._stall_s / _LOOKS):
            if time.monotonic() - self._last_s > self._stall_s:
                self._end(
                    f"got no further for {self._stall_s:g} s, at {self.doing}: another rank hangs, or the "
                    "network between"
                )
                return
