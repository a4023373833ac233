"""`dally testbed` on hosts over SSH, for real: a Slurm that stays, and one of others, running workloads."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dally.runs.records import read_jobs, read_run
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.processes import find_processes
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from testbed.persistent.control import find_persistent
from tests.dally.hosts.sshd import Sshd, running_sshd
from tests.patience import LONGEST_S, wait_until
from tests.testbed.remote.hosts_files import write_hosts
from tests.testbed.running.worlds import write_profile_folder

TINY_TFLOPS = "1e6"
"""Of a GPU on which steps cost no time but that of the training loop."""

ONE_JOB = "job_id,submit_s,gpus,duration_s,user,group,model,status\na,0,2,0.5,,,mobilenetv3,\n"
TWO_JOBS = f"{ONE_JOB}b,0,1,0.5,,,mobilenetv3,\n"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that the hosts share; it stays empty on this side, as theirs is mounted over it."""
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def elsewhere(shared: Path, tmp_path: Path) -> Iterator[tuple[Sshd, Sshd]]:
    """Two sshds that see the same files of their own in the shared folder."""
    mount = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(shared))
    with running_sshd("n1", tmp_path / "n1", enter=mount) as one:
        join = within(one)
        with running_sshd("n2", tmp_path / "n2", enter=join) as two:
            yield one, two


def within(daemon: Sshd) -> tuple[str, ...]:
    """What begins a command that sees the files that an sshd sees."""
    return ("nsenter", "--mount", f"--target={daemon.process.pid}")


@pytest.fixture
def two_racks(elsewhere: tuple[Sshd, Sshd], tmp_path: Path) -> Path:
    """A hosts file of two hosts with two GPUs each, in two racks."""
    path = write_hosts(tmp_path, elsewhere, gpus=2)
    table, mark, rest = path.read_text().rpartition('rack = "r1"')
    path.write_text(table + mark.replace("r1", "r2") + rest)
    return path


@pytest.fixture
def small_cluster(cluster_folder: Path) -> Iterator[LocalSlurm]:
    """Somebody's Slurm on this machine."""
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, nodes=2, racks=2, gpus=2))
    local_slurm.start()
    yield local_slurm
    local_slurm.stop()


def entries(folder: Path, daemon: Sshd) -> str:
    """What is in a folder, as an sshd sees it."""
    argv = [*within(daemon), "ls", "-A", str(folder)]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=LONGEST_S).stdout


def dally(verb: str, *options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dally", "testbed", verb, *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)


def run(folder: Path, trace: str, *options: str | Path) -> Path:
    """Run a workload under fifo; its run folder."""
    (folder / "trace.csv").write_text(trace)
    profiles = write_profile_folder(folder / "profiles")
    work = ("--workload", folder / "trace.csv", "--profiles", profiles, "--emulate", TINY_TFLOPS)
    done = dally("run", *work, "--policy", "fifo", "--out", folder / "out", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out" / "fifo"


def assert_complete(out: Path, jobs: set[str]) -> None:
    """The folder of a run whose jobs have all completed."""
    assert read_run(out)["complete"]
    assert {record.job_id for record in read_jobs(out) if record.end_s is not None} == jobs
    names = ("facts.jsonl", "stretches.jsonl", "machine.jsonl", "jobs/a/job.sh", "jobs/a/steps.jsonl")
    for name in (*names, "controller.jsonl", "slurm-jobs.txt", "cluster.toml"):
        assert (out / name).stat().st_size, name


@pytest.mark.slurm
def test_a_slurm_on_hosts_stays_runs_a_workload_and_goes_without_trace(
    elsewhere: tuple[Sshd, Sshd], two_racks: Path, shared: Path, tmp_path: Path, cluster_folder: Path
) -> None:
    up = ("--folder", cluster_folder, "--hosts", two_racks, "--shared", shared, "--fake-gpus")
    begun = dally("up", *up, "--logs", tmp_path / "logs")
    assert f"up: 2 hosts of {two_racks} with 4 pretended GPUs in 2 racks, sharing " in begun.stdout, begun
    assert dally("up", *up, "--logs", tmp_path / "logs").stdout.startswith("up already: ")
    other = dally("up", *up[:-1])
    assert (other.returncode, other.stderr.count("\n")) == (1, 1)
    seen = json.loads(dally("status", "--folder", cluster_folder, "--json").stdout)
    assert [(node["name"], node["rack"], node["state"]) for node in seen["nodes"]] == [
        ("n1", "r1", "idle"),
        ("n2", "r2", "idle"),
    ]
    assert_complete(run(tmp_path, TWO_JOBS, "--folder", cluster_folder), {"a", "b"})
    assert dally("down", "--folder", cluster_folder).stdout == f"down: nothing is left in {cluster_folder}\n"
    assert not cluster_folder.exists()
    assert not Path(seen["conf"]).parent.parent.exists()
    assert not find_processes({"SLURM_CONF": seen["conf"]})
    assert not entries(shared, elsewhere[0])


@pytest.mark.slurm
def test_a_killed_supervisor_takes_the_slurm_on_hosts_along(
    elsewhere: tuple[Sshd, Sshd], two_racks: Path, shared: Path, tmp_path: Path, cluster_folder: Path
) -> None:
    up = ("--folder", cluster_folder, "--hosts", two_racks, "--shared", shared, "--fake-gpus")
    dally("up", *up, "--logs", tmp_path / "logs")
    state = find_persistent(cluster_folder)
    assert state
    assert state.place
    conf = Path(state.place.conf)
    os.kill(state.supervisor.pid, signal.SIGKILL)
    wait_until(lambda: not conf.parent.parent.exists(), "its folder to be removed")
    wait_until(lambda: not find_processes({"SLURM_CONF": str(conf)}), "its processes to end")
    wait_until(lambda: not entries(shared, elsewhere[0]), "the shared folder to be empty")
    assert dally("down", "--folder", cluster_folder).stdout == f"down: nothing is left in {cluster_folder}\n"
    assert not cluster_folder.exists()


@pytest.mark.slurm
def test_a_slurm_of_others_runs_a_workload_and_keeps_the_jobs_of_others(
    small_cluster: LocalSlurm, hosts_toml: Path, tmp_path: Path
) -> None:
    small_cluster.run("sbatch", "--hold", "--output=/dev/null", "--wrap=true")
    place = (
        "--existing",
        "--hosts",
        hosts_toml,
        "--partition",
        "gpu",
        "--slurm-conf",
        small_cluster.spec.conf,
    )
    options = (*place, "--work", tmp_path, "--logs", tmp_path / "logs")
    assert_complete(run(tmp_path, ONE_JOB, *options), {"a"})
    assert small_cluster.run("squeue", "--noheader", "--format=%i %T") == "1 PENDING\n"
    again = dally("collect", "--out", tmp_path / "out", *options)
    assert again.returncode == 0, again.stderr
