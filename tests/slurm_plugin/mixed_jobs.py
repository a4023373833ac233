"""Random jobs of all kinds on a real Slurm with accounting: none is lost, refused, or stops others in vain.

`python -m tests.slurm_plugin.mixed_jobs 1000` runs so many, for an hour or more; the tests run some dozens.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from analysis.studies.accounting_database import add_accounting
from slurm_plugin.controller.journal import read_events
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from tests.slurm_plugin.controller.test_real_controller import RealSite

PARTITIONS = {"gpu": "n[1-6]", "east": "n[1-3]", "west": "n[4-6]", "cpu": "n[1-6]"}
OURS = ("gpu", "east", "west")
FEATURES = {"n1": "a100", "n2": "a100,ib", "n3": "a100,ib", "n4": "h100,ib", "n5": "h100,ib", "n6": "h100"}
QOS = {
    "short": ("MaxTRESPerUser=gres/gpu=4", "MaxJobsPerUser=3"),
    "wide": ("GrpTRES=gres/gpu=6",),
}
LICENSES = "Licenses=matlab:2,ansys:1"

SCRIPT = """#!/bin/bash
trap 'echo $step > step.$SLURM_JOB_ID; exit 85' USR1
step=$(cat step.$SLURM_JOB_ID 2>/dev/null || echo 0)
while [ $step -lt $1 ]; do sleep 1 & wait $!; step=$((step + 1)); done
"""


@dataclass(frozen=True)
class MixedOutcome:
    """What became of the jobs of one run.

    Attributes:
        states: How many ended in each of Slurm's states.
        refused: Starts that Slurm refused, by its reason.
        preempted: How many preemptions there were.
        in_vain: Preemptions for a job that Slurm then did not start.
    """

    states: Counter[str]
    refused: Counter[str]
    preempted: int
    in_vain: list[str]


def random_options(random: Random) -> list[str]:
    """What one user asks for; each such job can run on `mixed_site`'s cluster if nobody else is there."""
    partition = random.choice(["gpu", "gpu", "east", "west", "east,west"])
    nodes = random.choice([1, 1, 1, 2])
    size = random.choice(["gres", "gres", "gpus", "tasks"])
    each = random.choice([1, 1, 2, 4])
    options = [f"--partition={partition}", "--time", str(random.randint(1, 3)), "--output=/dev/null"]
    if size == "gres":
        options += [f"--nodes={nodes}", f"--gres=gpu:{each}"]
    elif size == "gpus":
        options += [f"--gpus={random.randint(1, 4)}"]
    else:
        options += [f"--nodes={nodes}", f"--ntasks={nodes * 2}", "--ntasks-per-node=2", "--gpus-per-task=1"]
    if random.random() < 0.5:
        options += [f"--cpus-per-task={random.choice([2, 4, 6])}"]
    if random.random() < 0.4:
        options += [random.choice(["--mem=10G", "--mem=30G", "--mem=60000M", "--mem-per-cpu=2G"])]
    if random.random() < 0.2:
        options += [f"--licenses={random.choice(['matlab:1', 'matlab:2', 'ansys'])}"]
    exclusive = random.random() < 0.1 and size == "gres"
    if random.random() < 0.25 and each * nodes <= 4 and not exclusive:  # which would hold eight GPUs
        options += [f"--qos={random.choice(['short', 'wide'])}"]
    if partition == "gpu" and random.random() < 0.3:
        options += [f"--constraint={random.choice(['ib', 'a100', 'h100', 'a100|h100', 'h100&ib'])}"]
    elif random.random() < 0.2:
        options += [f"--exclude={random.choice(['n1', 'n6'])}"]
    if exclusive:
        options += ["--exclusive"]
    if random.random() < 0.6:
        options += ["--checkpoint-signal=USR1", "--checkpoint-grace=5"]
    return options


def random_cpu_job(random: Random) -> tuple[str, ...]:
    """The command for a job that is not Dally's and takes CPUs of any node."""
    cpus, seconds = random.choice([4, 8, 14]), random.randint(5, 20)
    return "sbatch", "-p", "cpu", "-c", str(cpus), "-o/dev/null", f"--wrap=sleep {seconds}"


