"""`dally testbed run` and `collect` say in a line what is wrong, and change nothing."""

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from dally.runs.records import read_run
from slurm_plugin.client.slurm import State
from testbed.running.folder import OBSERVED, RunState, begin_run
from testbed.running.json_lines import append_line
from testbed.running.observer import JobObservation
from tests.testbed.running.worlds import TFLOPS, inputs


def invoke(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "dally", "testbed", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120)


def test_an_unknown_policy_is_told_before_anything_is_brought_up(tmp_path: Path) -> None:
    done = invoke("run", "--workload", "demo", "--policy", "none", "--out", str(tmp_path / "out"))
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "unknown policy 'none'" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_without_runs_is_not_collected(tmp_path: Path) -> None:
    done = invoke("collect", "--out", str(tmp_path), "--folder", str(tmp_path / "none"))
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "holds no run of `dally testbed run`" in done.stderr


def test_a_run_that_was_cut_off_with_its_cluster_is_collected(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "fifo"
    begin_run(folder, RunState("x-1", "fifo", "/gone/x-1", TFLOPS, "gloo", {}, origin_s=1000.0), inputs())
    observed = JobObservation(1001.0, "a", "7", State.RUNNING.value, "RUNNING", 1001.0, {"r1h1": 2})
    append_line(folder / OBSERVED, **asdict(observed))
    done = invoke("collect", "--out", str(folder.parent), "--folder", str(tmp_path / "none"))
    assert "fifo is incomplete: it was cut off" in done.stderr
    assert read_run(folder)["complete"] is False
