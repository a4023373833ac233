"""Running another program: with a time-out, never through a shell, and gone with all its children."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass


class TimedOutError(Exception):
    """A program did not end in time and was killed."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a program left: its exit status and what it wrote."""

    status: int
    out: str
    err: str


def run_program(argv: Sequence[str], text: str, environment: Mapping[str, str], timeout_s: float) -> Output:
    """Run a program with a text as its input and wait for its end.

    Raises:
        OSError: It could not be started.
        TimedOutError: It took too long; it was killed, with the processes it had started.
    """
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(text, timeout_s)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimedOutError from error
            raise
    return Output(process.returncode, out, err)
