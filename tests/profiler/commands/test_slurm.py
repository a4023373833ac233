import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dally.profiles.files import load_profiles
from profiler.report.raw import read_raw
from profiler.spec import MeasurementSpec, format_spec
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from tests.patience import wait_until
from tests.profiler.commands.real import SMALL, end, run, start
from tests.workloads.ranks import ROOT, share_torch, torch_server
from workloads.settings import Backend

FORKING = f"""\
#!/bin/sh
# Does what `python -P -m profiler.rank SPEC` does, in a process that need not load torch.
export PYTHONPATH={ROOT} DALLY_PRELOADED=$(dirname "$0")
shift 2
exec {sys.executable} -m tests.profiler.rank.forked_rank "$@"
"""


@pytest.fixture(scope="module")
def torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a process that has loaded torch, which each rank would do for itself; it forks them."""
    socket = tmp_path_factory.mktemp("forks") / "torch"
    with torch_server(socket, "tests.profiler.rank.rank_server") as wait:
        wait()
        yield socket


def measure(
    local_slurm: LocalSlurm, *options: object, torch: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    python = local_slurm.spec.preloaded / "python" if torch else None
    if torch and python:
        share_torch(local_slurm, torch)
        python.write_text(FORKING)
        python.chmod(0o755)
    return run(
        *("slurm", *SMALL, "--out", local_slurm.work / "out", *options),
        env=local_slurm.environment | env,
        python=python,
    )


def fill(local_slurm: LocalSlurm, nodes: str) -> str:
    """Somebody else's job, which has nodes to itself; its number, once it runs."""
    job = local_slurm.run(
        *("sbatch", "--parsable", f"-w{nodes}", "--exclusive", "--time=9", "-o/dev/null"),
        *("--wrap", "sleep 500"),
        user="dally-bob",
    ).strip()
    local_slurm.wait_for(
        lambda: local_slurm.run("squeue", "-h", "-o%t", "-j", job).strip() == "R", f"job {job} to run"
    )
    return job


def hosts(local_slurm: LocalSlurm, name: str) -> tuple[str, ...]:
    """Where a run was measured, as it was told where its ranks are."""
    raw = read_raw(local_slurm.work / "out" / "raw" / f"{name}.jsonl")
    assert raw.env
    assert raw.env.hosts == raw.run.hosts
    return raw.run.hosts


def own_jobs(local_slurm: LocalSlurm) -> str:
    return local_slurm.run(
        "squeue", "--noheader", "--user=root", "--states=PENDING,RUNNING", "--format=%j %T"
    )


def test_under_every_topology_plugin_the_ranks_run_where_the_profile_says(
    slurm_of_any_topology: LocalSlurm, torch: Path
) -> None:
    local_slurm = slurm_of_any_topology

    done = measure(local_slurm, "--shapes=2x2", torch=torch)

    assert done.returncode == 0, done.stderr
    (profile,) = load_profiles(local_slurm.work / "out").profiles
    assert {point.shape.gpus for points in profile.tiers.values() for point in points} == {1, 4}
    names = [path.stem for path in (local_slurm.work / "out" / "raw").glob("*.jsonl")]
    assert sorted(len(hosts(local_slurm, name)) for name in names) == [1, *[2] * (len(names) - 1)]
    assert own_jobs(local_slurm) == ""


def test_nodes_that_are_idle_are_measured_in_every_tier(local_slurm: LocalSlurm, torch: Path) -> None:
    local_slurm.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    fill(local_slurm, "n2")

    done = measure(local_slurm, "--shapes=1x2,network-2x1", torch=torch)

    assert done.returncode == 0, done.stderr
    (profile,) = load_profiles(local_slurm.work / "out").profiles
    spreads = {tier: [point.shape.gpus for point in points] for tier, points in profile.tiers.items()}
    assert spreads == {"machine": [1, 2], "network": [2]}
    assert set(hosts(local_slurm, "network-2x1")) <= {"n3", "n4", "n5", "n6", "n7", "n8"}
    assert own_jobs(local_slurm) == ""


def test_a_run_whose_nodes_stay_busy_is_left_out_and_added_later(
    local_slurm: LocalSlurm, torch: Path
) -> None:
    job = fill(local_slurm, "n[1,3,5,7]")

    early = measure(local_slurm, "--shapes=rack-2x1,network-2x1", "--wait=3", torch=torch)

    assert early.returncode == 1
    waiting = r"waiting for 2 nodes of one rack, n\[\d-\d\]: \d of 2 idle; job \d+ pending \(Resources\), "
    assert re.search(rf"^rack-2x1: {waiting}\d+ s so far$", early.stderr, re.MULTILINE)
    assert re.search(rf"^rack-2x1: gave up {waiting}after \d+ s$", early.stderr, re.MULTILINE)
    assert set(hosts(local_slurm, "network-2x1")) <= {"n2", "n4", "n6", "n8"}
    last = early.stderr.splitlines()[-1]
    assert last.startswith("profile-models: not all was measured: rack-2x1: gave up waiting for 2 nodes")
    assert last.endswith(" (the same command with --resume adds what is missing)")
    (profile,) = load_profiles(local_slurm.work / "out").profiles
    assert set(profile.tiers) == {"machine", "network"}
    assert own_jobs(local_slurm) == ""

    local_slurm.run("scancel", job)
    later = measure(local_slurm, "--shapes=rack-2x1,network-2x1", "--resume", torch=torch)

    assert later.returncode == 0, later.stderr
    (profile,) = load_profiles(local_slurm.work / "out").profiles
    assert set(profile.tiers) == {"machine", "rack", "network"}


