"""Whole nodes, features, exclusions and CPUs on real Slurm: jobs start where they may, and only there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from tests.slurm_plugin.controller.test_real_controller import RealSite
from tests.slurm_plugin.controller.test_real_refusals import events

FEATURES = {"n1": "a100", "n2": "a100,ib", "n3": "h100,ib", "n4": "h100"}


@pytest.fixture
def site(cluster_folder: Path) -> Iterator[RealSite]:
    """Four nodes of two GPUs and 16 CPUs, in two racks, with features."""
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, 4, 2, 2, partitions=("gpu", "cpu")))
    local_slurm.start()
    for node, features in FEATURES.items():
        has = (f"AvailableFeatures={features}", f"ActiveFeatures={features}")
        local_slurm.run("scontrol", "update", f"NodeName={node}", *has)
    yield RealSite(local_slurm, "srsf-delay")
    local_slurm.stop()


def sleeping(site: RealSite, *options: str) -> str:
    return site.submit("-t", "10", "-o/dev/null", *options, "sleep.sh", "60")


def until_running(site: RealSite, *jobs: str) -> None:
    site.until(lambda: all(site.state(job) == "RUNNING" for job in jobs), "for jobs to run")


def test_exclusive_jobs_get_whole_nodes_in_their_turn_and_share_them_with_nobody(site: RealSite) -> None:
    small = sleeping(site, "--gres=gpu:1")
    until_running(site, small)
    whole = sleeping(site, "-N3", "--gres=gpu:1", "--exclusive")
    until_running(site, whole)
    assert site.nodes(whole) == "n[2-4]"
    assert site.managed_jobs[whole].gpus == {"n2": 2, "n3": 2, "n4": 2}
    other = sleeping(site, "--gres=gpu:1")
    until_running(site, other)
    assert site.nodes(other) == "n1"
    waits = sleeping(site, "-N4", "--exclusive")
    for _ in range(5):
        site.controller.cycle()
    assert site.managed_jobs[waits].phase.name is JobPhase.PENDING
    site.local_slurm.run("scancel", small, whole, other)
    until_running(site, waits)
    assert site.managed_jobs[waits].gpus == dict.fromkeys(("n1", "n2", "n3", "n4"), 2)
    assert events(site, "start_failed", "stop", "released") == []


def test_features_and_exclusions_are_kept(site: RealSite) -> None:
    both = sleeping(site, "--gres=gpu:2", "-C", "h100&ib")
    pair = sleeping(site, "-N2", "--gres=gpu:1", "-C", "a100|h100", "-x", "n3,n4")
    last = sleeping(site, "--gres=gpu:2", "-x", "n1,n2,n3")
    until_running(site, both, pair, last)
    assert [site.nodes(job) for job in (both, pair, last)] == ["n3", "n[1-2]", "n4"]
    assert events(site, "start_failed", "released") == []


def test_a_node_whose_cpus_are_taken_is_left_alone_and_nobody_stops_for_it(site: RealSite) -> None:
    for node in ("n1", "n2", "n3"):
        site.local_slurm.run("sbatch", "-p", "cpu", "-w", node, "-c", "14", "-o/dev/null", "--wrap=sleep 600")
    site.local_slurm.wait_for(
        lambda: "PENDING" not in site.local_slurm.run("squeue", "-h", "-o", "%T"), "others to run"
    )
    roomy = [sleeping(site, "--gres=gpu:1", "-c", "4", "--checkpoint-signal=USR1") for _ in range(2)]
    until_running(site, *roomy)
    assert [site.nodes(job) for job in roomy] == ["n4", "n4"]
    third = sleeping(site, "--gres=gpu:1", "-c", "12", "-t", "1")
    for _ in range(5):
        site.controller.cycle()
    assert site.state(third) == "PENDING"
    fits = sleeping(site, "--gres=gpu:1", "-c", "2")
    until_running(site, fits)
    assert events(site, "start_failed", "stop") == []
