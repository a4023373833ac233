"""A real training on a real Slurm: ones chooses its size by what it reports, and its batch follows."""

import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.slurm_plugin.controller.test_real_controller import RealSite
from tests.workloads.elastic.real_site import four_nodes, submit_training
from tests.workloads.elastic.test_run import steps
from tests.workloads.ranks import ROOT

SCRIPT = """\
#!/bin/bash
#SBATCH --ntasks=4 --gpus-per-task=1 --time=60 --chdir={root} --output={work}/output --open-mode=append
#DALLY --min-gpus=1 --max-gpus=4 --checkpoint-signal=USR2 --checkpoint-grace=60 --progress={work}/%j.json
trap : USR2
ranks=0
for part in ${{SLURM_TASKS_PER_NODE//,/ }}; do   # like 2(x3),1
    [[ $part =~ ^([0-9]+)(\\(x([0-9]+)\\))?$ ]]
    ranks=$((ranks + BASH_REMATCH[1] * ${{BASH_REMATCH[3]:-1}}))
done
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + SLURM_JOB_ID * 16 + SLURM_RESTART_COUNT % 16))
export OMP_NUM_THREADS=1 DALLY_PRELOADED={preloaded}
srun --ntasks=$ranks --kill-on-bad-exit=0 --wait=60 {python} -m workloads.train digits --steps 1500 \\
    --global-batch 32 --backend gloo --data {work}/digits.npz --pace 0.05 \\
    --checkpoint {work}/job.pt --log-file {work}/log.jsonl \\
    --elastic {work}/ranks --batch-rule policy --asked-ranks 4 --max-batch 64
exit $?
"""


@pytest.fixture
def site(cluster_folder: Path) -> Iterator[RealSite]:
    """Under ones, as its controller would tell jobs that it plans."""
    with four_nodes(cluster_folder, "ones:first_size=least,interval_s=2", max_requeues=100) as real:
        real.environment["DALLY_BATCHING"] = "linear"
        yield real


def batches(work: Path) -> dict[float, float]:
    """Samples of a step by number of ranks, where two steps in a row had that many."""
    return {
        line["ranks"]: line["samples"] - before["samples"]
        for before, line in pairwise(steps(work))
        if before["ranks"] == line["ranks"]
    }


def test_a_training_grows_by_its_epochs_and_its_batch_with_it(site: RealSite) -> None:
    work = site.local_slurm.work
    make = [site.local_slurm.cluster.python, "-m", "workloads.digits", str(work / "digits.npz")]
    subprocess.run(make, cwd=ROOT, check=True)
    job = submit_training(site, "job.sh", SCRIPT, "")
    site.until(lambda: 4 in batches(work), "for two steps of all four ranks")
    sizes = batches(work)
    assert sizes == {ranks: 8 * ranks for ranks in sizes}
    assert {1, 4} <= sizes.keys()
    progress = site.managed_jobs[job].history.progress
    assert progress is not None
    assert (progress.batch, progress.last.most_batch) == (32, 64)
    site.decide_again()
