import time
from pathlib import Path

import pytest

from profiler.gpu_validation.commands import StepError, run_command

LONG_S = 120.0


def test_what_a_command_writes_is_in_its_log(tmp_path: Path) -> None:
    run_command(("sh", "-c", "echo out; echo err >&2"), tmp_path / "logs" / "a.log", LONG_S)

    assert (tmp_path / "logs" / "a.log").read_text() == "out\nerr\n"


def test_a_command_that_fails_is_told_by_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"^exit status 3: no such GPU$"):
        run_command(("sh", "-c", "echo first; echo no such GPU; echo; exit 3"), tmp_path / "a.log", LONG_S)


def test_a_command_that_is_missing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"^/nowhere/sh cannot be started: No such file"):
        run_command(("/nowhere/sh",), tmp_path / "a.log", LONG_S)


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    held = tmp_path / "held"
    hangs = f"sh -c 'exec 9>>{held}; flock 9; echo $$ >> {held}; exec sleep 1000' & exec sleep 1000"
    start_s = time.monotonic()

    with pytest.raises(StepError, match=r"^took longer than 1 s; see .*a\.log$"):
        run_command(("sh", "-c", hangs), tmp_path / "a.log", 1.0)

    assert time.monotonic() - start_s < LONG_S
    # Whoever holds the lock is gone: it can be had at once.
    run_command(("flock", "--nonblock", str(held), "true"), tmp_path / "b.log", LONG_S)
