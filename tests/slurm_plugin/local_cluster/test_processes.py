"""Processes are found by their environment and with their descendants, and ended with their supervisor."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.local_cluster import processes
from slurm_plugin.local_cluster.processes import end_processes, find_processes
from tests.patience import LONGEST_S

MARK = {"DALLY_TEST_MARK": f"{os.getpid()}"}
CHILD_WITHOUT_ENVIRONMENT = "env -i sleep 300 & echo $!; wait"


@pytest.fixture
def marked() -> Iterator[subprocess.Popen[bytes]]:
    command = ["sh", "-c", CHILD_WITHOUT_ENVIRONMENT]
    with subprocess.Popen(command, env={**os.environ, **MARK}, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


def child_of(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout
    return int(process.stdout.readline())


def test_a_process_and_its_child_without_environment_are_found(marked: subprocess.Popen[bytes]) -> None:
    assert {marked.pid, child_of(marked)} <= find_processes(MARK)


def test_a_process_that_lacks_a_variable_is_not_found(marked: subprocess.Popen[bytes]) -> None:
    child_of(marked)
    assert find_processes({**MARK, "OTHER": "1"}) == set()


def test_ended_processes_are_gone(marked: subprocess.Popen[bytes]) -> None:
    child_of(marked)
    end_processes(MARK)
    assert marked.wait(LONGEST_S) == -9
    assert find_processes(MARK) == set()


def test_what_was_found_is_killed_however_long_finding_it_took(
    marked: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    child_of(marked)
    monkeypatch.setattr(processes, "_GONE_WITHIN_S", -1.0)
    end_processes(MARK)
    assert marked.wait(LONGEST_S) == -9


def test_a_process_with_the_log_open_is_found_and_no_other_child_of_who_opened_it(
    tmp_path: Path, marked: subprocess.Popen[bytes]
) -> None:
    child_of(marked)
    log = tmp_path / "slurmd-n1.log"
    with log.open("w") as output, subprocess.Popen(["sleep", "300"], stdout=output) as process:
        found = find_processes({"SLURM_CONF": str(tmp_path)}, str(log))
        process.kill()
    assert found == {process.pid}


PARENT = """
import subprocess, sys
from pathlib import Path
from slurm_plugin.local_cluster.processes import start_supervisor
folder, conf = map(Path, sys.argv[1:])
supervisor = start_supervisor(folder, conf)
subprocess.Popen(["sleep", "300"], env={"SLURM_CONF": str(conf)}, stdout=subprocess.DEVNULL)
print(supervisor.pid, flush=True)
sys.stdin.read()
"""


def test_a_cluster_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    folder.mkdir()
    variables = {"SLURM_CONF": str(folder / "slurm.conf")}
    command = [sys.executable, "-c", PARENT, str(folder), variables["SLURM_CONF"]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        supervisor = os.pidfd_open(int(parent.stdout.readline()))
        assert find_processes(variables)
        parent.kill()
    assert select.select([supervisor], [], [], 20)[0]
    os.close(supervisor)
    assert find_processes(variables) == set()
    assert not folder.exists()
