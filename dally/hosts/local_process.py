"""A process of this machine: started in a group of its own, ended for sure."""

import os
import select
import signal
import subprocess
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from typing import IO

from dally.hosts.processes import Command, ProcessError

GRACE_S = 10.0
"""Seconds between the request to end, SIGTERM, and SIGKILL."""


class LocalProcess:
    """A process of this machine, in a process group of its own.

    It gets SIGTERM when the thread that started it ends, so also when this whole process is killed. Standard
    input is empty.
    """

    def __init__(self, command: Command, open_stdin: bool = False) -> None:
        """Start it.

        Args:
            command: What is run.
            open_stdin: Its standard input stays open until `stop`, or until this process is gone.

        Raises:
            ProcessError: There is no `setpriv`.
        """
        try:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command.argv],
                env={**os.environ, **command.env},
                stdin=subprocess.PIPE if open_stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise ProcessError("setpriv is missing; as root: apt-get install util-linux") from error
        except OSError as error:
            raise ProcessError(f"{command.name} cannot be started: {error.strerror}") from error
        self._ending = os.pidfd_open(self._process.pid)

    @property
    def stdout(self) -> Iterable[bytes]:
        """The lines it writes to standard output, to be read to their end once."""
        return _lines(self._process.stdout)

    @property
    def stderr(self) -> Iterable[bytes]:
        """The lines it writes to standard error, to be read to their end once."""
        return _lines(self._process.stderr)

    def wait(self) -> int:
        """Wait until it ended; its exit status as a shell tells it."""
        # Ended, it stays a zombie until `stop`: its id must not pass to a group that `stop` would kill.
        try:
            end = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # `stop` was faster
            status = self._process.wait()
            return status if status >= 0 else 128 - status
        assert end
        return end.si_status if end.si_code == os.CLD_EXITED else 128 + end.si_status

    def stop(self) -> None:
        """End its whole process group, by SIGTERM and after a grace by SIGKILL."""
        if self._process.returncode is not None:
            return
        os.killpg(self._process.pid, signal.SIGTERM)
        if self._process.stdin:
            self._process.stdin.close()
        ending = select.poll()
        ending.register(self._ending, select.POLLIN)
        ending.poll(GRACE_S * 1e3)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._ending)


def _lines(pipe: IO[bytes] | None) -> Iterator[bytes]:
    """What comes out of a pipe, which is closed at its end.

    A carriage return ends a line too, so that a progress bar's states come one by one.
    """
    assert pipe
    with TextIOWrapper(pipe, "latin-1", newline=None) as lines:  # every byte is a character
        yield from (line.encode("latin-1") for line in lines)
