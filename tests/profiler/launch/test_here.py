import os
from pathlib import Path

import pytest

from profiler.launch.here import Here, count_gpus
from profiler.spec import parse_spec
from tests.profiler.driver.worlds import make_run


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with three GPUs."""
    program = tmp_path / "nvidia-smi"
    lines = "".join(f"GPU {number}: NVIDIA H100 (UUID: GPU-{number})\n" for number in range(3))
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_the_ranks_of_a_run_meet_on_this_machine() -> None:
    commands = Here(1).commands(make_run())

    assert [command.env["RANK"] for command in commands] == ["0", "1"]
    assert {command.env["MASTER_ADDR"] for command in commands} == {"127.0.0.1"}
    assert commands[0].argv[1:4] == ("-P", "-m", "profiler.rank"), "a folder called profiler must not count"
    assert parse_spec(commands[0].argv[-1]) == make_run().spec


def test_ranks_share_the_cores_also_when_one_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))

    assert Here(2).commands(make_run())[0].env["OMP_NUM_THREADS"] == "4"
    assert Here(16).commands(make_run())[0].env["OMP_NUM_THREADS"] == "1"


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
