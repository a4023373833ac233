"""GPU types, copies and open sizes on a real Slurm; each rank of the training is as slow as its node."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dally.jobs.job import Job, JobKind
from dally.profiles.emulated import of_types
from dally.runs.records import JobRecord, read_events, read_jobs
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from testbed.running.batch import RunBatch, check_policies, run_policy, topology_of
from testbed.running.folder import RunInputs, RunState
from testbed.running.job_plan import JobPlan, plan_jobs
from testbed.running.json_lines import read_lines
from tests.patience import LONGEST_S
from tests.testbed.running.worlds import job, profiles
from tests.workloads.ranks import started_with_torch

pytestmark = pytest.mark.slurm

SPEEDS = {"v100": 1.0, "k80": 0.5}
TFLOPS = {gpu_type: 0.08 * speed for gpu_type, speed in SPEEDS.items()}
"""So slow that a step of MobileNetV3 takes about the 0.1 s of the tests' profile on the faster type."""

FORKED = job("forked", 1, 60.0, kind=JobKind.FORKED, max_copies=4)
SHORT = job("short", 1, 4.0, submit_s=8.0, gpu_type="v100")


@pytest.fixture(scope="module")
def local_slurm() -> Iterator[LocalSlurm]:
    """Two nodes with a V100 each in one rack, two with a K80 each in another."""
    folder = Path(tempfile.mkdtemp(prefix="dally-", dir="/tmp"))
    local_slurm = LocalSlurm(LocalClusterSpec(folder, nodes=4, racks=2, gpus=1, gpu_types=("v100", "k80")))
    with started_with_torch(local_slurm):
        yield local_slurm


@dataclass(frozen=True)
class RanJobs:
    """What a run left: its jobs' records, and the intervals of each."""

    plans: Sequence[JobPlan]
    records: dict[str, JobRecord]
    folder: Path

    def intervals(self, name: str) -> list[dict[str, Any]]:
        return [line for line in read_lines(self.folder / "stretches.jsonl") if line["job"] == name]

    def steps_kept(self, name: str) -> int:
        kept: int = sum(line["steps"] - line["lost_steps"] for line in self.intervals(name))
        return kept


def ran(local_slurm: LocalSlurm, out: Path, policy: str, *jobs: Job) -> RanJobs:
    """Run jobs under a policy to their end."""
    cluster = local_slurm.cluster
    topology = topology_of(cluster, None)
    typed = of_types(profiles(), SPEEDS)
    plans = plan_jobs(jobs, topology, typed)
    state = RunState("", "", "", TFLOPS, "gloo", {"seed": 0})
    batch = RunBatch(out, RunInputs(plans, topology, typed), state, LONGEST_S)
    (spec,) = check_policies([policy])
    run = run_policy(cluster, batch, spec, lambda: False, lambda spec, counts: None)
    assert (run.complete, run.summary.completed) == (True, len(jobs))
    folder = out / run.folder
    return RanJobs(plans, {record.job_id: record for record in read_jobs(folder)}, folder)


def test_copies_train_side_by_side_and_give_way_to_another_job(
    local_slurm: LocalSlurm, tmp_path: Path
) -> None:
    found = ran(local_slurm, tmp_path, "hadar-e:round_s=6,overhead_s=0.5", FORKED, SHORT)
    first, *others = found.intervals("forked")
    assert first["gpus"] == {"n1": 1, "n2": 1, "n3": 1, "n4": 1}
    assert {len(line["gpus"]) for line in others} >= {3}
    assert found.steps_kept("forked") == found.plans[0].steps
    assert found.records["forked"].preemptions >= 1
    assert found.records["short"].failures == 0


def test_a_gang_lies_on_two_types_and_runs_at_the_slowdown_of_the_slower(
    local_slurm: LocalSlurm, tmp_path: Path
) -> None:
    found = ran(local_slurm, tmp_path, "hadar:round_s=6", job("gang", 3, 4.0))
    (line,) = found.intervals("gang")
    assert len(line["gpus"]) == 3
    assert line["compute_s"] == pytest.approx(0.2)


def test_an_elastic_job_gets_more_than_it_asked_for_where_that_helps(
    local_slurm: LocalSlurm, tmp_path: Path
) -> None:
    """Both V100s; with a K80 besides, all would run at its pace."""
    elastic = job("elastic", 1, 6.0, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=4)
    found = ran(local_slurm, tmp_path, "jps", elastic)
    assert [line["gpus"] for line in found.intervals("elastic")] == [{"n1": 1, "n2": 1}]
    assert found.steps_kept("elastic") == found.plans[0].steps


def test_an_elastic_policy_shrinks_a_job_for_another_and_lets_it_grow_again(
    local_slurm: LocalSlurm, tmp_path: Path
) -> None:
    elastic = job("elastic", 1, 45.0, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=2, gpu_type="v100")
    soon = replace(SHORT, submit_s=3.0)
    found = ran(local_slurm, tmp_path, "elastic-scaling:interval_s=5", elastic, soon)
    intervals = found.intervals("elastic")
    assert [len(line["gpus"]) for line in intervals] == [2, 1, 2]
    assert found.steps_kept("elastic") == found.plans[0].steps
    resizes = [event for event in read_events(found.folder) if event["event"] == "resize"]
    assert [sum(event["gpus"].values()) for event in resizes] == [1, 2]
    assert all("greatest sum of speed-ups" in event["reason"] for event in resizes)
