"""Companions on a real Slurm, in the controller's hands: they make room for another job, and join again."""

from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from tests.slurm_plugin.controller.test_real_controller import RealSite, sleeping
from tests.workloads.elastic.real_site import four_nodes, submit_training
from tests.workloads.elastic.test_run import steps

MOST_LOST_S = 50.0
"""Ranks that wait for one that does not come go on without it after 60 s."""

SCRIPT = """\
#!/bin/bash
#SBATCH --ntasks=1 --gpus-per-task=1 --chdir={root} --output={work}/output --open-mode=append
trap : USR1
export MASTER_ADDR=127.0.0.1 OMP_NUM_THREADS=1 DALLY_PRELOADED={preloaded}
srun {python} -m workloads.train digits --steps 100000 --global-batch 8 --backend gloo --pace 0.05 \\
    --log-file {work}/log.jsonl --elastic {work}/ranks {options}
exit $?
"""


@pytest.fixture
def site(cluster_folder: Path) -> Iterator[RealSite]:
    """Under a policy by which short jobs take the GPUs of long ones."""
    with four_nodes(cluster_folder, "srtf") as real:
        yield real


def submit(site: RealSite, name: str, *options: str, join: str = "") -> str:
    """The elastic job, or a companion; its number."""
    return submit_training(site, name, SCRIPT, join, *options)


def test_a_job_grows_by_companions_to_four_ranks_and_gives_two_of_them_to_another_job(site: RealSite) -> None:
    work = site.local_slurm.work
    job = submit(site, "job.sh", "--time=30")
    site.until((work / "ranks" / "meeting").exists, "for the job to begin")
    mate = submit(site, "mate.sh", "--time=40", "--checkpoint-signal=USR1", join="--join")
    site.until(lambda: ranks(work) == [1, 2], "for the companion to join")
    pair = submit(site, "pair.sh", "--time=60", "--ntasks=2", "--checkpoint-signal=USR1", join="--join")
    site.until(lambda: ranks(work) == [1, 2, 4], "for two more ranks")
    other = sleeping(site, 2, "--gpus-per-node=1", "--nodes=2", "--time=1")
    site.until(lambda: site.state(other) == "COMPLETED", "for the other job")
    site.until(lambda: ranks(work) == [1, 2, 4, 2, 4], "for the companion to join again")
    assert [site.managed_jobs[each].restarts for each in (job, mate, pair)] == [0, 0, 1]
    done = [line["step"] for line in steps(work)]
    assert done == list(range(1, len(done) + 1))
    assert max(lost_s(work)) < MOST_LOST_S, lost_s(work)


def ranks(work: Path) -> list[float]:
    """The numbers of ranks that the job has had, in order."""
    return [number for number, _ in groupby(line["ranks"] for line in steps(work))]


def lost_s(work: Path) -> list[float]:
    """Seconds between the steps before and after each change of the ranks."""
    return [
        after["time"] - before["time"]
        for before, after in pairwise(steps(work))
        if before["ranks"] != after["ranks"]
    ]
