"""Foreign TCP flows between the hosts of a run while it is measured."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dally.errors import DallyError
from profiler.rank.exchange import RankExchange
from profiler.rank.peers import Peer, address_among


class FlowError(DallyError):
    """The background flows could not be started."""


@contextmanager
def background_flows(count: int, peers: Sequence[Peer], exchange: RankExchange) -> Iterator[tuple[int, ...]]:
    """Keep so many flows going from every host to the next, the last one's to the first.

    So each host's link carries `count` flows out and `count` in, whatever the number of hosts. Runs on one
    host have none.

    Args:
        count: Flows from one host to the next.
        peers: All ranks; those that share a network stack are on one host.
        exchange: Between them; all of them call this.

    Yields:
        Ids of the processes of this rank, whose work is no foreign load.

    Raises:
        FlowError: One could not be started, on any host.
    """
    # The lowest rank of each network stack.
    firsts = sorted({peer.stack: peer.rank for peer in reversed(peers)}.values())
    if not count or len(firsts) < 2:
        yield ()
        return
    process = None
    if exchange.rank in firsts:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "profiler.rank.flows"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    try:
        accepts = ""  # where this host's process accepts flows
        if process:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            accepts = f"{address_among(peers, exchange.rank)} {port}" if port else ""
        targets = exchange.gather(accepts)
        problem = None
        if process:
            after = firsts[(firsts.index(exchange.rank) + 1) % len(firsts)]
            problem = _connect(process, targets[after], count)
        for peer, what in zip(peers, exchange.gather(problem), strict=True):
            if what is not None:
                raise FlowError(f"no background flows from {peer.host}: {what}")
        yield (process.pid,) if process else ()
    finally:
        if process:
            with process:  # closes its pipes and waits for its end
                process.kill()


def _connect(process: subprocess.Popen[str], target: str, count: int) -> str | None:
    """Have a process send; what went wrong, if anything."""
    if not target:
        return "the next host accepts no flows"
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        process.stdin.write(f"{target} {count}\n")
        process.stdin.flush()
    except BrokenPipeError:
        return process.stderr.read().strip()
    return None if process.stdout.readline().strip() == "sending" else process.stderr.read().strip()
