"""Tables of speeds by size: least and most sizes, shares of machines, phases of the training."""

from dataclasses import replace

import pytest

from dally.cluster import load_cluster
from dally.jobs.job import Job, JobKind
from dally.policies.common.elastic_speeds import Speeds
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.profiles.goodput import Batching
from dally.state import JobState
from dally.testing.worlds import racks

POLLUX = load_profiles("pollux")


def elastic(least: int, gpus: int, most: int, model: str = "", share: int | None = None) -> JobState:
    job = Job("j", 0.0, gpus, 1000.0, model=model, kind=JobKind.ELASTIC, min_gpus=least, max_gpus=most)
    return JobState(replace(job, gpus_per_machine=share), 0, 0.0)


def row(costs: CostModel, job: JobState, now: float = 0.0) -> list[float]:
    return [round(speed, 9) for speed in Speeds(costs).row(job, now).tolist()]


def test_without_a_profile_speed_goes_with_the_gpus_from_the_least_size_on() -> None:
    costs = CostModel(racks([[4, 4]]))
    assert row(costs, elastic(2, 2, 5)) == [0, 0, 1, 1.5, 2, 2.5]


def test_there_is_no_more_than_the_cluster_has() -> None:
    assert len(row(CostModel(racks([[3]])), elastic(1, 1, 9))) == 4


def test_a_job_with_a_share_of_each_machine_runs_on_multiples_of_it() -> None:
    assert row(CostModel(racks([[3, 3, 3]])), elastic(2, 2, 6, share=2)) == [0, 0, 1, 0, 2, 0, 3]


def test_rigid_and_forked_jobs_have_one_size() -> None:
    for kind in (JobKind.RIGID, JobKind.FORKED):
        job = JobState(Job("j", 0.0, 2, 10.0, kind=kind), 0, 0.0)
        assert row(CostModel(racks([[4]])), job) == [0, 0, 1]


def test_a_larger_batch_is_worth_more_late_in_the_training() -> None:
    """Gradients grow noisier, so that what eight GPUs do with eight times the batch counts for more."""
    costs = CostModel(load_cluster("pollux-64"), POLLUX, batching=Batching.LINEAR)
    job, table = elastic(1, 1, 8, "cifar10"), Speeds(costs)
    early = table.row(job, 0.0)
    job.work_before_s = 990.0
    late = table.row(job, 0.0)
    assert late[8] / late[1] > 1.2 * early[8] / early[1]
    assert table.row(job, 0.0) is late, "it is remembered"


def test_where_the_batch_stays_the_phase_does_not_count() -> None:
    costs = CostModel(load_cluster("pollux-64"), POLLUX)
    job = elastic(1, 1, 8, "cifar10")
    early = row(costs, job)
    job.work_before_s = 990.0
    assert row(costs, job) == pytest.approx(early)
