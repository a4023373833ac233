"""Topology files of their own: topology.yaml, and what NVIDIA's topograph writes."""

from pathlib import Path

import pytest

from dally.cluster import load_cluster
from dally.cluster.topology import Topology
from dally.errors import InputError

NODES = "ClusterName=lab\nNodeName=n[1-8] Gres=gpu:h100:8\nNodeName=login\n"

YAML = """\
---
- topology: ethernet      # the second is the default
  cluster_default: false
  flat: true
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - switch: spine
        children: leaf[1-2]
      - switch: leaf1
        nodes: n[1-4],login
      - switch: leaf2
        nodes: n[5-8]
- topology: racks
  block:
    block_sizes: [2, 4]
    blocks:
      - {block: b1, nodes: "n[1-2]"}
      - {block: b2, nodes: "n[3-4]"}
      - {block: b3, nodes: "n[5-6]"}
      - {block: b4, nodes: "n[7-8]"}
      - block: spare
"""

TOPOGRAPH_TREE = """\
# core=spine-7c1
SwitchName=core Switches=ib[1-2]
# ib1=leaf-0a
SwitchName=ib1 Nodes=n[1-3],n4
# ib2=leaf-0b
SwitchName=ib2 Nodes=n[5-8]
"""

TOPOGRAPH_BLOCKS = """\
# block001=nvl-domain-a
BlockName=block001 Nodes=n[1-4]
# block002=nvl-domain-b
BlockName=block002 Nodes=n[5-8]
BlockSizes=4,8
"""


def load(folder: Path, name: str, text: str, conf: str = NODES) -> Topology:
    (folder / name).write_text(text, encoding="utf-8")
    (folder / "slurm.conf").write_text(conf, encoding="utf-8")
    return load_cluster(folder)


def levels(cluster: Topology) -> list[list[str]]:
    return [[domain.name for domain in level] for level in cluster.level_domains[1:]]


def test_the_default_topology_of_a_yaml_file_counts(tmp_path: Path) -> None:
    cluster = load(tmp_path, "topology.yaml", YAML)
    assert cluster.levels == ("machine", "rack", "network")
    assert levels(cluster) == [["leaf1", "leaf2"], ["spine"]]


def test_without_a_default_the_first_topology_counts(tmp_path: Path) -> None:
    cluster = load(tmp_path, "topology.yaml", YAML.replace("cluster_default: true", "cluster_default: false"))
    assert cluster.levels == ("machine", "network")


def test_blocks_in_yaml_become_racks_and_may_still_be_empty(tmp_path: Path) -> None:
    text = YAML.replace("cluster_default: true", "").replace("racks", "racks\n  cluster_default: true")
    cluster = load(tmp_path, "topology.yaml", text)
    assert cluster.levels == ("machine", "block", "blocks4", "network")
    assert levels(cluster)[:2] == [["b1", "b2", "b3", "b4"], ["blocks4-1", "blocks4-2"]]


def test_yaml_goes_before_topology_conf_whatever_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text("SwitchName=other Nodes=n[1-8]\n")
    cluster = load(tmp_path, "topology.yaml", YAML, "TopologyPlugin=topology/flat\n" + NODES)
    assert levels(cluster)[-1] == ["spine"]


@pytest.mark.parametrize(
    ("text", "racks"),
    [
        (TOPOGRAPH_TREE, ["ib1", "ib2"]),
        (TOPOGRAPH_BLOCKS, ["block001", "block002"]),
        (YAML, ["leaf1", "leaf2"]),
    ],
)
def test_a_topology_file_is_read_with_the_slurm_conf_beside_it(
    tmp_path: Path, text: str, racks: list[str]
) -> None:
    (tmp_path / "slurm.conf").write_text(NODES)
    path = tmp_path / ("new.yaml" if text is YAML else "topograph.out")
    path.write_text(text)
    cluster = load_cluster(path)
    assert (levels(cluster)[0], cluster.gpus) == (racks, 64)


@pytest.mark.parametrize(
    ("name", "text", "size"),
    [
        ("topology.conf", TOPOGRAPH_TREE, "8 nodes"),
        ("topology.conf", TOPOGRAPH_BLOCKS, "8 nodes"),
        ("topology.yaml", YAML, "9 nodes"),
        ("topology.yaml", "- topology: t\n  flat: true\n", "a flat network"),
    ],
)
def test_without_slurm_conf_the_missing_gpus_are_told(
    tmp_path: Path, name: str, text: str, size: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=f"describes {size} and no GPUs; put it beside the slurm.conf"):
        load_cluster(tmp_path / name)


TREE = "- topology: t\n  tree:\n    switches:\n"
BLOCK = "- topology: t\n  block:\n    blocks: [{block: b, nodes: 'n[1-8]'}]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no topology"),
        ("- topology: t\n  flat: [", "line 2: not valid YAML"),
        ("\x07", "not valid YAML"),
        ("topology: t", "the file must be a list of entries"),
        ("- topology: 5\n  flat: true", "an entry has topology 5, must be a name"),
        ("- topology: t", "topology t is not just one of tree, block, flat"),
        ("- topology: t\n  flat: true\n  tree: {}", "topology t is not just one of"),
        ("- topology: t\n  ring: {}", "topology t is not just one of"),
        ("- {topology: t, flat: true}\n- {topology: t, flat: true}", "topology t is defined twice"),
        (TREE, "topology t: tree has no switches"),
        (TREE + "      - nodes: n1", "a switch has switch None, must be a name"),
        (TREE + "      - {switch: s, nodes: 7}", "an entry has nodes 7, must be a name"),
        (TREE + "      - {switch: s, nodes: 'n[1-'}", r"topology t: 'n\[1-' is not a host list"),
        (
            TREE + "      - {switch: s, nodes: 'n9'}",
            r"can be used: n9 \(not in slurm.conf\), n\[1-8\] \(on no sw",
        ),
        (BLOCK + "    block_sizes: [4, 6]", "topology t: BlockSizes has '6'"),
        (BLOCK + "    block_sizes: [true, x]", "topology t: BlockSizes has 'x'"),
    ],
)
def test_a_wrong_yaml_file_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path, "topology.yaml", text)
    assert str(caught.value).startswith(str(tmp_path / "topology.yaml"))
    assert "\n" not in str(caught.value)
