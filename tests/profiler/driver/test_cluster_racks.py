from pathlib import Path

import pytest

from dally.cluster import load_cluster
from dally.cluster.topology import Topology
from dally.errors import InputError
from dally.profiles.schema import PointLink
from profiler.driver.cluster_racks import only_gpu_type, racks_of
from profiler.driver.plan import PlannedHost

SLURM = """\
NodeName=n[1-2] Gres=gpu:h100:8
NodeName=n3 Gres=gpu:a100:4
PartitionName=gpu Nodes=ALL
"""
RACKS = "SwitchName=rack0 Nodes=n[1-2]\nSwitchName=rack1 Nodes=n3\nSwitchName=spine Switches=rack[0-1]\n"


@pytest.fixture
def mixed(tmp_path: Path) -> Topology:
    (tmp_path / "slurm.conf").write_text(SLURM)
    (tmp_path / "topology.conf").write_text(RACKS)
    return load_cluster(tmp_path)


def test_hosts_have_a_rank_for_each_gpu_and_links_that_the_file_tells() -> None:
    racks = racks_of(load_cluster("demo"), only_gpu_type(load_cluster("demo"), None))

    machine = load_cluster("demo").machines[0]
    link = racks[0].hosts[0].link
    assert (racks[0].hosts[0].name, racks[0].hosts[0].ranks) == (machine.name, machine.gpus)
    uplink = load_cluster("demo").domains[0].uplink
    assert uplink is not None
    assert link == PointLink(uplink.bandwidth_bps, uplink.latency_s)


def test_links_that_slurms_files_do_not_tell_are_unknown(mixed: Topology) -> None:
    (rack,) = racks_of(mixed, "h100")

    assert rack.hosts == (PlannedHost("n1", 8), PlannedHost("n2", 8))
    assert rack.uplink is None


def test_of_several_gpu_types_one_must_be_chosen(mixed: Topology) -> None:
    assert only_gpu_type(mixed, "a100") == "a100"
    with pytest.raises(
        InputError, match="several GPU types and none asked for; --gpu-type can be a100, h100"
    ):
        only_gpu_type(mixed, None)
    with pytest.raises(InputError, match="no GPU type v100; --gpu-type can be a100, h100"):
        only_gpu_type(mixed, "v100")
