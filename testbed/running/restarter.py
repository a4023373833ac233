"""Restarts a daemon whenever it ends, as systemd's Restart=always would, until it is ended itself.

`python -m testbed.running.restarter LOG COMMAND ...` runs on the head node. The daemon's output goes to LOG
and LOG.err, its process id to LOG.pid; each start is a line of LOG.starts.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from dally.atomic_file import write_atomically

PAUSE_S = 0.5
"""Between the end of a daemon and its next start."""

_GRACE_S = 10.0


def restarting_command(python: str, log: Path, argv: Sequence[str]) -> tuple[str, ...]:
    """The command that keeps another one running, by the interpreter of the machine where it runs."""
    return (python, "-P", "-m", "testbed.running.restarter", str(log), *argv)


def daemon_file(log: Path, what: str) -> Path:
    """The file with more about a daemon: `err`, `pid` or `starts`."""
    return log.with_name(f"{log.name}.{what}")


class DaemonRestarter:
    """One daemon that is kept running; its output goes to a log."""

    def __init__(self, log: Path, argv: Sequence[str]) -> None:
        self._log, self._argv = log, argv
        self._child: subprocess.Popen[bytes] | None = None
        self._ending = False

    def run(self) -> None:
        """Keep it running until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        while not self._ending:
            child = self._start()
            child.wait()
            if not self._ending:
                time.sleep(PAUSE_S)

    def _start(self) -> subprocess.Popen[bytes]:
        # The daemon must not outlive this process, however that ends.
        argv = ["setpriv", "--pdeathsig", "TERM", *self._argv]
        with self._log.open("ab") as out, daemon_file(self._log, "err").open("ab") as err:
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        self._child = child
        if self._ending:  # the signal came while it was started
            child.terminate()
        write_atomically(daemon_file(self._log, "pid"), f"{child.pid}\n")
        with daemon_file(self._log, "starts").open("a", encoding="ascii") as starts:
            starts.write(f"{time.time():.3f} {child.pid}\n")
        return child

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._ending = True
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()
            signal.signal(signal.SIGALRM, self._kill)
            signal.setitimer(signal.ITIMER_REAL, _GRACE_S)

    def _kill(self, number: int, frame: FrameType | None) -> None:
        if self._child is not None and self._child.returncode is None:
            self._child.kill()


if __name__ == "__main__":
    DaemonRestarter(Path(sys.argv[1]), sys.argv[2:]).run()
