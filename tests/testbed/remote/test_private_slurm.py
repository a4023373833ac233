"""A private Slurm on two hosts over SSH, for real: it runs jobs, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dally.hosts.hosts_file import read_hosts_file
from dally.hosts.processes import Command
from slurm_plugin.local_cluster.cluster import Cluster, ClusterError
from slurm_plugin.local_cluster.processes import find_processes
from testbed.remote.hosts import CommandLog, Hosts, RemoteError
from testbed.remote.private_slurm import PrivateSlurm
from tests.dally.hosts.sshd import Sshd
from tests.patience import wait_until
from tests.testbed.remote.hosts_files import write_hosts

OWNER = """
import sys, time
from pathlib import Path
from dally.hosts.hosts_file import read_hosts_file
from testbed.remote.hosts import Hosts
from testbed.remote.hosts import CommandLog
from testbed.remote.private_slurm import PrivateSlurm
folder = Path(sys.argv[1])
with Hosts(read_hosts_file(folder / "hosts.toml"), CommandLog(folder / "logs")) as hosts:
    slurm = PrivateSlurm(hosts, folder, fake_gpus=True)
    slurm.start()
    slurm.cluster.ask("sbatch", "--nodes=2", "--output=/dev/null", "--wrap=srun sleep 1000")
    while slurm.cluster.ask("squeue", "--noheader", "--format=%T").strip() != "RUNNING":
        time.sleep(0.1)
    print(slurm.folder, flush=True)
    time.sleep(1000)
"""


def processes_of(slurm_folder: Path) -> set[int]:
    """The processes of a private Slurm on this machine."""
    return find_processes({"SLURM_CONF": f"{slurm_folder}/etc/slurm.conf"}, f"{slurm_folder}/log/")


@pytest.fixture
def two_gpu_hosts(daemons: tuple[Sshd, Sshd], tmp_path: Path) -> Path:
    """A hosts file of two hosts with two GPUs each, in two racks."""
    path = write_hosts(tmp_path, daemons, gpus=2)
    table, mark, rest = path.read_text().rpartition('rack = "r1"')
    path.write_text(table + mark.replace("r1", "r2") + rest)
    return path


@pytest.mark.slurm
def test_it_runs_jobs_on_all_hosts_and_leaves_nothing(
    two_gpu_hosts: Path, log: CommandLog, tmp_path: Path
) -> None:
    with Hosts(read_hosts_file(two_gpu_hosts), log) as hosts:
        slurm = PrivateSlurm(hosts, tmp_path, fake_gpus=True)
        with slurm as cluster:
            as_cluster: Cluster = cluster
            script = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
            said = as_cluster.ask("srun", "--nodes=2", "--gpus-per-node=2", "sh", "-c", script)
            assert sorted(said.splitlines()) == ["n1 0,1", "n2 0,1"]
            assert "SwitchName=r2 Level=0 LinkSpeed=1 Nodes=n2" in as_cluster.ask(
                "scontrol", "show", "topology"
            )
            assert as_cluster.ask("pwd") == f"{as_cluster.work}\n"
            assert as_cluster.ask("cat", stdin="input") == "input"
            assert as_cluster.traffic()["n2"].sent_bytes > 0
            started = as_cluster.start(
                Command("a job", ("srun", "--partition", as_cluster.partition, "hostname"))
            )
            assert (len(list(started.stdout)), started.wait()) == (1, 0)
            with pytest.raises(ClusterError, match=r"scontrol show job 99 failed \(1\): .*Invalid job id"):
                as_cluster.ask("scontrol", "show", "job", "99")
            assert processes_of(slurm.folder)
        assert not processes_of(slurm.folder)
        assert not slurm.folder.exists()
        assert not cluster.work.exists()


@pytest.mark.slurm
def test_when_its_owner_is_killed_all_of_it_ends_with_its_jobs(two_gpu_hosts: Path, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", OWNER, str(two_gpu_hosts.parent)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        folder = Path(owner.stdout.readline().strip())
        assert processes_of(folder)
        os.kill(owner.pid, signal.SIGKILL)
    wait_until(lambda: not folder.exists(), f"{folder} to be removed")
    wait_until(lambda: not processes_of(folder), "all processes to end")
    wait_until(lambda: not list(tmp_path.glob("dally-*")), "the folders of the hosts to be removed")


def test_gpus_that_are_not_there_are_refused_before_anything_is_done(
    two_gpu_hosts: Path, log: CommandLog, tmp_path: Path
) -> None:
    with Hosts(read_hosts_file(two_gpu_hosts), log) as hosts:
        slurm = PrivateSlurm(hosts, tmp_path)
        with pytest.raises(RemoteError, match="n1 has no /dev/nvidia0 to /dev/nvidia1, though gpus is 2"):
            slurm.start()
        assert not slurm.folder.exists()


def test_a_folder_that_cannot_be_shared_is_named_and_nothing_stays(
    two_gpu_hosts: Path, log: CommandLog, tmp_path: Path
) -> None:
    with Hosts(read_hosts_file(two_gpu_hosts), log) as hosts:
        slurm = PrivateSlurm(hosts, tmp_path / "none", fake_gpus=True)
        with pytest.raises(RemoteError, match=f"mkdir failed: .*{tmp_path}/none/dally-"):
            slurm.start()
        assert not slurm.folder.exists()
