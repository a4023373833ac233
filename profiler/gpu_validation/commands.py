"""Runs a command for so long at most, with all it writes in a log; nothing of it is left running."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_GRACE_S = 8.0
"""Between SIGTERM and SIGKILL."""


class StepError(Exception):
    """A step did not do what it is for; the message is one line."""


def run_command(argv: Sequence[str], log: Path, limit_s: float) -> None:
    """Run a command to its end.

    Args:
        argv: The program and its arguments.
        log: Takes standard output and standard error, after what it holds.
        limit_s: Then it and all that it started are ended.

    Raises:
        StepError: It cannot be started, took too long or failed; with the last line it wrote.
    """
    with start_command(argv, log) as process:
        code = wait_for(process, limit_s)
    if code is None:
        raise StepError(f"took longer than {limit_s:.0f} s; see {log}")
    if code:
        raise StepError(f"exit status {code}: {last_line(log)}")


def start_command(argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own; it is to be ended by `wait_for`.

    Raises:
        StepError: It cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        try:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise StepError(f"{argv[0]} cannot be started: {error.strerror}") from error


def wait_for(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """Its exit status; None if it took longer and was ended, with its whole process group."""
    try:
        return process.wait(max(0.0, limit_s))
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Ask the group to end, wait for its first process a moment, then kill what is left of it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_line(log: Path) -> str:
    """The last line of a log that is not empty."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it wrote nothing"
