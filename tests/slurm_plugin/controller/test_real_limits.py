"""QOS on real Slurm with its accounting: a job at a limit waits and stops nobody; priorities are Slurm's."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.studies.accounting_database import add_accounting
from slurm_plugin.controller.job_priorities import priority_of
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from tests.slurm_plugin.controller.test_real_controller import RealSite
from tests.slurm_plugin.controller.test_real_refusals import events

LIMITS = ("MaxTRESPerUser=gres/gpu=2", "GrpJobs=5", "MaxWall=30", "Priority=40")
GRACE = ("--checkpoint-grace=300",)
WEIGHTS = [
    f"PriorityWeight{factor}={weight}"
    for factor, weight in (
        ("Age", 1000),
        ("Fairshare", 10_000),
        ("JobSize", 100),
        ("Partition", 50),
        ("QOS", 2000),
    )
]


@pytest.fixture
def site(cluster_folder: Path) -> Iterator[RealSite]:
    """Two nodes of two GPUs, a QOS of which each user may hold two, and priorities of all factors."""
    enforce = ("AccountingStorageEnforce=limits,qos", "PriorityType=priority/multifactor", *WEIGHTS)
    local_slurm = LocalSlurm(
        LocalClusterSpec(cluster_folder, 2, 1, 2, partitions=("gpu", "small"), extra_conf=enforce)
    )
    local_slurm.start()
    add_accounting(local_slurm, {})
    for words in (
        ("add", "qos", "low"),
        ("modify", "qos", "low", "set", *LIMITS),
        ("add", "qos", "ofsmall"),
        ("modify", "qos", "ofsmall", "set", "MaxTRESPerJob=cpu=2"),
        ("modify", "user", "root", "set", "qos+=low"),
    ):
        local_slurm.run("sacctmgr", "--immediate", *words)
    local_slurm.run("scontrol", "update", "PartitionName=small", "QOS=ofsmall", "MaxTime=10", "MaxNodes=1")
    yield RealSite(local_slurm, "srtf", partitions=("gpu", "small"))
    local_slurm.stop()


def test_a_job_at_a_limit_waits_and_stops_nobody(site: RealSite) -> None:
    long = site.submit("--gres=gpu:2", "--checkpoint-signal=USR1", "-t", "60", *GRACE, "train.sh", "long")
    first = site.submit("--gres=gpu:2", "-t", "1", "--qos=low", "sleep.sh", "15")
    site.until(lambda: site.state(long) == site.state(first) == "RUNNING", "for both to run")
    assert {limit.name for limit in site.controller.reconciler.conditions.limits.limits} == {
        "MaxTRESPerUser of QOS low",
        "GrpJobs of QOS low",
        "MaxWall of QOS low",
        "MaxTRESPerJob of QOS ofsmall",
    }
    never = {
        site.submit("--gres=gpu:1", *options, "sleep.sh", "1"): why
        for options, why in (
            (("-t", "60", "--qos=low"), "MaxWall of QOS low is 30 min: it asks for 1 h, so it never starts"),
            (
                ("-t", "20", "-p", "small"),
                "MaxTime of partition small is 10 min: it asks for 20 min, so it never starts",
            ),
            (
                ("-t", "1", "-p", "small", "-N", "2"),
                "MaxNodes of partition small is 1 node: it asks for 2, so it never starts",
            ),
            (
                ("-t", "1", "-p", "small", "-c", "4"),
                "MaxTRESPerJob of QOS ofsmall is 2 CPUs: it asks for 4, so it never starts",
            ),
        )
    }
    site.until(lambda: never.keys() <= site.managed_jobs.keys(), "for all to be seen")
    assert {job: site.managed_jobs[job].reason for job in never} == never
    second = site.submit("--gres=gpu:1", "-t", "1", "--qos=low", "sleep.sh", "1")
    site.until(
        lambda: second in site.managed_jobs and site.managed_jobs[second].phase.name is JobPhase.INELIGIBLE
    )
    assert site.managed_jobs[second].reason == "MaxTRESPerUser of QOS low is 2 GPUs: 2 taken, 1 asked for"
    site.until(lambda: second not in site.managed_jobs, "for the second to end")
    assert [site.state(job) for job in (first, second)] == ["COMPLETED", "COMPLETED"]
    assert site.state(long) == "RUNNING"
    assert events(site, "start_failed", "stop", "released") == []

    run = site.local_slurm.run
    plain = (
        "sbatch",
        "--parsable",
        "--exclusive",
        "--nodes=2",
        "--time=10",
        "--nice=30",
        "--output=/dev/null",
        "--wrap=true",
    )
    waits = [run(*plain).strip(), run(*plain, "--qos=low").strip()]

    def as_slurm_has_it() -> bool:
        factors, look = site.slurm.priority_factors(), site.controller.reconciler.seen
        assert factors.fair_share.keys() == {("root", "root")}
        return all(
            abs(priority_of(look(job), look(job).submit_s, factors, (2, 32), time.time()) - shown) < 2
            for job in waits
            if (shown := float(run("squeue", "-h", "-j", job, "-o", "%Q")))
        )

    site.until(as_slurm_has_it, "for the priorities that Slurm gives jobs that nobody holds")
    site.local_slurm.run("scancel", *waits)

    (node,) = site.managed_jobs[long].gpus  # and before a maintenance it goes on elsewhere
    maintenance = (
        "ReservationName=power",
        "StartTime=now+240",
        "Duration=10",
        "Users=root",
        "Flags=MAINT,IGNORE_JOBS",
    )
    site.local_slurm.run("scontrol", "create", "reservation", f"Nodes={node}", *maintenance)
    site.until(lambda: events(site, "stop") != [], "for it to be asked for its checkpoint")
    site.until(lambda: site.state(long) == "RUNNING" and node not in site.managed_jobs[long].gpus, "to move")
    assert events(site, "start_failed", "stop", "released") == [("stop", long)]
