"""UsageFactor and LimitFactor on real Slurm with its accounting: what is foreseen is what Slurm does."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.studies.accounting_database import add_accounting
from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.slurm import HOLDS_GPUS, SlurmJob
from slurm_plugin.controller.limit_use import LimitUse
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec

CONF = (
    "AccountingStorageEnforce=safe,qos",
    "PriorityType=priority/multifactor",
    "PriorityCalcPeriod=1",
    "PriorityDecayHalfLife=0",
    "PriorityUsageResetPeriod=NONE",
)
FLAG = "Flags=UsageFactorSafe"
QOS = {
    "run2": ("GrpTRESRunMins=gres/gpu=40", "UsageFactor=2"),
    "run0": ("GrpTRESRunMins=gres/gpu=40", "UsageFactor=0"),
    "had2": ("GrpTRESMins=gres/gpu=40", "UsageFactor=2", FLAG),
    "half": ("GrpTRESMins=gres/gpu=40", "UsageFactor=0.5"),
    "each2": ("MaxTRESMinsPerJob=gres/gpu=40", "UsageFactor=2", FLAG),
    "wall": ("GrpWall=20",),
    "wide": ("LimitFactor=2",),
    "plain": (),
}
ASSOCIATION = "GrpTRES=gres/gpu=4"
ASKED = (  # QOS, GPUs and minutes of a job that runs, if any, and of one that starts beside it or does not
    ("run2", (2, 6), (2, 7), True),
    ("run2", (2, 6), (2, 9), False),
    ("run0", (2, 18), (2, 19), True),
    ("had2", (2, 6), (2, 3), True),
    ("had2", (2, 6), (2, 5), False),
    ("half", (1, 38), (1, 20), True),
    ("half", (1, 38), (1, 23), False),
    ("each2", None, (2, 9), True),
    ("each2", None, (2, 12), False),
    ("wall", (1, 10), (1, 18), True),
    ("wall", (1, 10), (1, 22), False),
    ("wide", None, (8, 5), True),
    ("plain", None, (5, 5), False),
)
NOT_YET = ("None", "JobHeldUser", "Priority", "BeginTime", "Resources")


class FactorSite:
    """A cluster of one node with eight GPUs, and the QOS above."""

    def __init__(self, local_slurm: LocalSlurm) -> None:
        self.local_slurm, self.slurm = local_slurm, CommandLine(local_slurm.environment)

    def hold(self, qos: str, gpus: int, minutes: int) -> str:
        """Submit a held job; its number."""
        what = (f"--qos={qos}", f"--gres=gpu:{gpus}", f"--time={minutes}", "--wrap=sleep 600")
        return self.local_slurm.run("sbatch", "--parsable", "--hold", "--output=/dev/null", *what).strip()

    def job(self, number: str) -> SlurmJob:
        """A job as Slurm shows it."""
        return next(job for job in self.slurm.jobs() if job.job_id == number)

    def released(self, number: str) -> str:
        """Release a job; the state that it comes to."""
        self.local_slurm.run("scontrol", "release", number)

        def is_told() -> bool:
            state, reason = self.shown(number)
            return state == "RUNNING" or reason not in NOT_YET

        self.local_slurm.wait_for(is_told, f"job {number} to start or be told why not", 30)
        return self.shown(number)[0]

    def shown(self, number: str) -> list[str]:
        """State and reason."""
        return self.local_slurm.run("squeue", "-h", "-j", number, "-o", "%T|%r").strip().split("|")

    def foreseen(self, number: str) -> str:
        """What is said to keep a job from starting now."""
        accounting, jobs = self.slurm.spent(self.slurm.limits()), self.slurm.jobs()
        use = LimitUse(accounting, {}, {}, time.time())
        for job in jobs:
            if job.state in HOLDS_GPUS:
                use.run(job, sum(job.gpus.values()), is_in_spent=True)
        asked = self.job(number)
        return use.refusal(asked, int(asked.tres["gres/gpu"]))

    def end(self, *numbers: str) -> None:
        """End jobs, and wait until they are gone."""
        self.local_slurm.run("scancel", *numbers)
        self.local_slurm.wait_for(lambda: not self.local_slurm.run("squeue", "-h").strip(), "no job", 30)


@pytest.fixture
def site(cluster_folder: Path) -> Iterator[FactorSite]:
    spec = LocalClusterSpec(cluster_folder, 1, 1, 8, partitions=("gpu",), extra_conf=CONF)
    local_slurm = LocalSlurm(spec)
    local_slurm.start()
    add_accounting(local_slurm, {})
    for name, limits in QOS.items():
        local_slurm.run("sacctmgr", "--immediate", "add", "qos", name)
        if limits:
            local_slurm.run("sacctmgr", "--immediate", "modify", "qos", name, "set", *limits)
    names = ",".join(QOS)
    local_slurm.run("sacctmgr", "--immediate", "modify", "user", "root", "set", f"qos={names}", ASSOCIATION)
    yield FactorSite(local_slurm)
    local_slurm.stop()


def test_a_job_starts_where_that_is_foreseen(site: FactorSite) -> None:
    for qos, first, asked, starts in ASKED:
        running = []
        if first:
            running = [site.hold(qos, *first)]
            assert site.released(running[0]) == "RUNNING", qos
        waits = site.hold(qos, *asked)
        why = site.foreseen(waits)
        assert not why if starts else "asked for" in why or "asks for" in why, (qos, asked, why)
        assert site.released(waits) == ("RUNNING" if starts else "PENDING"), (qos, asked)
        site.end(*running, waits)
