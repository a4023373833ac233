"""How tests wait for what must happen: long, since only a test that fails takes it, and seldom busy."""

import time
from collections.abc import Callable

LONGEST_S = 420.0
"""Waiting for what other processes do; ends in a failure when it never happens."""

_LONGEST_PAUSE_S = 1.0
_PAUSES_FOR_A_LOOK = 4.0


def wait_until(
    holds: Callable[[], object],
    what: str | Callable[[], object] = "",
    timeout_s: float = LONGEST_S,
    pause_s: float = 0.02,
) -> None:
    """Wait until something holds.

    Most looks start commands, on a machine that others wait for, too: they take a fifth of the time at most.

    Args:
        holds: Looks whether it does.
        what: It, for the message of a failure; or a function that tells it then.
        timeout_s: How long it may take, seconds.
        pause_s: The shortest pause between two looks, seconds.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()
        if holds():
            return
        looked_s = time.monotonic() - began
        assert time.monotonic() < deadline, f"waited in vain: {what() if callable(what) else what}"
        time.sleep(max(pause_s, min(_PAUSES_FOR_A_LOOK * looked_s, _LONGEST_PAUSE_S)))
