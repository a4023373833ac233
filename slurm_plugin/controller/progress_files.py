"""Reads the files in which jobs report, on a thread of its own: the controller waits for no file system."""

import os
import pwd
import stat
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dally.errors import InputError
from dally.jobs.progress import MOST_BYTES, ProgressReport, parse_report

SLOW_S = 60.0
"""Reading takes so long only where a file system hangs."""

ReadReports = Mapping[str, ProgressReport | InputError]
"""What jobs report, by number, or why their files cannot be read."""


@dataclass(frozen=True, slots=True)
class ProgressFile:
    """One job's file, and the user to whom it must belong."""

    path: str
    user: str


class ProgressFiles:
    """Reads files on a thread of its own; what it has read is there at the next look.

    Args:
        start: Runs a function beside the rest; for tests that run it at once.
    """

    def __init__(self, start: Callable[[Callable[[], None]], object] | None = None) -> None:
        self._start = start or (
            lambda work: threading.Thread(target=work, name="reports", daemon=True).start()
        )
        self._read: ReadReports = {}
        self._since_s: float | None = None
        self._reading = ""

    def look(self, files: Mapping[str, ProgressFile]) -> ReadReports:
        """What was read since the last look; the next reading begins, of these files.

        Args:
            files: By number of the job.
        """
        if self._since_s is not None:
            return {}
        found, self._read = self._read, {}
        if files:
            self._since_s = time.monotonic()
            self._start(lambda: self._read_all(dict(files)))
        return found

    @property
    def stuck(self) -> str:
        """The file at which it hangs; empty if it does not."""
        began_s = self._since_s
        return self._reading if began_s is not None and time.monotonic() - began_s > SLOW_S else ""

    def _read_all(self, files: Mapping[str, ProgressFile]) -> None:
        found: dict[str, ProgressReport | InputError] = {}
        try:
            for job_id, file in files.items():
                self._reading = file.path
                try:
                    found[job_id] = read_report(file)
                except InputError as error:
                    found[job_id] = error
        finally:
            self._read, self._since_s = found, None


def read_report(file: ProgressFile) -> ProgressReport:
    """Read one file, which anybody may have named: only a plain one of the job's own user.

    It is looked at before it is opened to be read: to open a device, or a pipe, can do harm.

    Raises:
        InputError: It cannot be read, is somebody else's or no report; nothing of what is in it is told.
    """
    try:
        place = os.open(file.path, os.O_PATH | os.O_CLOEXEC)
        try:
            status = os.fstat(place)
            if not stat.S_ISREG(status.st_mode):
                raise InputError("it is no plain file")
            try:
                owned = status.st_uid == pwd.getpwnam(file.user).pw_uid
            except KeyError:  # this machine does not know that user
                owned = False
            if not owned:
                raise InputError(f"it is not {file.user}'s")
            reading = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(reading, "rb") as opened:
                data = opened.read(MOST_BYTES + 1)
        finally:
            os.close(place)
    except OSError as error:
        raise InputError(error.strerror or "it cannot be read") from None
    return parse_report(data, status.st_mtime)
