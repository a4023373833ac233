"""A real training on a real Slurm that the policy resizes through companions, without a checkpoint."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.controller.journal import read_events
from tests.slurm_plugin.controller.test_real_controller import RealSite, sleeping
from tests.workloads.elastic.real_site import four_nodes, submit_training
from tests.workloads.elastic.test_run import steps
from tests.workloads.elastic.test_under_slurm import lost_s, ranks

MOST_LOST_S = 50.0
"""Ranks that wait for one that does not come go on without it after 60 s."""

SCRIPT = """\
#!/bin/bash
#SBATCH --ntasks=1 --gpus-per-task=1 --time=60 --chdir={root} --output={work}/output-%j --open-mode=append
trap : USR2
export MASTER_ADDR=127.0.0.1 OMP_NUM_THREADS=1 DALLY_PRELOADED={preloaded}
tasks=$(($(sed 's/(x/*/g; s/)//g; s/,/+/g' <<< "$SLURM_TASKS_PER_NODE")))
srun --ntasks=$tasks --kill-on-bad-exit=0 --wait=60 {python} -m workloads.train digits --steps 100000 \\
    --global-batch 8 --backend gloo --pace 0.05 --checkpoint {work}/job.pt --log-file {work}/log.jsonl \\
    --elastic {work}/ranks {options}
exit $?
"""


@pytest.fixture
def site(cluster_folder: Path) -> Iterator[RealSite]:
    """Under a policy that sizes jobs, and looks every other second."""
    with four_nodes(cluster_folder, "elastic-scaling:interval_s=2", max_requeues=100) as real:
        yield real


def submit(site: RealSite, name: str, *options: str, join: str = "") -> str:
    return submit_training(site, name, SCRIPT, join, "--checkpoint-signal=USR2", *options)


def set_nodes(site: RealSite, state: str) -> None:
    site.local_slurm.cluster.ask("scontrol", "update", "NodeName=n[2-4]", f"State={state}", "Reason=test")


def test_a_training_grows_shrinks_and_grows_and_its_waiting_companions_end_with_it(site: RealSite) -> None:
    work = site.local_slurm.work
    set_nodes(site, "DRAIN")
    job = submit(site, "job.sh", "--min-gpus=1", "--max-gpus=4")
    site.until((work / "ranks" / "meeting").exists, "for the job to begin")
    mates = [submit(site, "mate.sh", f"--companion-of={job}", join="--join") for _ in range(2)]
    set_nodes(site, "RESUME")
    site.until(lambda: ranks(work)[-1:] == [4], "for the ranks of companions to join")
    other = sleeping(site, 30, "--gpus-per-node=1", "--nodes=2", "--time=2")
    site.until(lambda: site.state(other) == "RUNNING", "for another job to have two GPUs")
    site.until(lambda: ranks(work)[-1:] == [2], "for a companion to be on what is left")
    site.until(lambda: ranks(work)[-1:] == [4], "for all GPUs again")
    assert site.managed_jobs[job].restarts == 0
    assert max(lost_s(work)) < MOST_LOST_S, lost_s(work)
    print("seconds between the steps around each change:", ranks(work), lost_s(work))
    done = [line["step"] for line in steps(work)]
    assert done == list(range(1, len(done) + 1)), "no step is lost or done again"
    kinds = [str(each["event"]) for each in read_events(Path(site.config.state_dir))]
    assert "stop" not in kinds
    assert kinds.count("resize") >= 3
    site.local_slurm.cluster.ask("scancel", "--full", job)
    site.until(lambda: not site.managed_jobs, "for the job to have gone")
    site.until(
        lambda: all(site.state(each) in ("CANCELLED", "COMPLETED", "FAILED") for each in mates),
        "for the companions to end",
    )
    site.decide_again()
