"""The configuration of a private Slurm on remote hosts."""

from dataclasses import replace
from pathlib import Path

import pytest

from dally.cluster import load_cluster
from dally.errors import InputError
from testbed.remote.slurm_files import Node, claimed_cpus, hardware, remote_conf_files

NODES = (
    Node("a", "10.0.0.1", "left", 2, 8, 16_000, "/dev/nvidia[0-1]"),
    Node("b", "10.0.0.2", "left", 2, 8, 16_000, "/dev/nvidia[0-1]"),
    Node("c", "10.0.0.3", "right", 1, 4, 8_000, "/dev/nvidia0"),
)


def test_dally_reads_the_hosts_with_their_racks_and_gpus(tmp_path: Path) -> None:
    for name, text in remote_conf_files(Path("/tmp/x"), 7000, NODES, (22, 5)).items():
        (tmp_path / name).write_text(text)
    topology = load_cluster(str(tmp_path))
    assert [(machine.name, machine.gpus) for machine in topology.machines] == [("a", 2), ("b", 2), ("c", 1)]


def test_slurmctld_is_at_the_first_host_and_every_slurmd_has_its_own_port() -> None:
    text = remote_conf_files(Path("/tmp/x"), 7000, NODES, (22, 5))["slurm.conf"]
    assert "SlurmctldHost=localhost(10.0.0.1)\nSlurmctldPort=7000\n" in text
    assert "NodeName=c NodeHostname=localhost NodeAddr=10.0.0.3 Port=7003 CPUs=4 " in text


@pytest.mark.parametrize("rack", ["two words", "spine", ""])
def test_a_rack_that_slurm_would_not_take_is_refused(rack: str) -> None:
    with pytest.raises(InputError, match=f"rack is {rack!r}"):
        remote_conf_files(Path("/tmp/x"), 7000, [replace(NODES[0], rack=rack)], (22, 5))


def test_what_slurmd_finds_of_a_machine_is_read() -> None:
    text = (
        "NodeName=vm CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 RealMemory=24105\nUpTime=0-04:11:41\n"
    )
    assert hardware(text) == (2, 24105)
    with pytest.raises(InputError, match="printed no CPUs"):
        hardware("slurmd: error")


def test_a_small_host_claims_two_cpus_for_each_pretended_gpu() -> None:
    assert (claimed_cpus(2, 4), claimed_cpus(64, 4)) == (8, 64)
