"""Runs commands on hosts over SSH, several at once, each with a time limit and a line in the host's log."""

import shlex
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock, Thread, Timer
from time import monotonic
from typing import TypeVar

from dally.errors import DallyError
from dally.hosts.hosts_file import HostsFile
from dally.hosts.processes import Command, ProcessError
from dally.hosts.ssh import SshHosts, SshProcess

_Found = TypeVar("_Found")

ANSWER_S = 30.0
_KEPT_LINES = 200
_DRAIN_S = 5.0
_MOST_COMMAND, _MOST_SAID, _FULL_BYTES = 400, 2000, 8 << 20

_WITH_PATH = 'PATH="$PATH:/usr/sbin:/sbin"; export PATH; exec "$@"'
"""Debian leaves these out of an ordinary user's search path; tc, ip and Slurm's daemons are there."""

_WRITE = """
set -e
umask 077
file=$(mktemp "$(dirname "$1")/.dally-XXXXXX")
trap 'rm -f "$file"' EXIT
cat >"$file"
chmod "$2" "$file"
$3 "$file" "$1"
"""


class RemoteError(DallyError):
    """A host did not do what it was asked."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command that ended has said.

    Attributes:
        status: Its exit status as a shell tells it; None if contact with it was lost.
        stdout: What it wrote to standard output.
        stderr: The last lines of what it wrote to standard error.
    """

    status: int | None
    stdout: str
    stderr: str

    @property
    def reason(self) -> str:
        """The last lines that it wrote, or how it ended, for an error message of one line."""
        lines = [line.strip() for line in (self.stderr or self.stdout).splitlines() if line.strip()]
        if self.status is None:
            return "contact was lost"
        return lines[-1] if lines else f"exit status {self.status}"


