"""A small real Slurm under the controller, for elastic training."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import PRELOADED, LocalClusterSpec
from tests.slurm_plugin.controller.test_real_controller import RealSite
from tests.workloads.ranks import ROOT, started_with_torch


@contextmanager
def four_nodes(folder: Path, policy: str, max_requeues: int = 3) -> Iterator[RealSite]:
    """Four nodes of a GPU, under a policy.

    Args:
        folder: The cluster's.
        policy: With its knobs.
        max_requeues: A job requeued this often is not preempted any more.
    """
    local_slurm = LocalSlurm(LocalClusterSpec(folder, nodes=4, racks=1, gpus=1))
    with started_with_torch(local_slurm):
        site = RealSite(local_slurm, policy, max_requeues)
        yield site
        site.journal.close()


def submit_training(site: RealSite, name: str, script: str, options: str, *asked: str) -> str:
    """Submit a script under this name; the job's number.

    Args:
        site: Where.
        name: Of the script's file.
        script: Has places for root, work, python, preloaded and options.
        options: Of the training program.
        asked: Options of `dally-sbatch`.
    """
    work = site.local_slurm.work
    values = {
        "root": ROOT,
        "work": work,
        "python": site.local_slurm.cluster.python,
        "preloaded": work / PRELOADED,
    }
    (work / name).write_text(script.format(options=options, **values))
    return site.submit(*asked, str(work / name))
