import signal
import subprocess

from dally.profiles.files import load_profiles
from testbed.local_slurm import LocalSlurm
from tests.profiler.commands.real import SMALL, end, run, start, wait_for


def measure(lab: LocalSlurm, *options: object) -> subprocess.CompletedProcess[str]:
    return run("slurm", *SMALL, "--out", lab.work / "out", *options, env=lab.environment)


def test_idle_nodes_are_measured_in_every_tier_by_srun(lab: LocalSlurm) -> None:
    lab.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")

    done = measure(lab, "--shapes=1x2,network-2x1")

    assert done.returncode == 0, done.stderr
    (profile,) = load_profiles(lab.work / "out").profiles
    spreads = {tier: [point.shape.gpus for point in points] for tier, points in profile.tiers.items()}
    assert spreads == {"machine": [1, 2], "network": [2]}
    assert "network-2x1: 2 ranks on n2, n3" in done.stderr
    assert lab.run("squeue", "--noheader", "--states=PENDING,RUNNING") == ""


def test_a_dry_run_prints_the_srun_of_each_run_and_starts_none(lab: LocalSlurm) -> None:
    done = measure(lab, "--dry-run", "--partition=other")

    sruns = [line for line in done.stdout.splitlines() if line.startswith("srun ")]
    assert len(sruns) == 7
    assert all("--partition=other" in line for line in sruns)
    assert any("--nodelist=n1,n2,n3,n4 " in line for line in sruns)
    assert not (lab.work / "out").exists()


def test_that_no_nodes_are_idle_where_they_must_be_is_told_with_what_helps(lab: LocalSlurm) -> None:
    lab.run("scontrol", "update", "nodename=n[1,3,5,7]", "state=drain", "reason=test")

    done = measure(lab)

    assert done.returncode == 1
    assert done.stderr.startswith("profile-models: no free hosts for rack-2x1; there are 4 hosts in 4 racks")
    assert "--shapes" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_rank_that_fails_ends_the_job_with_its_own_line(lab: LocalSlurm) -> None:
    done = measure(lab, "--shapes=network-2x1", "--backend=nccl")

    assert done.returncode == 1
    assert "machine-1x1: rank 0 on " in done.stderr
    assert "needs a GPU" in done.stderr.splitlines()[-1]
    assert lab.run("squeue", "--noheader", "--states=PENDING,RUNNING") == ""


def test_killed_it_leaves_no_job(lab: LocalSlurm) -> None:
    process = start(lab.work, "slurm", *SMALL, "--out", lab.work / "out", env=lab.environment)
    wait_for(lambda: "RUNNING" in lab.run("squeue", "--noheader", "--format=%T"), "the first job")

    end(process, signal.SIGKILL)

    wait_for(lambda: lab.run("squeue", "--noheader") == "", "the job to be gone")
