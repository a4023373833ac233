"""The log of every command that was run on a host: one file a host, one line a command."""

import os
import shlex
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from dally.hosts.processes import Command

_MOST_COMMAND = 400
_MOST_SAID = 2000
_FULL_BYTES = 8 << 20


def default_logs() -> Path:
    """Where logs go unless said otherwise: in $XDG_STATE_HOME, ~/.local/state by default."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "dally" / "hosts"


class CommandLog:
    """Appends to `<host>.log` in a folder; several threads may.

    Each line has the UTC time at which the command was started, its exit status (`lost` where contact was
    lost, `started` as long as it runs), seconds, and the command. What it wrote to standard error follows in
    lines that begin with `|`, the last 2,000 characters. A file of 8 MB becomes `<host>.log.1`.
    """

    def __init__(self, folder: Path) -> None:
        """Make the folder if it is missing, for this user alone.

        Raises:
            OSError: It cannot be made.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._lock = Lock()

    def path(self, host: str) -> Path:
        """The log of a host."""
        return self._folder / f"{host}.log"

    def note(self, command: Command, at: datetime, outcome: str, seconds: float, said: str = "") -> None:
        """Add one command.

        Args:
            command: What was run, on the host that it names.
            at: When it was started.
            outcome: Its exit status, or a word for why there is none.
            seconds: How long it took.
            said: What it wrote to standard error.
        """
        line = shlex.join(command.argv).replace("\n", "\\n")
        if len(line) > _MOST_COMMAND:
            line = f"{line[:_MOST_COMMAND]}... ({len(line)} characters)"
        rows = [f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} {outcome:>7} {seconds:9.3f} s  {line}"]
        rows += [f"| {row}" for row in said.strip()[-_MOST_SAID:].splitlines()]
        self._append(command.host, "\n".join(rows) + "\n")

    def _append(self, host: str, text: str) -> None:
        path = self.path(host)
        with self._lock:
            if path.exists() and path.stat().st_size > _FULL_BYTES:
                path.replace(path.with_suffix(".log.1"))
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
