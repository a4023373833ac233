"""The process that owns a standing cluster: all of it ends with this process, however that ends."""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from dally.errors import DallyError
from testbed.local_slurm import LocalSlurm
from testbed.standing.shape import LabShape
from testbed.standing.state import StandingState, mark_process, own_mark, write_state

READY = "ready"
"""What it says when all nodes are idle; all else that it says is what went wrong."""

_WATCH_S = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def keeper_argv(folder: Path, shape: LabShape, handle: int) -> tuple[str, ...]:
    """The command that keeps a cluster up in a folder, which is locked by the handle."""
    numbers = [shape.racks, shape.gpus, shape.rate_bps, shape.uplink_bps]
    return sys.executable, "-m", __name__, str(folder), str(handle), json.dumps(numbers)


def keep(folder: Path, handle: int, shape: LabShape) -> None:
    """Bring a cluster up and keep it until a signal comes or its network is gone.

    Raises:
        DallyError: It cannot be brought up; nothing of it is left.
        SystemExit: A signal came; nothing is left.
    """
    for number in _SIGNALS:
        signal.signal(number, _end)
    state = StandingState(shape, time.time(), own_mark())
    write_state(folder, state)
    lab = LocalSlurm(shape.spec(folder), kept_open=(handle,))
    lab.start()
    try:
        assert lab.network
        holder = mark_process(lab.network.holder)
        write_state(folder, replace(state, holder=holder, port=lab.spec.port))
        _say_ready()
        while not lab.network.ended:
            time.sleep(_WATCH_S)
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        lab.stop()


def _end(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)


def _say_ready() -> None:
    """Tell who waits for it, then part from that terminal or pipe."""
    print(READY, flush=True)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(null, stream.fileno())
    os.close(null)


def _main(folder: str, handle: str, numbers: str) -> None:
    racks, *others = json.loads(numbers)
    try:
        keep(Path(folder), int(handle), LabShape(tuple(racks), *others))
    except (DallyError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main(*sys.argv[1:])
