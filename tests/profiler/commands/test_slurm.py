import re
import signal
import subprocess
import sys

import pytest

from dally.profiles.files import load_profiles
from profiler.report.raw import read_raw
from profiler.spec import MeasurementSpec, format_spec
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from tests.profiler.commands.real import SMALL, end, run, start, wait_for
from workloads.settings import Backend


def measure(lab: LocalSlurm, *options: object, **env: str) -> subprocess.CompletedProcess[str]:
    return run("slurm", *SMALL, "--out", lab.work / "out", *options, env=lab.environment | env)


def fill(lab: LocalSlurm, nodes: str) -> str:
    """Somebody else's job, which has nodes to itself; its number, once it runs."""
    job = lab.run(
        *("sbatch", "--parsable", f"-w{nodes}", "--exclusive", "--time=9", "-o/dev/null"),
        *("--wrap", "sleep 500"),
        user="dally-bob",
    ).strip()
    lab.wait_for(lambda: lab.run("squeue", "-h", "-o%t", "-j", job).strip() == "R", f"job {job} to run")
    return job


def hosts(lab: LocalSlurm, name: str) -> tuple[str, ...]:
    """Where a run was measured, as it was told where its ranks are."""
    raw = read_raw(lab.work / "out" / "raw" / f"{name}.jsonl")
    assert raw.env
    assert raw.env.hosts == raw.run.hosts
    return raw.run.hosts


def own_jobs(lab: LocalSlurm) -> str:
    return lab.run("squeue", "--noheader", "--user=root", "--states=PENDING,RUNNING", "--format=%j %T")


def test_under_every_topology_plugin_the_ranks_run_where_the_profile_says(
    lab_of_any_topology: LocalSlurm,
) -> None:
    lab = lab_of_any_topology

    done = measure(lab, "--shapes=2x2")

    assert done.returncode == 0, done.stderr
    (profile,) = load_profiles(lab.work / "out").profiles
    assert {point.shape.gpus for points in profile.tiers.values() for point in points} == {1, 4}
    names = [path.stem for path in (lab.work / "out" / "raw").glob("*.jsonl")]
    assert sorted(len(hosts(lab, name)) for name in names) == [1, *[2] * (len(names) - 1)]
    assert own_jobs(lab) == ""


def test_nodes_that_are_idle_are_measured_in_every_tier(lab: LocalSlurm) -> None:
    lab.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    fill(lab, "n2")

    done = measure(lab, "--shapes=1x2,network-2x1")

    assert done.returncode == 0, done.stderr
    (profile,) = load_profiles(lab.work / "out").profiles
    spreads = {tier: [point.shape.gpus for point in points] for tier, points in profile.tiers.items()}
    assert spreads == {"machine": [1, 2], "network": [2]}
    assert set(hosts(lab, "network-2x1")) <= {"n3", "n4", "n5", "n6", "n7", "n8"}
    assert own_jobs(lab) == ""


def test_a_run_whose_nodes_stay_busy_is_left_out_and_added_later(lab: LocalSlurm) -> None:
    job = fill(lab, "n[1,3,5,7]")

    early = measure(lab, "--shapes=rack-2x1,network-2x1", "--wait=3")

    assert early.returncode == 1
    waiting = r"waiting for 2 nodes of one rack, n\[\d-\d\]: \d of 2 idle; job \d+ pending \(Resources\), "
    assert re.search(rf"^rack-2x1: {waiting}\d+ s so far$", early.stderr, re.MULTILINE)
    assert re.search(rf"^rack-2x1: gave up {waiting}after \d+ s$", early.stderr, re.MULTILINE)
    assert set(hosts(lab, "network-2x1")) <= {"n2", "n4", "n6", "n8"}
    last = early.stderr.splitlines()[-1]
    assert last.startswith("profile-models: not all was measured: rack-2x1: gave up waiting for 2 nodes")
    assert last.endswith(" (the same command with --resume adds what is missing)")
    (profile,) = load_profiles(lab.work / "out").profiles
    assert set(profile.tiers) == {"machine", "network"}
    assert own_jobs(lab) == ""

    lab.run("scancel", job)
    later = measure(lab, "--shapes=rack-2x1,network-2x1", "--resume")

    assert later.returncode == 0, later.stderr
    (profile,) = load_profiles(lab.work / "out").profiles
    assert set(profile.tiers) == {"machine", "rack", "network"}


