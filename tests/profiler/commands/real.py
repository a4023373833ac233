"""Runs the real `profile-models` as a user would, for tests."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.patience import LONGEST_S

PROGRAM = Path(sys.executable).with_name("profile-models")

SMALL = (
    *("mobilenetv3", "--backend=gloo", "--emulate=30", "--sweep=64K:256K", "--local-batch=8"),
    *("--repetitions=3", "--budget=1", "--warm-up=1", "--allow-busy"),
)
"""A measurement that takes a few seconds a run."""


_MARK = "DALLY_TEST_MARK"


def run(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    timeout_s: float = LONGEST_S,
    python: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run it to its end; ranks are run by this Python, if one is given."""
    main = f"import sys; sys.executable = '{python}'; from profiler.commands import main; main()"
    argv = [*([sys.executable, "-c", main] if python else [str(PROGRAM)]), *map(str, arguments)]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=timeout_s)


def start(mark: Path, *arguments: object, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start it; all processes that it starts on this machine inherit the mark."""
    argv = [str(PROGRAM), *map(str, arguments)]
    environment = {**(env or os.environ), _MARK: str(mark)}
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, env=environment, stdout=pipe, stderr=pipe, text=True)


def marked(mark: Path, program: str = "") -> list[int]:
    """The processes that have inherited a mark and whose command line holds a text."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                inherited = wanted in (entry / "environ").read_bytes().split(b"\0")
                if inherited and program.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def end(process: subprocess.Popen[str], number: signal.Signals) -> str:
    """Signal it, wait, and return what it wrote to standard error."""
    process.send_signal(number)
    return process.communicate(timeout=LONGEST_S)[1]
