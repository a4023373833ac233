"""A Slurm that is there already, used over SSH: jobs run in its partition, and nothing else is touched."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dally.hosts.hosts_file import read_hosts_file
from dally.hosts.processes import Command
from slurm_plugin.local_cluster.cluster import Cluster, ClusterError
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from testbed.remote.existing_slurm import check_harmless, find_slurm
from testbed.remote.hosts import CommandLog, Hosts
from tests.dally.hosts.sshd import Sshd
from tests.testbed.remote.hosts_files import write_hosts


@pytest.fixture
def small_cluster(cluster_folder: Path) -> Iterator[LocalSlurm]:
    """Somebody's Slurm on this machine."""
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, nodes=2, racks=1))
    local_slurm.start()
    yield local_slurm
    local_slurm.stop()


def test_jobs_run_in_the_partition_and_the_reservation(
    small_cluster: LocalSlurm, hosts: Hosts, tmp_path: Path
) -> None:
    small_cluster.run(
        "scontrol", "create", "reservation", "ReservationName=ours", "Nodes=n2", "Users=root",
        "StartTime=now", "Duration=60",
    )  # fmt: skip
    conf = small_cluster.spec.conf
    cluster: Cluster = find_slurm(hosts, "other", tmp_path, "ours", conf)
    assert cluster.conf == conf
    script = "echo $SLURM_JOB_PARTITION $SLURMD_NODENAME $PWD"
    said = cluster.ask("srun", "--partition", cluster.partition, "sh", "-c", script)
    assert said == f"other n2 {tmp_path}\n"
    started = cluster.start(Command("a job", ("srun", "echo", "hello")))
    assert (list(started.stdout), started.wait()) == ([b"hello\n"], 0)
    assert cluster.traffic() == {}
    with pytest.raises(ClusterError, match="scontrol --all show partition no failed"):
        find_slurm(hosts, "no", tmp_path, "ours", conf)
    with pytest.raises(ClusterError, match="scontrol show reservation no failed"):
        find_slurm(hosts, "other", tmp_path, "no", conf)
    with pytest.raises(ClusterError, match=f"n1 has no folder {tmp_path}/no that "):
        find_slurm(hosts, "other", tmp_path / "no", "ours", conf)


def test_where_no_slurm_answers_that_is_said(
    daemons: tuple[Sshd, Sshd], tmp_path: Path, log: CommandLog
) -> None:
    with (
        Hosts(read_hosts_file(write_hosts(tmp_path, daemons[:1])), log) as hosts,
        pytest.raises(ClusterError, match=r"^no Slurm answers: n1: scontrol failed: "),
    ):
        find_slurm(hosts, "gpu", tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "scontrol reconfigure",
        "scontrol update NodeName=n1 State=DOWN",
        "scontrol update PartitionName=gpu State=DOWN",
        "scontrol shutdown",
        "/usr/bin/scontrol -o create reservation",
        "scancel --user=alice 7",
        "scancel -p gpu",
        "scancel",
    ],
)
def test_what_would_change_the_cluster_is_refused(line: str) -> None:
    with pytest.raises(ClusterError, match="on a Slurm of others"):
        check_harmless(tuple(line.split()))


@pytest.mark.parametrize(
    "line",
    [
        "scontrol -o show job",
        "scontrol update JobId=7 NodeList=n1",
        "scontrol hold 7",
        "scancel 7 8",
        "squeue",
        "scontrol",
    ],
)
def test_what_concerns_jobs_is_let_through(line: str) -> None:
    check_harmless(tuple(line.split()))