def test_the_nodes_of_a_reservation_are_measured_by_who_names_it(lab: LocalSlurm) -> None:
    lab.run(
        *("scontrol", "create", "reservation", "reservationname=mine", "nodes=n[5-6]", "users=root"),
        *("starttime=now", "duration=60"),
    )

    done = measure(lab, "--shapes=rack-2x1", SLURM_RESERVATION="mine")

    assert done.returncode == 0, done.stderr
    assert "rack-2x1: 2 ranks on n5, n6" in done.stderr

    unknown = measure(lab, "--resume", SLURM_RESERVATION="yours")
    assert unknown.stderr == ("profile-models: no reservation yours; SLURM_RESERVATION can be mine\n")


def test_a_dry_run_prints_the_srun_of_each_run_and_starts_none(lab: LocalSlurm) -> None:
    done = measure(lab, "--dry-run", "--partition=other")

    sruns = [line for line in done.stdout.splitlines() if " srun " in line]
    assert len(sruns) == 7
    assert all("--partition=other" in line for line in sruns)
    assert any(
        line.startswith("DALLY_RANK_HOSTS=n1,n2,n3,n4 ") and "--exclude=n[5-8]" in line for line in sruns
    )
    assert not (lab.work / "out").exists()


def test_that_nodes_cannot_be_used_where_they_must_be_is_told_with_what_helps(lab: LocalSlurm) -> None:
    lab.run("scontrol", "update", "nodename=n[1,3,5,7]", "state=drain", "reason=test")

    done = measure(lab)

    assert done.returncode == 1
    assert done.stderr.startswith("profile-models: no free hosts for rack-2x1; there are 4 hosts in 4 racks")
    assert "--shapes" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("shape", ["1x9", "network-2x9"])
def test_more_ranks_than_a_node_has_gpus_are_refused_in_a_line(lab: LocalSlurm, shape: str) -> None:
    done = measure(lab, f"--shapes={shape}")

    assert done.returncode == 1
    assert "fits nowhere; " in done.stderr
    assert "with up to 8 ranks each" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_more_tasks_than_gpus_of_an_srun_by_hand_are_refused_in_a_line(lab: LocalSlurm) -> None:
    spec = format_spec(MeasurementSpec(("mobilenetv3",), Backend.NCCL))

    done = lab.attempt(
        *("srun", "-N1", "-n3", "--gres=gpu:2", "--mem=0", "--kill-on-bad-exit=1"),
        *(sys.executable, "-m", "profiler.rank", spec),
        timeout_s=120.0,
    )

    assert done.returncode
    assert (
        "on n1: 3 tasks on n1 share 2 GPUs; each needs its own: ask for --gres=gpu:3 or --ntasks-per-node=2"
    ) in done.stderr


def test_a_rank_that_fails_ends_the_job_with_its_own_line(lab: LocalSlurm) -> None:
    done = measure(lab, "--shapes=network-2x1", "--backend=nccl")

    assert done.returncode == 1
    assert "machine-1x1: rank 0 on n1: " in done.stderr
    assert "needs a GPU" in done.stderr.splitlines()[-1]
    assert own_jobs(lab) == ""


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_killed_it_leaves_no_job(lab: LocalSlurm, state: str) -> None:
    if state == "PENDING":
        fill(lab, "n[1-8]")
    process = start(lab.work, "slurm", *SMALL, "--out", lab.work / "out", env=lab.environment)
    wait_for(lambda: state in own_jobs(lab), "the first job")

    end(process, signal.SIGKILL)

    wait_for(lambda: own_jobs(lab) == "", "the job to be gone")


def test_interrupted_while_it_waits_it_leaves_no_job(lab: LocalSlurm) -> None:
    fill(lab, "n[1-8]")
    process = start(lab.work, "slurm", *SMALL, "--out", lab.work / "out", env=lab.environment)
    wait_for(lambda: "PENDING" in own_jobs(lab), "the first job")

    said = end(process, signal.SIGINT)

    assert process.returncode == 130
    assert said.splitlines()[-1] == "profile-models: machine-1x1: interrupted"
    assert own_jobs(lab) == ""