def test_the_nodes_of_a_reservation_are_measured_by_who_names_it(
    local_slurm: LocalSlurm, torch: Path
) -> None:
    local_slurm.run(
        *("scontrol", "create", "reservation", "reservationname=mine", "nodes=n[5-6]", "users=root"),
        *("starttime=now", "duration=60"),
    )

    done = measure(local_slurm, "--shapes=rack-2x1", torch=torch, SLURM_RESERVATION="mine")

    assert done.returncode == 0, done.stderr
    assert "rack-2x1: 2 ranks on n5, n6" in done.stderr

    unknown = measure(local_slurm, "--resume", SLURM_RESERVATION="yours")
    assert unknown.stderr == ("profile-models: no reservation yours; SLURM_RESERVATION can be mine\n")


def test_a_dry_run_prints_the_srun_of_each_run_and_starts_none(local_slurm: LocalSlurm) -> None:
    done = measure(local_slurm, "--dry-run", "--partition=other")

    sruns = [line for line in done.stdout.splitlines() if " srun " in line]
    assert len(sruns) == 7
    assert all("--partition=other" in line for line in sruns)
    assert any(
        line.startswith("DALLY_RANK_HOSTS=n1,n2,n3,n4 ") and "--exclude=n[5-8]" in line for line in sruns
    )
    assert not (local_slurm.work / "out").exists()


def test_that_nodes_cannot_be_used_where_they_must_be_is_told_with_what_helps(
    local_slurm: LocalSlurm,
) -> None:
    local_slurm.run("scontrol", "update", "nodename=n[1,3,5,7]", "state=drain", "reason=test")

    done = measure(local_slurm)

    assert done.returncode == 1
    assert done.stderr.startswith(
        "profile-models: no free hosts for rack-2x1; the run has 4 hosts in 4 racks"
    )
    assert "--shapes" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("shape", ["1x9", "network-2x9"])
def test_more_ranks_than_a_node_has_gpus_are_refused_in_a_line(local_slurm: LocalSlurm, shape: str) -> None:
    done = measure(local_slurm, f"--shapes={shape}")

    assert done.returncode == 1
    assert "fits nowhere; " in done.stderr
    assert "with up to 8 ranks each" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_more_tasks_than_gpus_of_an_srun_by_hand_are_refused_in_a_line(local_slurm: LocalSlurm) -> None:
    spec = format_spec(MeasurementSpec(("mobilenetv3",), Backend.NCCL))

    done = local_slurm.attempt(
        *("srun", "-N1", "-n3", "--gres=gpu:2", "--mem=0", "--kill-on-bad-exit=1"),
        *(sys.executable, "-m", "profiler.rank", spec),
        timeout_s=120.0,
    )

    assert done.returncode
    assert (
        "on n1: 3 tasks on n1 share 2 GPUs; each needs its own: ask for --gres=gpu:3 or --ntasks-per-node=2"
    ) in done.stderr


def test_a_rank_that_fails_ends_the_job_with_its_own_line(local_slurm: LocalSlurm) -> None:
    done = measure(local_slurm, "--shapes=network-2x1", "--backend=nccl")

    assert done.returncode == 1
    assert "machine-1x1: rank 0 on n1: " in done.stderr
    assert "needs a GPU" in done.stderr.splitlines()[-1]
    assert own_jobs(local_slurm) == ""


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_killed_it_leaves_no_job(local_slurm: LocalSlurm, state: str) -> None:
    if state == "PENDING":
        fill(local_slurm, "n[1-8]")
    process = start(
        local_slurm.work, "slurm", *SMALL, "--out", local_slurm.work / "out", env=local_slurm.environment
    )
    wait_until(lambda: state in own_jobs(local_slurm), "the first job")

    end(process, signal.SIGKILL)

    wait_until(lambda: own_jobs(local_slurm) == "", "the job to be gone")


def test_interrupted_while_it_waits_it_leaves_no_job(local_slurm: LocalSlurm) -> None:
    fill(local_slurm, "n[1-8]")
    process = start(
        local_slurm.work, "slurm", *SMALL, "--out", local_slurm.work / "out", env=local_slurm.environment
    )
    wait_until(lambda: "PENDING" in own_jobs(local_slurm), "the first job")

    said = end(process, signal.SIGINT)

    assert process.returncode == 130
    assert said.splitlines()[-1] == "profile-models: machine-1x1: interrupted"
    assert own_jobs(local_slurm) == ""
