"""Says in one line why a rank failed, where torch, gloo or NCCL say it in many."""

import re
from collections.abc import Sequence

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
    if others and _LOST.search(text):
        return f"lost {_who(text, others)}: it ended, or the network between broke"
    if others and _LATE.search(text):
        return f"{_who(text, others)} did not answer in time"
    return f"{type(error).__name__}: {first_line(error)}"


def _who(text: str, others: Sequence[Peer]) -> str:
    """The rank that a message speaks of by its address, or those it may speak of."""
    found = _ADDRESS.search(text)
    there = [peer for peer in others if found and peer.address == found[1]] or others
    if len(there) == 1:
        return f"rank {there[0].rank} on {there[0].host}"
    hosts = ", ".join(dict.fromkeys(peer.host for peer in there))
    return f"one of ranks {', '.join(str(peer.rank) for peer in there)} on {hosts}"
