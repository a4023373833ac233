"""Three tiny jobs on a real Slurm under dally: one is stopped, goes on, and the run folder tells it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dally.errors import DallyError
from dally.runs.records import read_events, read_jobs, read_run
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from testbed.running.batch import RunBatch, check_policies, run_policy, topology_of
from testbed.running.driver import RunProgress
from testbed.running.folder import CONTROLLER, RunInputs, RunState
from testbed.running.job_plan import JobPlan, plan_jobs
from testbed.running.json_lines import read_lines
from testbed.running.samples import GPU, MACHINE
from tests.patience import LONGEST_S
from tests.testbed.running.worlds import job, profiles

TINY = {"h100": 1e6}
"""TFLOPS of a GPU on which steps cost no time but that of the training loop."""


@pytest.fixture
def small_cluster(cluster_folder: Path) -> Iterator[LocalSlurm]:
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, nodes=2, racks=2, gpus=2))
    try:
        local_slurm.start()
    except DallyError as error:
        pytest.fail(str(error), pytrace=False)
    yield local_slurm
    local_slurm.stop()


def plans(local_slurm: LocalSlurm) -> tuple[JobPlan, ...]:
    """A long job on all GPUs of both nodes, and two short ones that come when it runs."""
    jobs = [job("long", 2, 4.0), job("b", 1, 1.0, 1.0), job("c", 1, 1.0, 1.0)]
    return plan_jobs(jobs, topology_of(local_slurm.cluster, None), profiles())


def test_a_run_leaves_a_complete_folder_that_why_reads(small_cluster: LocalSlurm, tmp_path: Path) -> None:
    cluster, stopped = small_cluster.cluster, False
    inputs = RunInputs(plans(small_cluster), topology_of(cluster, None), profiles())
    batch = RunBatch(tmp_path, inputs, RunState("", "", "", TINY, "gloo", {"seed": 0}), LONGEST_S)
    (policy,) = check_policies(["dally:lease_s=600"])
    out: Path = tmp_path / "dally_lease_s=600"

    def stop_the_first(spec: str, counts: RunProgress) -> None:
        """Take the GPUs of the first job away, once it trains; as an administrator would."""
        nonlocal stopped
        steps = next(cluster.work.glob("*/jobs/long/steps.jsonl"), None)
        if not stopped and steps and steps.stat().st_size:
            stopped = True
            small_cluster.attempt(
                "scontrol", "requeue", "1"
            )  # 26.05 obeys, and calls its own answer unexpected

    run = run_policy(cluster, batch, policy, lambda: False, stop_the_first)
    assert (run.complete, run.summary.completed) == (True, 3)
    records = {record.job_id: record for record in read_jobs(out)}
    assert stopped
    assert records["long"].failures + records["long"].preemptions == 1
    assert [event["event"] for event in read_events(out) if event.get("job") == "b"][-1] == "end"
    assert read_run(out)["kind"] == "testbed"
    intervals = [line for line in read_lines(out / "stretches.jsonl") if line["job"] == "long"]
    assert sum(line["steps"] - line["lost_steps"] for line in intervals) == inputs.plans[0].steps
    for name in (CONTROLLER, MACHINE, GPU, "facts.jsonl", "workload.csv", "jobs/b/job.sh", "slurm-jobs.txt"):
        assert (out / name).stat().st_size, name
    why = [sys.executable, "-m", "dally", "why", "long", "--run", str(out)]
    assert (
        "a machine failed under it" in subprocess.run(why, capture_output=True, text=True, timeout=60).stdout
    )
    assert small_cluster.run("squeue", "--noheader") == ""
