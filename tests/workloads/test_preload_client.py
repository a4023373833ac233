"""A training command handed over to a preloaded process is to its caller as if it ran itself."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import LONGEST_S, wait_until
from workloads.preload_client import KILLED, PRELOADED

NODE = "r1h1"
EMULATED = ("mobilenetv3", "--global-batch", "2", "--emulate", "0.01", "--backend", "gloo")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which a preloaded process of the node listens."""
    folder = tmp_path_factory.mktemp("preloaded")
    command = [sys.executable, "-m", "workloads.preload", str(folder / NODE)]
    with subprocess.Popen(command) as process:
        wait_until((folder / NODE).exists)
        yield folder
        process.kill()


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    env = {**os.environ, PRELOADED: str(folder), "SLURMD_NODENAME": NODE, **variables}
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "workloads.train", *arguments]
    return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True)


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in listed.split()]


def steps(log: Path) -> list[int]:
    return [json.loads(line)["step"] for line in log.read_text().splitlines()] if log.exists() else []


def preloaded_process(folder: Path) -> int:
    """The oldest with that command line: its forks share it, and numbers wrap round, so one may be lower."""
    command = ["pgrep", "--oldest", "--full", str(folder / NODE)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_output_folder_variables_and_exit_code_are_those_of_the_command(folder: Path, tmp_path: Path) -> None:
    with start(folder, *EMULATED, "--steps", "2", "--log-file", str(tmp_path / "log")) as process:
        out, err = process.communicate(timeout=LONGEST_S)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("mobilenetv3: begins; 2 steps, 1 rank")
    assert steps(tmp_path / "log") == [1, 2]


def test_it_really_was_handed_over(folder: Path, tmp_path: Path) -> None:
    server = preloaded_process(folder)
    with start(folder, *EMULATED, "--steps", "1000", "--log-file", str(tmp_path / "log")) as process:
        wait_until(lambda: bool(steps(tmp_path / "log")))
        assert len(children_of(server)) == 1
        process.kill()
    wait_until(lambda: not children_of(server))


def test_an_error_and_its_line_come_through(folder: Path) -> None:
    with start(folder, "resnet50", "--steps", "1", "--global-batch", "2", "--backend", "nccl") as process:
        _, err = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 1
    assert err.startswith("dally-train: backend nccl needs a GPU")


def test_wrong_usage_ends_with_2(folder: Path) -> None:
    with start(folder, "nosuchmodel") as process:
        process.communicate(timeout=LONGEST_S)
    assert process.returncode == 2


def test_a_signal_is_passed_on_and_the_checkpoint_asks_to_be_put_back(folder: Path, tmp_path: Path) -> None:
    files = ("--log-file", str(tmp_path / "log"), "--checkpoint", str(tmp_path / "job.pt"))
    with start(folder, *EMULATED, "--steps", "100000", *files) as process:
        wait_until(lambda: bool(steps(tmp_path / "log")))
        process.send_signal(signal.SIGUSR2)
        process.communicate(timeout=LONGEST_S)
    assert process.returncode == 85
    assert (tmp_path / "job.pt").exists()


def test_a_command_that_is_killed_says_so(folder: Path, tmp_path: Path) -> None:
    with start(folder, *EMULATED, "--steps", "100000", "--log-file", str(tmp_path / "log")) as process:
        wait_until(lambda: bool(steps(tmp_path / "log")))
        os.kill(children_of(preloaded_process(folder))[0], signal.SIGKILL)
        process.communicate(timeout=LONGEST_S)
    assert process.returncode == KILLED


def test_a_command_and_who_asked_for_it_may_end_at_once(folder: Path, tmp_path: Path) -> None:
    server = preloaded_process(folder)
    with start(folder, *EMULATED, "--steps", "100000", "--log-file", str(tmp_path / "log")) as process:
        wait_until(lambda: bool(steps(tmp_path / "log")))
        (child,) = children_of(server)
        os.kill(server, signal.SIGSTOP)
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: ") Z " in Path(f"/proc/{child}/stat").read_text())
        process.kill()
        process.communicate(timeout=LONGEST_S)
        os.kill(server, signal.SIGCONT)
    wait_until(lambda: not children_of(server))
    with start(folder, *EMULATED, "--steps", "1000", "--log-file", str(tmp_path / "next")) as process:
        wait_until(lambda: bool(steps(tmp_path / "next")))
        assert len(children_of(server)) == 1
        process.kill()


def test_without_such_a_process_the_command_runs_itself(tmp_path: Path) -> None:
    with start(tmp_path, *EMULATED, "--steps", "1", "--log-file", str(tmp_path / "log")) as process:
        process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0
    assert steps(tmp_path / "log") == [1]
