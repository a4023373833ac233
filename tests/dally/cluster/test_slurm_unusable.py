"""What of Slurm's files cannot be used is left out and named, and the rest is used."""

from pathlib import Path

import pytest

from dally.cluster import DefaultLinks, load_cluster
from dally.cluster.summary import left_out_line
from dally.cluster.topology import Topology
from dally.errors import InputError
from dally.hostlist import fold

NODES = "NodeName=n[1-6] Gres=gpu:h100:8\n"
TREE = "SwitchName=a Nodes=n[1-3]\nSwitchName=b Nodes=n[4-5]\n"


def load(
    folder: Path, conf: str = NODES, topology: str = "", gres: str = "", name: str = "topology.conf"
) -> Topology:
    for file, text in (("slurm.conf", conf), (name, topology), ("gres.conf", gres)):
        if text:
            (folder / file).write_text(text, encoding="utf-8")
    return load_cluster(folder)


def left_out(cluster: Topology) -> dict[str, str]:
    return {fold(each.names): each.why for each in cluster.left_out}


def test_a_root_over_islands_connects_nothing(tmp_path: Path) -> None:
    cluster = load(tmp_path, topology=TREE)
    assert cluster.islands
    assert (cluster.root.name, [len(domain.children) for domain in cluster.level_domains[1]]) == (
        "network",
        [3, 2],
    )
    assert left_out(cluster) == {"n6": "on no switch"}


def test_where_slurm_lets_jobs_span_them_the_root_is_a_network(tmp_path: Path) -> None:
    conf = f"TopologyParam=SwitchAsNodeRank,TopoOptional\n{NODES}"
    cluster = load(tmp_path, conf, topology=TREE)
    assert not cluster.islands
    assert (len(cluster.machines), cluster.left_out) == (6, ())
    assert [cluster.domains[index].name for index in cluster.root.children] == ["a", "b", "network"]


def test_the_line_counts_and_names_what_is_left_out(tmp_path: Path) -> None:
    conf = "NodeName=n[1-3] Gres=gpu:h100:8\nNodeName=m[1-2] Gres=gpu:a100:4,gpu:t4:2\n"
    cluster = load(tmp_path, conf, topology="SwitchName=a Nodes=n[1-2],m[1-2]\n")
    assert left_out_line(cluster) == ("left out 3 nodes: m[1-2] (GPUs of types a100, t4), n3 (on no switch)")
    assert left_out_line(load_cluster("demo")) == ""


def test_a_long_list_of_nodes_is_cut(tmp_path: Path) -> None:
    names = ",".join(f"host{number}x" for number in range(40))
    cluster = load(tmp_path, topology=f"SwitchName=a Nodes=n[1-6],{names}\n")
    assert left_out_line(cluster).endswith("..., 40 in all (not in slurm.conf)")
    assert len(left_out_line(cluster)) < 130


@pytest.mark.parametrize("state", ["FUTURE", "down", "DRAIN", "FAIL"])
def test_nodes_that_are_not_there_are_no_capacity(tmp_path: Path, state: str) -> None:
    cluster = load(tmp_path, NODES + f"NodeName=x1 Gres=gpu:h100:8 State={state}\n")
    assert (len(cluster.machines), left_out(cluster)) == (6, {"x1": f"State={state.upper()}"})


def test_a_gres_conf_of_another_node_proves_nothing(tmp_path: Path) -> None:
    cluster = load(tmp_path, gres="Name=gpu Type=a100 File=/dev/nvidia[0-3]\n")
    assert (cluster.gpus, cluster.gpu_types, cluster.left_out) == (48, ("h100",), ())


def test_a_gres_conf_that_lists_fewer_gpus_of_the_node_itself_does(tmp_path: Path) -> None:
    cluster = load(tmp_path, gres="NodeName=n2 Name=gpu Type=h100 File=/dev/nvidia[0-3]\n")
    assert left_out(cluster) == {"n2": "8 GPUs, of which gres.conf lists 4"}