def set_up_nodes(local_slurm: LocalSlurm) -> None:
    """Set the features of nodes and the nodes of partitions, which a slurmctld that starts does not keep."""
    for node, features in FEATURES.items():
        has = (f"AvailableFeatures={features}", f"ActiveFeatures={features}")
        local_slurm.run("scontrol", "update", f"NodeName={node}", *has)
    for name, nodes in PARTITIONS.items():
        local_slurm.run("scontrol", "update", f"PartitionName={name}", f"Nodes={nodes}")


@contextmanager
def mixed_cluster(folder: Path) -> Iterator[LocalSlurm]:
    """Six nodes of four GPUs, with features, partitions over some of them, limits of QOS, and licences."""
    spec = LocalClusterSpec(
        folder,
        6,
        3,
        4,
        partitions=tuple(PARTITIONS),
        extra_conf=("AccountingStorageEnforce=limits,qos", LICENSES),
    )
    local_slurm = LocalSlurm(spec)
    local_slurm.start()
    try:
        add_accounting(local_slurm, {})
        for name, limits in QOS.items():
            local_slurm.run("sacctmgr", "--immediate", "add", "qos", name)
            local_slurm.run("sacctmgr", "--immediate", "modify", "qos", name, "set", *limits)
            local_slurm.run("sacctmgr", "--immediate", "modify", "user", "root", "set", f"qos+={name}")
        set_up_nodes(local_slurm)
        (local_slurm.work / "mixed.sh").write_text(SCRIPT)
        yield local_slurm
    finally:
        local_slurm.stop()


@contextmanager
def mixed_site(folder: Path, policy: str) -> Iterator[RealSite]:
    """Such a cluster, with a controller in this process."""
    with mixed_cluster(folder) as local_slurm:
        yield RealSite(local_slurm, policy, partitions=OURS)


def run_mixed_jobs(
    site: RealSite,
    count: int,
    seed: int,
    others: float = 0.15,
    at_once: int = 25,
    lasting_s: tuple[int, int] = (2, 12),
) -> MixedOutcome:
    """Submit random jobs, and cycle until all have ended.

    Args:
        site: A site of `mixed_site`.
        count: How many jobs.
        seed: Of what they ask for.
        others: So many CPU jobs that are not Dally's come with each. Slurm may start one on a chosen node
            between a look and an order, and the job that was to start there is refused.
        at_once: So many jobs wait or run at a time.
        lasting_s: Shortest and longest time of a job.
    """
    random, jobs = Random(seed), list[str]()
    deadline = time.monotonic() + 60 + 30 * count
    while len(jobs) < count or site.managed_jobs:
        assert time.monotonic() < deadline, {job.job_id: job.reason for job in site.managed_jobs.values()}
        while len(jobs) < count and len(site.managed_jobs) < at_once:
            jobs.append(site.submit(*random_options(random), "mixed.sh", str(random.randint(*lasting_s))))
            if random.random() < others:
                site.local_slurm.run(*random_cpu_job(random))
            site.controller.cycle()
        site.controller.cycle()
        time.sleep(0.2)
    folder = Path(site.config.state_dir)
    events = [event for job in jobs for event in read_events(folder, job)]  # of all at once it gives the last
    return outcome(jobs, sorted(events, key=lambda event: event["t"]))


def outcome(jobs: list[str], events: list[dict[str, Any]]) -> MixedOutcome:
    """What the journal's events say of a run's jobs."""
    ended = {each["job"]: each["status"] for each in events if each["event"] == "end"}
    refused = [each for each in events if each["event"] == "start_failed"]
    preempted = [each for each in events if each["event"] == "preempt"]
    tries = [each for each in events if each["event"] in ("start", "start_failed")]
    in_vain = []
    for stop in preempted:
        for taker in stop["by"]:
            later = [each["event"] for each in tries if each["job"] == taker and each["t"] >= stop["t"]]
            in_vain += [taker] if later[:1] == ["start_failed"] else []
    return MixedOutcome(
        Counter(ended.get(job, "LOST") for job in jobs),
        Counter(each["reason"].partition(": ")[2] for each in refused),
        len(preempted),
        in_vain,
    )


def main() -> None:
    """Run as many jobs as the command line says, under a policy (srsf-delay) and with a seed (0)."""
    count, policy, seed = (*sys.argv[1:], *("1000", "srsf-delay", "0")[len(sys.argv) - 1 :])
    with mixed_site(Path(tempfile.mkdtemp(prefix="dally-", dir="/tmp")), policy) as site:
        print(run_mixed_jobs(site, int(count), int(seed)))


if __name__ == "__main__":
    main()
