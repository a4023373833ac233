"""The workload `demo` for real, on four nodes in two racks with shaped links; compared and replayed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dally.runs.records import read_jobs

POLICY = "dally:lease_s=90"
CLUSTER = ("--racks", "2,2", "--rate", "1Gb", "--uplink", "200Mb")


def dally(*arguments: str) -> str:
    command = [sys.executable, "-m", "dally", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slurm
def test_a_run_brings_its_cluster_up_trains_all_jobs_and_is_compared_and_replayed(
    cluster_folder: Path, tmp_path: Path
) -> None:
    out, run = tmp_path / "runs", tmp_path / "runs" / "dally_lease_s=90"
    shorter = ("--duration-scale", "0.5", "--scale", "0.5", "--folder", str(cluster_folder))
    dally("testbed", "run", "--workload", "demo", "--policy", POLICY, *CLUSTER, *shorter, "--out", str(out))
    assert [record.status for record in read_jobs(run)] == ["COMPLETED"] * 12
    assert not any(cluster_folder.glob("*"))  # the cluster is gone with all that it had
    dally("testbed", "compare", str(run))
    compared: dict[str, Any] = json.loads((run / "compare.json").read_text(encoding="utf-8"))
    assert compared["jobs_compared"] == 12
    # Two busy cores tell no times, but a simulator that is far off would be seen even so.
    assert compared["mean_absolute_running_error_given_placements"] < 0.5
    assert "all the same" in dally("replay", str(run))
