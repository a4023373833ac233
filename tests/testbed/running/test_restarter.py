"""A supervisor starts its daemon again, ends it when it is ended, and never leaves it behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.running.restarter import daemon_file, restarting_command
from tests.patience import LONGEST_S, wait_until

DAEMON = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "daemon.log"


@pytest.fixture
def process(log: Path) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(restarting_command(sys.executable, log, (sys.executable, "-c", DAEMON)))
    yield started
    started.kill()
    started.wait()


def daemons(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().splitlines()] if log.exists() else []


def live_jobs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def test_a_killed_daemon_is_started_again(log: Path, process: subprocess.Popen[bytes]) -> None:
    wait_until(lambda: len(daemons(log)) == 1)
    os.kill(daemons(log)[0], signal.SIGKILL)
    wait_until(lambda: len(daemons(log)) == 2)
    assert int(daemon_file(log, "pid").read_text()) == daemons(log)[1]
    assert len(daemon_file(log, "starts").read_text().splitlines()) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_daemon_ends_with_its_supervisor(
    number: signal.Signals, log: Path, process: subprocess.Popen[bytes]
) -> None:
    wait_until(lambda: len(daemons(log)) == 1)
    process.send_signal(number)
    process.wait(LONGEST_S)
    wait_until(lambda: not live_jobs(daemons(log)[0]))
