"""The text of a local cluster's configuration, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dally.cluster import load_cluster
from dally.cluster.links import DefaultLinks
from dally.errors import InputError
from dally.hosts.network_spec import NetworkSpec, Rack
from slurm_plugin.local_cluster.slurm_files import (
    LocalClusterSpec,
    TopologyPlugin,
    conf_files,
    gres_conf,
    local_topology,
    slurm_conf,
    topology_conf,
)

SPEC = LocalClusterSpec(Path("/tmp/x"), port=7000)


def test_racks_share_the_nodes_out_in_order() -> None:
    assert topology_conf(replace(SPEC, nodes=5, racks=2)) == (
        "SwitchName=rack0 Nodes=n[1-2]\nSwitchName=rack1 Nodes=n[3-5]\nSwitchName=spine Switches=rack[0-1]\n"
    )


def test_one_rack_of_one_node_needs_no_brackets() -> None:
    assert topology_conf(replace(SPEC, nodes=1, racks=1)) == (
        "SwitchName=rack0 Nodes=n1\nSwitchName=spine Switches=rack0\n"
    )


def test_each_gpu_is_a_file_in_the_folder() -> None:
    assert gres_conf(replace(SPEC, gpus=4)).endswith(
        "NodeName=n[1-8] Name=gpu Type=h100 File=/tmp/x/dev/nvidia[0-3]\n"
    )


def test_racks_have_gpus_of_their_own_type(tmp_path: Path) -> None:
    spec = replace(SPEC, nodes=5, racks=3, gpus=2, gpu_types=("v100", "k80", "v100"))
    assert gres_conf(spec).splitlines()[1:] == [
        "NodeName=n[1,4-5] Name=gpu Type=v100 File=/tmp/x/dev/nvidia[0-1]",
        "NodeName=n[2-3] Name=gpu Type=k80 File=/tmp/x/dev/nvidia[0-1]",
    ]
    for name, text in conf_files(spec, (22, 5)).items():
        (tmp_path / name).write_text(text)
    types = {machine.name: machine.gpu_type for machine in load_cluster(tmp_path).machines}
    assert types == {"n1": "v100", "n2": "k80", "n3": "k80", "n4": "v100", "n5": "v100"}


def test_nodes_take_the_ports_after_the_controller() -> None:
    lines = slurm_conf(SPEC).splitlines()
    assert "SlurmctldPort=7000" in lines
    assert [line.split()[:4] for line in lines if line.startswith("NodeName=")] == [
        ["NodeName=n[1-8]", "NodeHostname=localhost", "NodeAddr=127.0.0.1", "Port=[7001-7008]"]
    ]


def test_nodes_of_one_type_are_one_line_each_with_its_own_port() -> None:
    lines = slurm_conf(replace(SPEC, nodes=5, racks=3, gpu_types=("v100", "k80", "v100"))).splitlines()
    assert [line.split()[::3][:2] for line in lines if line.startswith("NodeName=")] == [
        ["NodeName=n[1,4-5]", "Port=[7001,7004-7005]"],
        ["NodeName=n[2-3]", "Port=[7002-7003]"],
    ]


def test_the_first_partition_is_the_default() -> None:
    partitions = [line for line in slurm_conf(SPEC).splitlines() if line.startswith("PartitionName=")]
    assert ["Default=YES" in line for line in partitions] == [True, False]


def test_extra_lines_come_last() -> None:
    assert slurm_conf(replace(SPEC, extra_conf=("KillWait=60",))).endswith("\nKillWait=60\n")


def test_a_job_submit_script_is_written_and_switched_on() -> None:
    files = conf_files(replace(SPEC, lua_files={"job_submit.lua": "-- nothing"}), (22, 5))
    assert files["job_submit.lua"] == "-- nothing"
    assert "JobSubmitPlugins=lua" in files["slurm.conf"].splitlines()


def test_racks_can_be_blocks_of_which_the_smallest_is_whole() -> None:
    files = conf_files(replace(SPEC, nodes=5, racks=2, topology=TopologyPlugin.BLOCK), (24, 11))
    assert files["topology.conf"] == (
        "BlockName=rack0 Nodes=n[1-2]\nBlockName=rack1 Nodes=n[3-5]\nBlockSizes=2\n"
    )
    assert "TopologyPlugin=topology/block" in files["slurm.conf"].splitlines()


def test_slurm_can_be_told_nothing_of_the_racks() -> None:
    files = conf_files(replace(SPEC, topology=TopologyPlugin.NONE), (22, 5))
    assert "topology.conf" not in files
    assert "TopologyPlugin" not in files["slurm.conf"]


def test_blocks_are_refused_for_a_slurm_that_has_none() -> None:
    with pytest.raises(InputError, match=r"Slurm 22\.05 has no topology/block; 23\.11 and newer have"):
        conf_files(replace(SPEC, topology=TopologyPlugin.BLOCK), (22, 5))


@pytest.mark.parametrize(("version", "there"), [((22, 5), False), ((24, 11), True)])
def test_cgroups_are_switched_off_where_slurm_can(version: tuple[int, int], there: bool) -> None:
    assert ("cgroup.conf" in conf_files(SPEC, version)) is there


def test_dally_reads_what_is_written(tmp_path: Path) -> None:
    for name, text in conf_files(SPEC, (22, 5)).items():
        (tmp_path / name).write_text(text)
    assert load_cluster(tmp_path).gpus == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"racks": 9}, "racks is 9, must be 1 to the number of nodes, 8"),
        ({"cpus": 3}, "cpus is 3, must be an even number"),
        ({"gpus": 0}, "gpus is 0, must be 1 or more"),
        ({"gpu_types": ("a", "b")}, "2 GPU types given for 4 racks, must be one for all or one for each"),
        ({"gpu_types": ("a:b",)}, "GPU type is 'a:b', must be a letter, then"),
        ({"folder": Path("/tmp") / ("x" * 100)}, "too long a path for a socket"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(SPEC, **changes)


NETWORK = replace(
    SPEC, gpus=2, gpu_types=("v100", "k80"), network=NetworkSpec((Rack(2, 1e9, 200e6), Rack(1, 2e9)))
)


def test_with_a_network_its_hosts_are_the_nodes_each_at_its_address() -> None:
    lines = slurm_conf(NETWORK).splitlines()
    nodes = [line.split() for line in lines if line.startswith("NodeName=")]
    assert [(words[0], words[2]) for words in nodes] == [
        ("NodeName=r1h1", "NodeAddr=10.1.0.1"),
        ("NodeName=r1h2", "NodeAddr=10.1.0.2"),
        ("NodeName=r2h1", "NodeAddr=10.2.0.1"),
    ]
    assert "SlurmctldHost=localhost(10.251.0.1)" in lines


def test_with_a_network_its_racks_are_the_switches() -> None:
    assert topology_conf(NETWORK) == (
        "SwitchName=r1 Nodes=r1h[1-2]\nSwitchName=r2 Nodes=r2h1\nSwitchName=core Switches=r[1-2]\n"
    )


def test_dally_sees_the_links_that_the_network_has(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(conf_files(NETWORK, (22, 5))["cluster.toml"])
    topology = load_cluster(file)
    bandwidths = {item.name: item.uplink and item.uplink.bandwidth_bps for item in topology.domains}
    assert bandwidths == {"r1h1": 1e9, "r1h2": 1e9, "r2h1": 2e9, "r1": 200e6, "r2": 10e9, "core": None}


def test_dally_sees_the_same_tree_in_slurms_files(tmp_path: Path) -> None:
    for name, text in conf_files(NETWORK, (22, 5)).items():
        (tmp_path / name).write_text(text)
    assert load_cluster(tmp_path).machines == tuple(
        replace(machine, fabric=DefaultLinks().fabric) for machine in local_topology(NETWORK).machines
    )


def test_without_a_network_there_are_no_links_to_tell() -> None:
    with pytest.raises(InputError, match="the cluster has no network"):
        local_topology(SPEC)
