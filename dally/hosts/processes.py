"""Runs several commands as one: all end when one fails, and the one that failed first says why."""

import re
import shlex
import signal
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Protocol

from dally.errors import DallyError

_SETTLE_S = 1.0
"""After a failure, for how long others that fail too are heard: one of them may have been first."""

_DRAIN_S = 5.0
"""For how long output is awaited that others still hold open when a process has ended."""

_KEPT_LINES = 200
_OWN_ERROR = re.compile(r"rank \d+ on \S+: ")
_SIGNALS = {number.value: number for number in signal.Signals}
_OWN_SIGNALS = {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
"""Signals that tell of a rank's own failure: none gets them because another one failed."""


class ProcessError(DallyError):
    """A process could not be started, or failed.

    Attributes:
        last_lines: What it last wrote to standard error.
    """

    def __init__(self, message: str, last_lines: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.last_lines = last_lines


@dataclass(frozen=True, slots=True)
class Command:
    """What is run.

    Attributes:
        name: What messages call it: `rank 1 on r1h2`.
        argv: The program and its arguments.
        env: Variables set besides those that are there.
        host: The machine that runs it, for a start that serves several.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    host: str = ""

    def shown(self) -> str:
        """The line that does the same in a shell."""
        variables = [f"{key}={shlex.quote(value)}" for key, value in self.env.items()]
        return " ".join([*variables, shlex.join(self.argv)])


@dataclass(frozen=True, slots=True)
class HeardLine:
    """A line that a command wrote, to standard output or to standard error."""

    command: Command
    on_stderr: bool
    text: str


class Running(Protocol):
    """A started command, wherever it runs; each method may be called from a thread of its own."""

    @property
    def stdout(self) -> Iterable[bytes]:
        """The lines it writes to standard output, until it has closed it."""

    @property
    def stderr(self) -> Iterable[bytes]:
        """The lines it writes to standard error, until it has closed it."""

    def wait(self) -> int | None:
        """Wait until it ended.

        Returns:
            Its exit status as a shell tells it, 128 and the signal where one killed it; None if contact with
            it was lost.
        """

    def stop(self) -> None:
        """End it and what it started, if it has not ended yet, and release what it holds; may be repeated."""


Start = Callable[[Command], Running]


def run_together(
    commands: Sequence[Command], start: Start, on_line: Callable[[str], None], timeout_s: float
) -> None:
    """Run commands at once and wait until all are done; whatever happens, none is left running.

    Args:
        commands: What to run.
        start: What starts one of them.
        on_line: Called in this thread with every complete line of standard output, of whichever command;
            what it raises ends all commands.
        timeout_s: Longest time for all of it.

    Raises:
        ProcessError: One failed: the message is the error of the one that failed first. Or they took longer
            than the timeout.
    """

    def hear(line: HeardLine) -> None:
        if not line.on_stderr:
            on_line(line.text)

    run_and_hear(commands, start, hear, timeout_s)


def run_and_hear(
    commands: Sequence[Command], start: Start, hear: Callable[[HeardLine], None], timeout_s: float
) -> None:
    """The same as `run_together`; `hear` is called with the lines of standard error, too."""
    events: SimpleQueue[HeardLine | None] = SimpleQueue()  # None says that one more has ended
    watched: list[_Watched] = []
    try:
        for command in commands:
            watched.append(_Watched(command, start(command), events))
        until = monotonic() + timeout_s
        settling = False
        while not all(one.ended for one in watched) or not events.empty():
            try:
                line = events.get(timeout=max(0.0, until - monotonic()))
            except Empty:
                break
            if line is not None:
                hear(line)
            elif not settling and any(one.failed for one in watched):
                settling, until = True, min(until, monotonic() + _SETTLE_S)
        failed = [one for one in watched if one.failed]
        if failed:
            first = min(failed, key=_Watched.precedence)
            raise ProcessError(first.error(), tuple(first.last_lines))
        late = [one for one in watched if not one.ended]
        if late:
            raise ProcessError(f"{late[0].name} took longer than {timeout_s:g} s", tuple(late[0].last_lines))
    finally:
        with ThreadPoolExecutor(max(1, len(watched))) as pool:
            list(pool.map(_Watched.stop, watched))


class _Watched:
    """A running command, whose output and end become events."""

    def __init__(self, command: Command, running: Running, events: "SimpleQueue[HeardLine | None]") -> None:
        self.name, self._command, self._running, self._events = command.name, command, running, events
        self._own_error: str | None = None
        self._failed_s = float("inf")
        self._status: int | None = None
        self.ended = False
        self.last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._readers = [Thread(target=read, daemon=True) for read in (self._read_stdout, self._read_stderr)]
        self._waiter = Thread(target=self._wait, daemon=True)
        for thread in (*self._readers, self._waiter):
            thread.start()

    @property
    def failed(self) -> bool:
        """Whether it ended, and not well."""
        return self.ended and self._status != 0

    def precedence(self) -> tuple[bool, float]:
        """Return what sorts the first failure before those that follow from it."""
        return self._signal() not in _OWN_SIGNALS, self._failed_s

    def error(self) -> str:
        """What went wrong, in one line that names the command."""
        killed_by, last = self._signal(), self.last_lines[-1] if self.last_lines else ""
        if self._own_error and killed_by not in _OWN_SIGNALS:
            return self._own_error
        if killed_by or self._status is None:
            how = f"killed by {killed_by.name}" if killed_by else "lost contact with it"
            return f"{self.name}: {how}" + (f" after: {last}" if last else "")
        return f"{self.name}: {last or f'exit status {self._status}'}"

    def stop(self) -> None:
        """End it, and wait until all it has said is read."""
        self._running.stop()
        self._waiter.join()

    def _signal(self) -> signal.Signals | None:
        """The signal that killed it."""
        return _SIGNALS.get((self._status or 0) - 128)

    def _read_stdout(self) -> None:
        for line in self._running.stdout:
            if line.endswith(b"\n"):
                self._events.put(HeardLine(self._command, False, _text(line)))

    def _read_stderr(self) -> None:
        for line in self._running.stderr:
            text = _text(line)
            if not text:
                continue
            self.last_lines.append(text)
            self._events.put(HeardLine(self._command, True, text))
            if not self._own_error and _OWN_ERROR.match(text):
                self._own_error, self._failed_s = text, monotonic()

    def _wait(self) -> None:
        self._status = self._running.wait()
        self._failed_s = min(self._failed_s, monotonic())
        for reader in self._readers:
            reader.join(_DRAIN_S)
        self.ended = True
        self._events.put(None)


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip()
