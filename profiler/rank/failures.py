"""Why a rank failed, in one line where torch, gloo or NCCL use many; and the end of one that hangs."""

import re
import threading
import time
from collections.abc import Callable, Sequence

import torch

from dally.errors import DallyError
from profiler.rank.peers import Peer
from workloads.group import first_line

_ADDRESS = re.compile(r"\[([0-9a-fA-F:.]+)\]:\d+")
_LOST = re.compile(
    r"connection (closed|reset|refused)|broken pipe|ncclRemoteError|remote process exited", re.I
)
_NO_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory|STATUS_ALLOC_FAILED")
_LATE = re.compile(r"timed? ?out", re.I)

_CHECKS = 20
"""How often a watch checks within the time after which a rank counts as stuck."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether what a rank asked for does not fit into its GPU's memory, or the machine's."""
    kinds = (torch.cuda.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or bool(_NO_MEMORY.search(str(error)))


def explain(error: Exception, others: Sequence[Peer]) -> str:
    """Why a rank failed.

    Args:
        error: What it raised.
        others: All other ranks; none if they had not met.
    """
    text = str(error)
    if isinstance(error, DallyError):
        return text
    if is_out_of_memory(error):
        return f"out of memory: {first_line(error)}"
    lost, late = _LOST.search(text), _LATE.search(text)
    if others and (lost or late):
        # The message tells an address at best: name the rank there, or all that it may be.
        found = _ADDRESS.search(text)
        there = [peer for peer in others if found and peer.address == found[1]] or others
        hosts = ", ".join(dict.fromkeys(peer.host for peer in there))
        who = f"rank {there[0].rank} on {hosts}"
        if len(there) > 1:
            who = f"one of ranks {', '.join(str(peer.rank) for peer in there)} on {hosts}"
        if lost:
            return f"lost {who}: it ended, or the network between broke"
        return f"{who} did not answer in time"
    return f"{type(error).__name__}: {first_line(error)}"


class StallWatch:
    """Ends this process with one line when it has made no progress for a while.

    A collective for which another rank never comes has no end of its own. A thread of Python's is enough:
    torch lets go of the interpreter while it waits for a collective or a GPU.

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
        self._last_s = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def go_on(self) -> None:
        """Say that this rank is not stuck."""
        self._last_s = time.monotonic()

    def _watch(self) -> None:
        while time.monotonic() - self._last_s <= self._stall_s:
            time.sleep(self._stall_s / _CHECKS)
        self._end(
            f"got no further for {self._stall_s:g} s, at {self.doing}: "
            "another rank hangs, or the network between"
        )
