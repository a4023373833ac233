"""Ports of clusters on one machine: no two get the same, also while a daemon that will listen is down."""

import socket
from contextlib import suppress
from random import Random

from slurm_plugin.local_cluster.cluster import ClusterError

_FIRST, _LAST = 10_000, 32_000
"""Below those that the system gives to connections, so that a restarted daemon finds its own still free."""

_BLOCK = 100
"""Ports are reserved by blocks of so many: a cluster of a thousand nodes holds eleven."""


class ReservedPorts:
    """Free ports in a row that nobody else reserves on this machine until `release`, or this process ends.

    A free port that is only looked for may be gone when a daemon binds it: others look at the same time, and
    a daemon that is killed and started again leaves its port free meanwhile.

    Attributes:
        first: The first of them.

    Raises:
        ClusterError: None are left.
    """

    def __init__(self, count: int):
        self._holds: list[socket.socket] = []
        blocks = -(-count // _BLOCK)
        starts = list(range(_FIRST, _LAST - blocks * _BLOCK + 1, _BLOCK))
        Random().shuffle(starts)
        for self.first in starts:
            if self._hold(blocks) and self._are_free(count):
                return
            self.release()
        raise ClusterError(f"found no {count} free ports in a row between {_FIRST} and {_LAST}")

    def release(self) -> None:
        """Let others have them."""
        for hold in self._holds:
            hold.close()
        self._holds.clear()

    def _hold(self, blocks: int) -> bool:
        """Whether these blocks are ours now; the kernel frees such names when their process ends."""
        for port in range(self.first, self.first + blocks * _BLOCK, _BLOCK):
            self._holds.append(hold := socket.socket(socket.AF_UNIX))
            try:
                hold.bind(f"\0dally-ports-{port}")
            except OSError:
                return False
        return True

    def _are_free(self, count: int) -> bool:
        with suppress(OSError):
            for port in range(self.first, self.first + count):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("", port))
            return True
        return False
