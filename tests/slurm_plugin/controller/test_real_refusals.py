"""Refused starts and time limits on real Slurm: nobody is stopped in vain."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.controller.journal import read_events
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from tests.slurm_plugin.controller.test_real_controller import RealSite

NODES = 2
GPUS = 2

ELASTIC = """#!/bin/bash
trap 'echo $step > step.$SLURM_JOB_ID; exit 85' USR1
step=$(cat step.$SLURM_JOB_ID 2>/dev/null || echo 0)
gpus=$(echo $CUDA_VISIBLE_DEVICES | tr ',' '\\n' | grep -c .)
while [ $step -lt $1 ]; do sleep 1 & wait $!; step=$((step + gpus)); done
"""


SLOW = """#!/bin/bash
trap 'sleep 8; exit 85' USR1
while :; do sleep 1 & wait $!; done
"""


@pytest.fixture
def small_cluster(cluster_folder: Path) -> Iterator[LocalSlurm]:
    """Two nodes of two GPUs, and one licence."""
    spec = LocalClusterSpec(
        cluster_folder,
        NODES,
        1,
        GPUS,
        partitions=("gpu",),
        extra_conf=("Licenses=matlab:1", "OverTimeLimit=0"),
    )
    local_slurm = LocalSlurm(spec)
    local_slurm.start()
    yield local_slurm
    local_slurm.stop()


def site_of(local_slurm: LocalSlurm, policy: str) -> RealSite:
    site = RealSite(local_slurm, policy)
    (local_slurm.work / "elastic.sh").write_text(ELASTIC)
    return site


def events(site: RealSite, *kinds: str) -> list[tuple[str, str]]:
    site.controller.cycle()
    found = read_events(Path(site.config.state_dir))
    return [(each["event"], each["job"]) for each in found if each["event"] in kinds]


def stopped_for_limits(site: RealSite) -> list[str]:
    """Jobs that were asked for a checkpoint because of their time limits, not to be resized."""
    found = read_events(Path(site.config.state_dir))
    return [each["job"] for each in found if each["event"] == "stop" and "time limit" in each["reason"]]


@pytest.mark.parametrize(
    "asked", [("--licenses=matlab:1",), ("--mem=10T",)], ids=["licence-in-use", "more-memory-than-there-is"]
)
def test_a_job_that_slurm_would_not_start_stops_nobody(
    small_cluster: LocalSlurm, asked: tuple[str, ...]
) -> None:
    site = site_of(small_cluster, "srtf")
    jobs = [
        site.submit("--gres=gpu:2", "--checkpoint-signal=USR1", "-t", "60", "train.sh", f"j{number}")
        for number in range(NODES)
    ]
    site.until(lambda: all(site.state(job) == "RUNNING" for job in jobs))
    small_cluster.run("sbatch", "--parsable", "-L", "matlab:1", "-o", "/dev/null", "--wrap=sleep 600")
    bad = site.submit("--gres=gpu:2", "-t", "1", *asked, "sleep.sh", "5")
    site.until(lambda: bad in site.managed_jobs and site.managed_jobs[bad].phase.name is JobPhase.INELIGIBLE)
    for _ in range(10):
        site.controller.cycle()
    assert events(site, "stop", "start_failed") == []
    assert [site.state(job) for job in jobs] == ["RUNNING"] * NODES
    site.journal.close()


def test_a_job_goes_past_a_node_whose_cpus_are_used_up(small_cluster: LocalSlurm) -> None:
    site = site_of(small_cluster, "srsf-delay")
    hog = small_cluster.run(
        "sbatch", "--parsable", "-w", "n1", "-c", "16", "-o", "/dev/null", "--wrap=sleep 600"
    )
    small_cluster.wait_for(lambda: site.state(hog.strip()) == "RUNNING", "the CPUs to be taken")
    job = site.submit("--gres=gpu:1", "-t", "1", "sleep.sh", "30")
    site.until(lambda: site.state(job) == "RUNNING")
    assert site.nodes(job) == "n2"
    assert events(site, "start_failed") == []
    site.journal.close()


def test_jobs_that_get_memory_by_gpu_share_a_node_as_far_as_it_goes(small_cluster: LocalSlurm) -> None:
    site = site_of(small_cluster, "srsf-delay")
    small_cluster.run("scontrol", "update", "PartitionName=gpu", "JobDefaults=DefMemPerGPU=40000")
    jobs = [site.submit("--gres=gpu:1", "-t", "1", "sleep.sh", "30") for _ in range(NODES)]
    site.until(lambda: all(site.state(job) == "RUNNING" for job in jobs))
    assert {site.nodes(job) for job in jobs} == {"n1", "n2"}
    assert events(site, "start_failed") == []
    site.journal.close()


def test_a_job_of_slurms_own_does_not_get_what_the_first_of_two_stopped_jobs_leaves(
    small_cluster: LocalSlurm,
) -> None:
    site = site_of(small_cluster, "srtf")
    (small_cluster.work / "slow.sh").write_text(SLOW)
    asked = ("--gres=gpu:2", "--checkpoint-signal=USR1", "--checkpoint-grace=30", "-t", "60")
    quick = site.submit(*asked, "train.sh", "quick")
    slow = site.submit(*asked, "slow.sh")
    site.until(lambda: site.state(quick) == site.state(slow) == "RUNNING", "for both to run")
    taker = site.submit("-N2", "--gres=gpu:2", "-t", "1", "sleep.sh", "5")
    plain = small_cluster.run(
        "sbatch", "--parsable", "--gres=gpu:2", "-t", "10", "-o", "/dev/null", "--wrap=sleep 300"
    )
    site.until(lambda: site.state(taker) != "PENDING", "for the taker to start")
    assert site.state(plain.strip()) == "PENDING"
    started = [each for each in events(site, "start") if each[1] == taker]
    assert started
    assert events(site, "start_failed") == []
    site.journal.close()


@pytest.mark.parametrize("longest", ["UNLIMITED", "1"])
def test_elastic_jobs_that_share_a_node_do_not_run_into_their_limits(
    small_cluster: LocalSlurm, longest: str
) -> None:
    site = site_of(small_cluster, "elastic-scaling:interval_s=20")
    small_cluster.run("scontrol", "update", "PartitionName=gpu", f"MaxTime={longest}")
    asked = ("--gpus-per-task=1", "--ntasks=2", "--min-gpus=1", "--max-gpus=2", "--checkpoint-grace=5")
    jobs = [
        site.submit(*asked, "--checkpoint-signal=USR1", "-t", "1", "elastic.sh", "80")
        for _ in range(NODES * GPUS)
    ]
    site.until(lambda: not site.managed_jobs and events(site, "submit"))
    assert [site.state(job) for job in jobs] == ["COMPLETED"] * len(jobs)
    assert bool(stopped_for_limits(site)) == (longest == "1")
    site.journal.close()
