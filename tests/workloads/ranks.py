"""Starts processes that train together on this machine, as a launcher would."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from tests.patience import LONGEST_S
from workloads.preload_client import PRELOADED

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class EndedRank:
    """How one rank ended."""

    code: int
    output: str
    error: str


@contextmanager
def preloaded(socket: Path, module: str = "workloads.preload") -> Iterator[None]:
    """Ranks of `workloads.train` start from a process that has loaded torch, which takes seconds."""
    with torch_server(socket, module) as wait, pytest.MonkeyPatch.context() as patch:
        wait()
        patch.setenv(PRELOADED, str(socket.parent))
        patch.setenv("SLURMD_NODENAME", socket.name)
        yield


@contextmanager
def started_with_torch(local_slurm: LocalSlurm) -> Iterator[None]:
    """Start a Slurm whose nodes share one process that has loaded torch; afterwards all of it is ended.

    They share this machine, too, unless there is a network. Each loading it for itself would take as many
    times six seconds of a core.

    Raises:
        DallyError: It does not come up.
    """
    socket = local_slurm.spec.folder / "torch"
    with torch_server(socket, environment=local_slurm.environment) as wait:
        local_slurm.start()
        try:
            wait()
            share_torch(local_slurm, socket)
            yield
        finally:
            local_slurm.stop()


def share_torch(local_slurm: LocalSlurm, socket: Path) -> None:
    """Have commands on all nodes start from the process that serves at a socket."""
    local_slurm.spec.preloaded.mkdir(exist_ok=True)
    for node in local_slurm.spec.node_names():
        (local_slurm.spec.preloaded / node).unlink(missing_ok=True)
        (local_slurm.spec.preloaded / node).symlink_to(socket)


@contextmanager
def torch_server(
    socket: Path, module: str = "workloads.preload", environment: Mapping[str, str] | None = None
) -> Iterator[Callable[[], None]]:
    """A process that loads torch, then starts commands; what is given waits until it has loaded it."""
    server = subprocess.Popen([sys.executable, "-m", module, str(socket)], cwd=ROOT, env=environment)

    def wait() -> None:
        while not socket.exists():
            assert server.poll() is None
            time.sleep(0.05)

    try:
        yield wait
    finally:
        server.kill()
        server.wait()


@contextmanager
def started(ranks: int, module: str, *arguments: str) -> Iterator[Sequence[subprocess.Popen[str]]]:
    """`python -m module arguments` as so many ranks, none of which outlives this.

    `RANK` in an argument becomes the rank.
    """
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, *(argument.replace("RANK", str(rank)) for argument in arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **_place(rank, ranks, port)},
        )
        for rank in range(ranks)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def finish(processes: Sequence[subprocess.Popen[str]]) -> list[EndedRank]:
    """Wait for all of them."""
    ended = []
    for process in processes:
        output, error = process.communicate(timeout=LONGEST_S)
        ended.append(EndedRank(process.returncode, output, error))
    return ended


def run(ranks: int, module: str, *arguments: str) -> list[EndedRank]:
    """Start them and wait for all."""
    with started(ranks, module, *arguments) as processes:
        return finish(processes)


def _place(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
