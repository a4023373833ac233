"""Slurm's own jobs and Dally's on one real cluster: what is whose, and that neither side starves."""

from pathlib import Path

from slurm_plugin.client.slurm import SlurmJob
from tests.patience import LONGEST_S
from tests.slurm_plugin.both_queues import SIDES, USER, at_terminal, both_site, feed_both, is_held, submit
from tests.slurm_plugin.controller.test_real_controller import RealSite


def until_held(site: RealSite, count: int) -> list[SlurmJob]:
    """So many jobs that are held for Dally; no cycle takes place meanwhile."""
    found: list[SlurmJob] = []

    def enough() -> bool:
        found[:] = [job for job in site.controller._slurm.jobs() if is_held(job)]
        return len(found) >= count

    site.local_slurm.wait_for(enough, "the jobs to be held")
    return found


def test_every_gpu_job_is_dallys_or_has_its_turn(cluster_folder: Path) -> None:
    with both_site(cluster_folder) as site:
        # At a terminal: held, released onto nodes, and never to be stopped.
        shell = at_terminal(site, "salloc", "--gpus=1", "-t5", "sh", "-c", "echo on $SLURM_JOB_NODELIST")
        alone = at_terminal(site, "srun", "--gpus=1", "-t5", "sh", "-c", "echo task on $SLURMD_NODENAME")
        held = until_held(site, 2)
        site.until(lambda: shell.poll() is not None and alone.poll() is not None, "for both at the terminal")
        assert (shell.returncode, alone.returncode) == (0, 0)
        assert shell.communicate()[0].startswith("on n")
        assert alone.communicate()[0].startswith("task on n")
        assert not any(job.gpus for job in held)

        # The user's own bounds on where.
        named = submit(site, USER, "-wn3", "--gres=gpu:1", "-t5", seconds=300)
        racked = submit(site, USER, "-N2", "--gres=gpu:1", "-C[rack1|rack2]", "-t5", seconds=300)
        switched = submit(site, USER, "-N2", "--gres=gpu:1", "--switches=1", "-t5", seconds=300)
        until_held(site, 3)
        jobs = (named, racked, switched)
        site.until(lambda: all(site.state(job) == "RUNNING" for job in jobs), "for all to run")
        assert site.nodes(named) == "n3"
        assert {site.nodes(racked), site.nodes(switched)} <= {"n[1-2]", "n[3-4]"}
        for job in jobs:
            site.local_slurm.run("scancel", job)
        site.until(lambda: not site.managed_jobs, "for them to end")

        for side in SIDES:
            outcome = feed_both(site, side, LONGEST_S, lasting_s=(1, 4))
            assert outcome.waited_s is not None, (side, outcome)
        site.journal.close()
