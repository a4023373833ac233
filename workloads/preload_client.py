"""Has a training command run by a process of this node that has torch loaded already, and stands for it.

Where many nodes share the cores of one machine, as in a local testbed, loading torch on every rank at every
start would keep the cores busier than the training itself. Slurm and the job see no difference: output,
signals and exit code are those of the command, and neither side outlives the other.
"""

import json
import os
import signal
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

from workloads.stopping import STOP_SIGNALS

PRELOADED = "DALLY_PRELOADED"
"""The variable that names a folder with a socket for each node, called as the node."""

LENGTH = struct.Struct("!I")
"""What comes before a request: its bytes; standard input, output and error come with it."""

FORWARDED = (*STOP_SIGNALS, signal.SIGINT)
KILLED = 128 + signal.SIGKILL


def run_preloaded(arguments: Sequence[str]) -> int | None:
    """Have a training command carried out by this node's preloaded process, if there is one for this user.

    Args:
        arguments: Of `dally-train`.

    Returns:
        Its exit code, 128 and the signal if one ended it; None if nobody took it.
    """
    folder, node = os.environ.get(PRELOADED), os.environ.get("SLURMD_NODENAME")
    if not folder or not node:
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(Path(folder) / node))
        except OSError:
            return None
        for number in FORWARDED:
            signal.signal(number, lambda number, frame: connection.send(bytes([number])))
        request = {"arguments": list(arguments), "environment": dict(os.environ), "folder": str(Path.cwd())}
        text = json.dumps(request).encode()
        socket.send_fds(connection, [LENGTH.pack(len(text))], [0, 1, 2])
        connection.sendall(text)
        answer = connection.recv(1)
    return answer[0] if answer else KILLED
