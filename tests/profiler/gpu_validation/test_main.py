"""The script as somebody calls it, on machines without a GPU and with one that torch does not see."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from profiler.gpu_validation.__main__ import CHECKS, LIMIT_S, MODELS
from tests.patience import LONGEST_S
from workloads.registry import WORKLOADS

SCRIPT = Path(__file__).parents[3] / "scripts" / "validate_gpu.sh"


@pytest.fixture
def nvidia_smi(tmp_path: Path) -> Mapping[str, str]:
    """The environment of a machine whose nvidia-smi lists a GPU."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho NVIDIA H100 80GB HBM3, 81559 MiB, 550.54\n")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


def validate(env: Mapping[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    argv = [str(SCRIPT), *map(str, arguments)]
    environment = {**os.environ, "PYTHON": sys.executable, **env}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=LONGEST_S)


def test_without_a_gpu_one_line_says_so_at_once(tmp_path: Path) -> None:
    empty = tmp_path / "nvidia-smi"
    empty.write_text("#!/bin/sh\nexit 9\n")
    empty.chmod(0o755)
    done = validate({"PATH": f"{tmp_path}:{os.environ['PATH']}"}, tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "validate_gpu: no NVIDIA GPU here: nvidia-smi lists none\n"
    assert not (tmp_path / "out").exists()


def test_what_was_found_before_is_not_written_over(nvidia_smi: Mapping[str, str], tmp_path: Path) -> None:
    done = validate(nvidia_smi, tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"validate_gpu: {tmp_path} exists; name another folder\n"


def test_a_gpu_that_torch_does_not_see_fails_and_nothing_counts_as_passed(
    nvidia_smi: Mapping[str, str], tmp_path: Path
) -> None:
    done = validate({**nvidia_smi, "CUDA_VISIBLE_DEVICES": ""}, tmp_path / "out")
    assert done.returncode == 1
    assert "0 of 7 checks passed" in done.stdout
    data = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert data["machine"] == "NVIDIA H100 80GB HBM3, 81559 MiB, 550.54"
    first, *others = data["checks"]
    assert (first["status"], first["said"]) == ("failed", "exit status 1: AssertionError: torch sees no GPU")
    assert {check["status"] for check in others} <= {"skipped", "lacking"}


def test_every_workload_is_measured() -> None:
    assert set(MODELS) == set(WORKLOADS)


def test_the_checks_take_less_than_eight_minutes_together() -> None:
    assert LIMIT_S < 480
    assert sum(step.limit_s for step in CHECKS) <= 510, "most of them get their time even if all are slow"