def test_switches_may_list_node_sets_and_all_nodes(tmp_path: Path) -> None:
    conf = "NodeName=n[1-4] Gres=gpu:8 Feature=x,new\nNodeName=n[5-6] Gres=gpu:8\nNodeSet=new Feature=new\n"
    cluster = load(tmp_path, conf, topology="SwitchName=a Nodes=new,n5\nSwitchName=b Nodes=n6\n")
    assert [domain.gpus for domain in cluster.level_domains[1]] == [40, 8]
    everything = load(tmp_path, conf, topology="SwitchName=a Nodes=ALL\n")
    assert (everything.levels, everything.gpus) == (("machine", "network"), 48)


def test_partitions_have_the_topology_that_they_name(tmp_path: Path) -> None:
    yaml = "- topology: t\n  tree: {switches: [{switch: s, nodes: 'n[1-2]'}]}\n- topology: f\n  flat: true\n"
    conf = f"{NODES}PartitionName=p Nodes=n[3-5] Topology=f\nPartitionName=q Nodes=n[1-6]\n"
    cluster = load(tmp_path, conf, topology=yaml, name="topology.yaml")
    assert cluster.islands
    assert [cluster.domains[index].name for index in cluster.root.children] == ["t.s", "f.network"]
    assert left_out(cluster) == {"n6": "on no switch"}


def test_a_partitions_topology_that_is_missing_costs_its_nodes_only(tmp_path: Path) -> None:
    yaml = "- topology: f\n  flat: true\n"
    cluster = load(tmp_path, f"{NODES}PartitionName=p Nodes=n1 Topology=gone\n", yaml, name="topology.yaml")
    assert left_out(cluster) == {"n1": "their partition's topology gone is not in topology.yaml"}


def test_a_topology_of_a_kind_that_is_not_known_costs_its_nodes_only(tmp_path: Path) -> None:
    yaml = "- topology: f\n  flat: true\n- topology: r\n  ring: {rings: []}\n"
    cluster = load(tmp_path, f"{NODES}PartitionName=p Nodes=n1 Topology=r\n", yaml, name="topology.yaml")
    assert left_out(cluster) == {"n1": "topology r is not just one of tree, block, flat"}


RACK = "BlockName=b Nodes=g[1-18]\n"


def nvl(count: int, gpus: int = 4) -> str:
    return f"NodeName=g[1-{count}] Gres=gpu:nvidia_gb200:{gpus}\n"


@pytest.mark.parametrize(
    ("conf", "topology", "said"),
    [
        (
            nvl(18),
            "",
            "g1 has GPUs of type nvidia_gb200, of which up to 72 share NVLink .* no block tells which",
        ),
        (nvl(18), "SwitchName=s Nodes=g[1-18]\n", "no block tells which"),
        (nvl(19), "BlockName=b Nodes=g[1-19]\n", "g19 has GPUs .* but block b has more; put a file with"),
    ],
)
def test_nvlink_across_machines_is_never_guessed(tmp_path: Path, conf: str, topology: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load(tmp_path, conf, topology)
    assert load_cluster(tmp_path, links=DefaultLinks()).gpus >= 72


def test_a_file_of_blocks_beside_slurm_conf_tells_what_shares_nvlink(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(nvl(18))
    (tmp_path / "nvlink.conf").write_text(RACK)
    assert (
        load_cluster(tmp_path / "nvlink.conf").domains[0].uplink
        == load(tmp_path, nvl(18), RACK).domains[0].uplink
    )


def test_where_nothing_can_be_used_the_reasons_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no node with GPUs can be used: n\[1-6\] \(on no switch\)"):
        load(tmp_path, topology="SwitchName=a Switches=b\nSwitchName=b\n")


def test_nodes_that_are_in_no_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no NodeName line has GPUs .* register themselves .* as TOML"):
        load(tmp_path, "MaxNodeCount=100\nNodeSet=x Feature=x\nPartitionName=p Nodes=ALL\n")
