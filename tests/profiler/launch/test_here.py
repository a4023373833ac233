import os
import socket
from pathlib import Path

import pytest

from dally.hosts.processes import Command, ProcessError, run_together
from profiler.launch.here import Here, count_gpus
from profiler.spec import parse_spec
from tests.profiler.driver.worlds import make_run

REPORT = """\
profiler.rank FAILED
Failures:
[1]:
  time      : 2026-11-21_19:43:28
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 6040)  (SIGTERM)
  error_file: <N/A>
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 6041)  (SIGKILL)
======================================================
"""


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with three GPUs."""
    program = tmp_path / "nvidia-smi"
    lines = "".join(f"GPU {number}: NVIDIA H100 (UUID: GPU-{number})\n" for number in range(3))
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_run_on_this_machine_is_one_standalone_torchrun() -> None:
    (command,) = Here(1).commands(make_run())

    assert command.argv[1:5] == ("-P", "-m", "torch.distributed.run", "--standalone")
    assert command.argv[6:9] == ("--nproc-per-node=1", "-m", "profiler.rank")
    assert parse_spec(command.argv[-1]) == make_run().spec
    assert command.env["PYTHONSAFEPATH"] == "1", "a folder called profiler where it starts must not count"


def test_ranks_share_the_cores_also_when_one_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))

    assert Here(2).commands(make_run())[0].env["OMP_NUM_THREADS"] == "4"
    assert Here(16).commands(make_run())[0].env["OMP_NUM_THREADS"] == "1"


def test_a_rank_that_was_killed_is_named_and_not_those_that_torchrun_ended_for_it() -> None:
    command = Command("torchrun", ("sh", "-c", f"cat >&2 <<'END'\n{REPORT}END\nexit 1"))

    with pytest.raises(ProcessError, match=rf"^rank 1 on {socket.gethostname()}: killed by SIGKILL$"):
        run_together([command], Here(1).start, print, 60.0)


def test_what_torchrun_leaves_among_temporary_files_goes_with_it() -> None:
    said: list[str] = []
    command = Command("torchrun", ("sh", "-c", "mkdir $TMPDIR/torchelastic_logs && echo $TMPDIR"))

    run_together([command], Here(1).start, said.append, 60.0)

    assert not Path(said[0]).exists()


def test_the_machines_gpus_are_counted(nvidia_smi: None) -> None:
    assert count_gpus() == 3


def test_gpus_that_are_hidden_do_not_count(nvidia_smi: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert count_gpus() == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert count_gpus() == 0


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        ("NoDevFiles", 0),
        ("-1", 0),
        ("0,-1,2", 1),
        ("2,7", 1),
        (" 1 , 2", 2),
        ("GPU-1,GPU-2", 2),
        ("MIG-7a", 1),
        ("GPU-0,NoDevFiles", 1),
    ],
)
def test_gpus_are_visible_up_to_the_first_name_of_none(
    nvidia_smi: None, monkeypatch: pytest.MonkeyPatch, visible: str, count: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert count_gpus() == count


def test_a_machine_without_the_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert count_gpus() == 0
