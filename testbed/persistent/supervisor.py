"""The process that owns a persistent cluster: all of it ends with this process, however that ends."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import NoReturn

from dally.errors import DallyError
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from testbed.persistent.shape import HostsShape, LocalClusterShape, Shape, read_shape
from testbed.persistent.state import PersistentState, mark_process, own_mark, write_state

READY = "ready"
"""What it says when all nodes are idle; all else that it says is what went wrong."""

REMOTE = "testbed.remote.clusters"
"""Loaded only for hosts: it needs paramiko, which a cluster on this machine does not."""

_Up = tuple[PersistentState, Callable[[], bool]]
"""A cluster's state once it is up, and what tells whether it has ended."""

_WATCH_S = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def supervisor_argv(folder: Path, shape: Shape, handle: int) -> tuple[str, ...]:
    """The command that keeps a cluster up in a folder, which is locked by the handle."""
    return sys.executable, "-P", "-m", __name__, str(folder), str(handle), json.dumps(asdict(shape))


def supervise(folder: Path, handle: int, shape: Shape) -> None:
    """Bring a cluster up and keep it until a signal comes, its network is gone, or a host of it.

    Raises:
        DallyError: It cannot be brought up; nothing of it is left.
        SystemExit: A signal came; nothing is left.
    """
    for number in _SIGNALS:
        signal.signal(number, _end)
    begun = PersistentState(shape, time.time(), own_mark())
    write_state(folder, begun)
    up = (
        _on_hosts(folder, begun, shape)
        if isinstance(shape, HostsShape)
        else _here(folder, begun, shape, handle)
    )
    with up as (state, has_ended):
        try:
            write_state(folder, state)
            print(READY, flush=True)
            # Part from the terminal or pipe of the command that waited for this word.
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (sys.stdout, sys.stderr):
                os.dup2(null, stream.fileno())
            os.close(null)
            while not has_ended():
                time.sleep(_WATCH_S)
        finally:
            _ignore_signals()


def _end(number: int, frame: FrameType | None) -> NoReturn:
    _ignore_signals()
    sys.exit(0)


def _ignore_signals() -> None:
    """Let what ends a cluster come to its end."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _here(folder: Path, begun: PersistentState, shape: LocalClusterShape, handle: int) -> Iterator[_Up]:
    """A cluster on this machine, which removes its folder when it ends."""
    local_slurm = LocalSlurm(shape.spec(folder), kept_open=(handle,))
    local_slurm.start()
    try:
        network = local_slurm.network
        assert network
        holder = mark_process(network.holder)
        yield replace(begun, holder=holder, port=local_slurm.spec.port), lambda: network.ended
    finally:
        local_slurm.stop()


@contextmanager
def _on_hosts(folder: Path, begun: PersistentState, shape: HostsShape) -> Iterator[_Up]:
    """A cluster on hosts; what is left of it here is removed when it ends."""
    try:
        with import_module(REMOTE).private_slurm(shape) as (place, has_ended):
            yield replace(begun, place=place), has_ended
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    try:
        supervise(Path(sys.argv[1]), int(sys.argv[2]), read_shape(json.loads(sys.argv[3])))
    except (DallyError, OSError) as failure:
        sys.exit(str(failure))
