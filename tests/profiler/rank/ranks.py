"""Starts the ranks of a launch on this machine."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from profiler.spec import MeasurementSpec, format_spec
from tests.patience import LONGEST_S
from workloads.preload_client import PRELOADED

Rank = subprocess.Popen[str]


@contextmanager
def ranks(size: int, module: Sequence[str]) -> Iterator[list[Rank]]:
    """`python -m MODULE` on so many ranks, rank 0 first; whatever is left of them is killed at the end.

    Where a process that has loaded torch is at hand, it forks them.
    """
    port = free_port()
    forked = ("tests.profiler.rank.forked_rank",) if PRELOADED in os.environ else ()
    started: list[Rank] = []
    try:
        for rank in range(size):
            env = {
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "DALLY_HOST": f"host{rank}",
                "CUDA_VISIBLE_DEVICES": "",
            }
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", *forked, *module],
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def spec_arguments(spec: MeasurementSpec) -> tuple[str, ...]:
    """What a rank is started with."""
    return ("profiler.rank", format_spec(spec))


def finish(started: Sequence[Rank]) -> list[tuple[int, str, str]]:
    """Exit status, standard output and standard error of each rank, once it ended."""
    ended = []
    for process in started:
        out, err = process.communicate(timeout=LONGEST_S)
        ended.append((process.returncode, out, err))
    return ended


def free_port() -> int:
    """A port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
