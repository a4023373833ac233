"""Limits of QOS on real Slurm with its accounting: a job at one waits, stops nobody, and is never refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.studies.accounting_database import add_accounting
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from tests.slurm_plugin.controller.test_real_controller import RealSite
from tests.slurm_plugin.controller.test_real_refusals import events

LIMITS = ("MaxTRESPerUser=gres/gpu=2", "GrpJobs=5")


@pytest.fixture
def site(cluster_folder: Path) -> Iterator[RealSite]:
    """Two nodes of two GPUs, and a QOS of which each user may hold two."""
    enforce = ("AccountingStorageEnforce=limits,qos",)
    local_slurm = LocalSlurm(
        LocalClusterSpec(cluster_folder, 2, 1, 2, partitions=("gpu",), extra_conf=enforce)
    )
    local_slurm.start()
    add_accounting(local_slurm, {})
    for words in (
        ("add", "qos", "low"),
        ("modify", "qos", "low", "set", *LIMITS),
        ("modify", "user", "root", "set", "qos+=low"),
    ):
        local_slurm.run("sacctmgr", "--immediate", *words)
    yield RealSite(local_slurm, "srtf")
    local_slurm.stop()


def test_a_job_at_a_limit_waits_and_stops_nobody(site: RealSite) -> None:
    long = site.submit("--gres=gpu:2", "--checkpoint-signal=USR1", "-t", "60", "train.sh", "long")
    first = site.submit("--gres=gpu:2", "-t", "1", "--qos=low", "sleep.sh", "15")
    site.until(lambda: site.state(long) == site.state(first) == "RUNNING", "for both to run")
    assert {limit.name for limit in site.controller.reconciler.conditions.limits} == {
        "MaxTRESPerUser of QOS low",
        "GrpJobs of QOS low",
    }
    second = site.submit("--gres=gpu:1", "-t", "1", "--qos=low", "sleep.sh", "1")
    site.until(
        lambda: second in site.managed_jobs and site.managed_jobs[second].phase.name is JobPhase.INELIGIBLE
    )
    assert site.managed_jobs[second].reason == "MaxTRESPerUser of QOS low is 2 GPUs: 2 taken, 1 asked for"
    site.until(lambda: second not in site.managed_jobs, "for the second to end")
    assert [site.state(job) for job in (first, second)] == ["COMPLETED", "COMPLETED"]
    assert site.state(long) == "RUNNING"
    assert events(site, "start_failed", "stop", "released") == []