class CommandLog:
    """Appends to `<host>.log` in a folder; several threads may.

    Each line has the UTC time at which the command was started, its exit status (`lost` where contact was
    lost, `started` as long as it runs), seconds, and the command. What it wrote to standard error follows in
    lines that begin with `|`, the last 2,000 characters. A file of 8 MB becomes `<host>.log.1`.
    """

    def __init__(self, folder: Path) -> None:
        """Make the folder if it is missing, for this user alone."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._lock = Lock()

    def path(self, host: str) -> Path:
        """The log of a host."""
        return self._folder / f"{host}.log"

    def note(self, command: Command, at: datetime, outcome: str, seconds: float, said: str = "") -> None:
        """Add one command: when it was started, how it ended, and what it wrote to standard error."""
        line = shlex.join(command.argv).replace("\n", "\\n")
        if len(line) > _MOST_COMMAND:
            line = f"{line[:_MOST_COMMAND]}... ({len(line)} characters)"
        rows = [f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} {outcome:>7} {seconds:9.3f} s  {line}"]
        rows += [f"| {row}" for row in said.strip()[-_MOST_SAID:].splitlines()]
        path = self.path(command.host)
        with self._lock:
            if path.exists() and path.stat().st_size > _FULL_BYTES:
                path.replace(path.with_suffix(".log.1"))
            with path.open("a", encoding="utf-8") as file:
                file.write("\n".join(rows) + "\n")


class Hosts(SshHosts):
    """The hosts of a file; all they run is logged."""

    def __init__(self, file: HostsFile, log: CommandLog) -> None:
        """Nothing is connected yet."""
        super().__init__(file)
        self._log = log

    def start(self, command: Command, stdin: bytes = b"") -> "LoggedProcess":
        """Start a command on the host that it names; it ends with the connection.

        Raises:
            ProcessError: The host is not connected, or does not start it.
        """
        at, started_s = datetime.now(UTC), monotonic()
        try:
            argv = ("sh", "-c", _WITH_PATH, "sh", *command.argv)
            process = super().start(Command(command.name, argv, command.env, command.host), stdin)
        except ProcessError as error:
            self._log.note(command, at, "failed", monotonic() - started_s, str(error))
            raise
        return LoggedProcess(command, process, self._log, at, started_s)

    def attempt(self, host: str, *argv: str, stdin: str = "", timeout_s: float = ANSWER_S) -> CommandResult:
        """Run a command on a host to its end; its exit status is for the caller to judge.

        Raises:
            RemoteError: It took too long.
            ProcessError: The host is not connected, or does not start it.
        """
        process = self.start(Command(f"{argv[0]} on {host}", argv, host=host), stdin.encode())
        late = Event()

        def end() -> None:
            late.set()
            process.stop()

        timer = Timer(timeout_s, end)
        timer.daemon = True
        timer.start()
        try:
            answer = process.gather()
        finally:
            timer.cancel()
            process.stop()
        if late.is_set():
            raise RemoteError(f"{host}: {argv[0]} took longer than {timeout_s:g} s")
        return answer

    def ask(self, host: str, *argv: str, stdin: str = "", timeout_s: float = ANSWER_S) -> str:
        """Standard output of a command on a host.

        Raises:
            RemoteError: It failed or took too long; the message holds its last words.
            ProcessError: The host is not connected, or does not start it.
        """
        answer = self.attempt(host, *argv, stdin=stdin, timeout_s=timeout_s)
        if answer.status != 0:
            raise RemoteError(f"{host}: {argv[0]} failed: {answer.reason}")
        return answer.stdout

    def write(self, host: str, path: str, text: str, mode: int = 0o644, replace: bool = True) -> bool:
        """Write a small file on a host, whole or not at all; its folder must be there.

        Returns:
            Whether it was written: without `replace`, a file that is there stays as it is.

        Raises:
            RemoteError: It cannot be written.
        """
        put = "mv" if replace else "ln"
        answer = self.attempt(host, "sh", "-c", _WRITE, "sh", path, f"{mode:o}", put, stdin=text)
        if answer.status and not replace and self.attempt(host, "test", "-e", path).status == 0:
            return False
        if answer.status != 0:
            raise RemoteError(f"{host}: cannot write {path}: {answer.reason}")
        return True


class LoggedProcess(SshProcess):
    """A command that runs on a host; its end goes to the host's log, once."""

    def __init__(
        self, command: Command, process: SshProcess, log: CommandLog, at: datetime, started_s: float
    ) -> None:
        """Follow a process that was just started."""
        super().__init__(process.channel)
        self._command, self._log, self._at, self._started_s = command, log, at, started_s
        self._last_lines: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._noted = False
        log.note(command, at, "started", 0.0)

    @property
    def stderr(self) -> Iterator[bytes]:
        """The lines it writes to standard error."""
        for line in super().stderr:
            self._last_lines.append(line)
            yield line

    def gather(self) -> CommandResult:
        """Read all that it says, and wait until it ended."""
        said: list[bytes] = []
        readers = [
            Thread(target=lambda: said.extend(self.stdout), daemon=True),
            Thread(target=lambda: deque(self.stderr, maxlen=0), daemon=True),
        ]
        for reader in readers:
            reader.start()
        status = super().wait()
        for reader in readers:
            reader.join(_DRAIN_S)
        self._note(status)
        stderr = b"".join(self._last_lines).decode(errors="replace")
        return CommandResult(status, b"".join(said).decode(errors="replace"), stderr)

    def wait(self) -> int | None:
        """Wait until it ended; its exit status as a shell tells it, None if the connection broke."""
        status = super().wait()
        self._note(status)
        return status

    def stop(self) -> None:
        """End it and all that it started."""
        super().stop()
        self._note(None, "stopped")

    def _note(self, status: int | None, otherwise: str = "lost") -> None:
        if not self._noted:
            self._noted = True
            outcome = otherwise if status is None else str(status)
            said = b"".join(self._last_lines).decode(errors="replace")
            self._log.note(self._command, self._at, outcome, monotonic() - self._started_s, said)


def all_or_error(found: Mapping[str, _Found | DallyError]) -> dict[str, _Found]:
    """What came of each host.

    Raises:
        RemoteError: It is an error on one or more.
    """
    failed = [str(one) for one in found.values() if isinstance(one, DallyError)]
    if failed:
        raise RemoteError("; ".join(failed))
    return {name: one for name, one in found.items() if not isinstance(one, DallyError)}


def next_address(file: HostsFile, name: str) -> str | None:
    """The address of the host that follows another one in a file, the first after the last; None if alone."""
    names = [host.name for host in file.hosts]
    other = file.hosts[(names.index(name) + 1) % len(names)]
    return other.login.address if other.name != name else None
