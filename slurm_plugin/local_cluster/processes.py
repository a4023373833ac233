"""The processes of a local cluster, found by their environment, and the supervisor that ends them.

Daemons and jobs carry SLURM_CONF of their cluster, and SLURMD_NODENAME of their node, in their environment.
What stands between them, slurmstepd, is without either in newer versions, but keeps slurmd's log open.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_GONE_WITHIN_S = 10.0
_POLL_S = 0.02
_PARENT = 1
"""Where a process's parent stands among the words after its name in /proc/PID/stat."""


def find_processes(variables: Mapping[str, str], log: str = "") -> set[int]:
    """Numbers of the processes started with all these variables or with a log open, and of their descendants.

    This process is never among them, even if it has a log open to start a daemon with, and no zombie is.

    Args:
        variables: Environment variables and their values.
        log: How the path of the open log begins; empty if logs do not count.
    """
    wanted = {f"{name}={value}".encode() for name, value in variables.items()}
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                after_name = (entry / "stat").read_bytes().rpartition(b") ")[2].split()
                parents[int(entry.name)] = int(after_name[_PARENT])
                if wanted <= set((entry / "environ").read_bytes().split(b"\0")) or _has_open(entry, log):
                    found.add(int(entry.name))
    more = found
    while more:
        more = {pid for pid, parent in parents.items() if parent in more} - found
        found |= more
    return found


def end_processes(variables: Mapping[str, str], log: str = "") -> None:
    """Kill the processes that `find_processes` finds, until there are none or those left do not die.

    All are stopped before the first dies, as none is to tell the cluster of another's death. On a starved
    machine finding them can take longer than they are given to go: what is found is killed all the same.
    """
    deadline = time.monotonic() + _GONE_WITHIN_S
    while left := find_processes(variables, log):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        if time.monotonic() > deadline:
            return
        time.sleep(_POLL_S)


def child_of(pid: int) -> int | None:
    """The number of a process's first child; None if it has none or is gone."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return None
    return int(children[0]) if children else None


def start_supervisor(folder: Path, conf: Path, kept_open: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    """A process that waits for this one's end, in any way, then ends the cluster and removes its folder.

    Closing its standard input makes it do so at once.

    Args:
        folder: The cluster's folder.
        conf: Its slurm.conf.
        kept_open: File descriptors that it holds open until it is done.
    """
    command = [sys.executable, "-P", "-m", __name__, str(folder), str(conf)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, pass_fds=kept_open)


def _has_open(entry: Path, log: str) -> bool:
    if not log:
        return False
    for link in (entry / "fd").iterdir():
        with suppress(OSError):
            if os.readlink(link).startswith(log):
                return True
    return False


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_processes({"SLURM_CONF": sys.argv[2]}, f"{sys.argv[1]}/log/slurmd-")
    shutil.rmtree(sys.argv[1], ignore_errors=True)
