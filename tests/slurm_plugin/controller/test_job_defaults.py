"""What jobs get that say nothing of CPUs and memory, where partitions give it by GPU."""

from pathlib import Path
from typing import Any

import pytest

from dally.testing.worlds import racks
from slurm_plugin.client.slurm import JobDefaults, Partition, SlurmJob, State
from slurm_plugin.controller.job_defaults import DefaultsOfJobs, with_defaults
from tests.slurm_plugin.worlds import FakeSite

BY_GPU = JobDefaults(cpus_per_gpu=3, memory_per_gpu_mb=5000, memory_per_cpu_mb=100)


def held(**asks: Any) -> SlurmJob:
    return SlurmJob("7", 0.0, State.PENDING, partition=asks.pop("partition", "gpu"), **asks)


@pytest.mark.parametrize(
    ("asks", "cpus", "memory"),
    [
        ({}, 3, (5000, 0, 0)),
        ({"memory_per_cpu_mb": 100}, 3, (5000, 0, 0)),  # as the cluster gives it
        ({"memory_per_cpu_mb": 200, "memory_per_gpu_mb": 5000}, 3, (0, 200, 0)),
        ({"memory_per_node_mb": 900}, 3, (0, 0, 900)),
        ({"memory_per_gpu_mb": 1000}, 3, (1000, 0, 0)),
        ({"cpus_per_gpu": 2}, 2, (5000, 0, 0)),
        ({"cpus_per_task": 2}, 0, (5000, 0, 0)),
    ],
)
def test_what_a_job_gets_as_tried_on_22_05(
    asks: dict[str, Any], cpus: int, memory: tuple[int, int, int]
) -> None:
    job = with_defaults(held(**asks), BY_GPU)
    assert job.cpus_per_gpu == cpus
    assert (job.memory_per_gpu_mb, job.memory_per_cpu_mb, job.memory_per_node_mb) == memory


def test_limits_go_by_what_a_job_will_have() -> None:
    tres = {"cpu": 1.0, "mem": 64_000.0, "node": 1.0, "gres/gpu": 2.0}
    assert with_defaults(held(tres=tres), BY_GPU).tres == {**tres, "cpu": 6, "mem": 10_000}
    asks = held(tres=tres, memory_per_node_mb=64_000, cpus_per_task=2)
    assert with_defaults(asks, BY_GPU).tres == tres
    runs = SlurmJob("7", 0.0, State.RUNNING, tres=tres)
    assert with_defaults(runs, BY_GPU).tres == tres


def test_a_job_of_several_partitions_is_taken_to_get_what_the_most_generous_gives() -> None:
    jobs = [held(partition="small,big"), held(partition="other")]
    partitions = [Partition("small", defaults=JobDefaults(memory_per_gpu_mb=10)), Partition("other")]
    partitions.append(Partition("big", defaults=JobDefaults(memory_per_gpu_mb=20)))
    defaults = DefaultsOfJobs()
    assert defaults.applied(jobs[:1], partitions)[0].memory_per_gpu_mb == 20
    assert defaults.applied(jobs[1:], partitions)[0] is jobs[1]


def test_a_job_that_did_not_change_is_the_same_object_until_its_partition_changes() -> None:
    jobs, defaults = [held()], DefaultsOfJobs()
    first = defaults.applied(jobs, [Partition("gpu", defaults=BY_GPU)])[0]
    assert defaults.applied(jobs, [Partition("gpu", defaults=BY_GPU)])[0] is first
    assert defaults.applied(jobs, [Partition("gpu")])[0] is jobs[0]


def test_jobs_share_a_node_where_the_partition_gives_memory_by_gpu(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[4]]), memory_mb=64_000)
    site.slurm.rules = {"gpu": Partition("gpu", defaults=JobDefaults(memory_per_gpu_mb=20_000))}
    jobs = [site.submit(gpus_per_node=1, run_time_s=1000.0) for _ in range(4)]
    site.live(60)
    assert [site.states()[job] for job in jobs] == ["RUNNING"] * 3 + ["PENDING"]
    assert not site.events("start_failed")
