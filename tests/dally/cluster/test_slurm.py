"""Clusters from Slurm's files: nodes, GPUs, switches, blocks, and what is refused by file and line."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from dally.cluster import DefaultLinks, load_cluster
from dally.cluster.slurm_gres import Gpus, parse_gres
from dally.cluster.topology import Link, Topology
from dally.errors import InputError

SLURM_CONF = r"""
# A lab of three racks and a login node
clustername=lab      # keys in any case
SlurmctldHost=head(10.0.0.1)
SlurmdParameters=config_overrides
TopologyPlugin = topology/tree
NodeName=DEFAULT CPUs=64 Gres=gpu:h100:8 \
    RealMemory=512000
NodeName=gpu[01-04],gpu07 Feature="a b" \
    State=UNKNOWN   # trailing
NODENAME=old[1-2] gres=gpu:2(S:0-1),nic:4 CPUs=16
NodeName=DEFAULT Gres=
NodeName=login1,cpu[1-100] CPUs=8
PartitionName=main Nodes=ALL Default=YES
""".replace("Gres=\n", 'Gres=""\n')

GRES_CONF = """
AutoDetect=off
NodeName=gpu[01-04,07] Name=gpu Type=h100 File=/dev/nvidia[0-7] Cores=0-63
NodeName=old[1-2] Name=gpu Type=v100 File=/dev/nvidia0
NodeName=old[1-2] Name=gpu Type=v100 File=/dev/nvidia1
Name=nic Count=4
"""

TREE = """
SwitchName=leaf1 Nodes=gpu[01-02],cpu[1-50] LinkSpeed=100
SwitchName=leaf2 Nodes=gpu[03-04,07]
SwitchName=leaf3 Nodes=old[1-2]
SwitchName=leaf4 Nodes=cpu[51-100],login1
SwitchName=mid1 Switches=leaf[1-2]
SwitchName=mid2 Switches=leaf[3-4]
SwitchName=spine Switches=mid[1-2]
"""

BLOCKS = """
BlockName=b1 Nodes=n[1-4]
BlockName=b2 Nodes=n[5-8]
BlockName=b3 Nodes=n[9-12]
BlockName=b4 Nodes=n[13-16]
BlockName=b5 Nodes=n[17-19]
BlockSizes=4,8
"""

FILES = {"slurm.conf": SLURM_CONF, "gres.conf": GRES_CONF, "topology.conf": TREE}


def load(folder: Path, files: Mapping[str, str], name: str = "") -> Topology:
    for file_name, text in files.items():
        (folder / file_name).write_text(text, encoding="utf-8")
    return load_cluster(folder / name)


def nodes(text: str) -> dict[str, str]:
    return {"slurm.conf": text}


def test_nodes_with_gpus_are_read_with_defaults_and_types(tmp_path: Path) -> None:
    cluster = load(tmp_path, FILES)
    found = [(machine.name, machine.gpus, machine.gpu_type) for machine in cluster.machines]
    gpu = [(f"gpu{number}", 8, "h100") for number in ("01", "02", "03", "04", "07")]
    assert found == [*gpu, ("old1", 2, "v100"), ("old2", 2, "v100")]
    assert cluster.name == "lab"


def test_switches_form_the_tree_and_those_without_gpus_are_dropped(tmp_path: Path) -> None:
    cluster = load(tmp_path, FILES)
    assert cluster.levels == ("machine", "rack", "pod", "network")
    assert [[domain.name for domain in level] for level in cluster.level_domains[1:]] == [
        ["leaf1", "leaf2", "leaf3"],
        ["mid1", "mid2"],
        ["spine"],
    ]
    assert [domain.gpus for domain in cluster.level_domains[1]] == [16, 24, 4]


def test_slurm_conf_itself_may_be_named(tmp_path: Path) -> None:
    assert load(tmp_path, FILES, "slurm.conf") == load(tmp_path, FILES)


def test_links_are_the_defaults_of_their_level(tmp_path: Path) -> None:
    cluster = load(tmp_path, FILES)
    uplinks = [{domain.uplink for domain in level} for level in cluster.level_domains]
    assert uplinks == [{Link(200e9, 1e-6)}, {Link(400e9, 2e-6)}, {Link(400e9, 2e-6)}, {None}]


def test_links_can_be_given(tmp_path: Path) -> None:
    load(tmp_path, FILES)
    links = DefaultLinks(Link(1.0), (Link(2.0), Link(3.0), Link(4.0)))
    cluster = load_cluster(tmp_path, links=links)
    assert cluster.machines[0].fabric == Link(1.0)
    assert [level[0].uplink for level in cluster.level_domains] == [Link(2.0), Link(3.0), Link(4.0), None]


@pytest.mark.parametrize(
    "plugin", ["", "TopologyPlugin=topology/flat\n", "TopologyPlugin=topology/default\n"]
)
def test_without_a_topology_the_cluster_is_flat(tmp_path: Path, plugin: str) -> None:
    files = nodes(plugin + "NodeName=n[1-3] Gres=gpu:4\n")
    flat = load(tmp_path, files | ({"topology.conf": "SwitchName=s Nodes=n1"} if plugin else {}))
    assert flat.levels == ("machine", "network")
    assert (flat.name, flat.gpus, flat.gpu_types) == (tmp_path.name, 12, ("",))


def test_blocks_become_racks_and_their_aggregates_a_level(tmp_path: Path) -> None:
    files = nodes("TopologyPlugin=topology/block\nNodeName=n[1-19] Gres=gpu:4\n") | {"topology.conf": BLOCKS}
    cluster = load(tmp_path, files)
    assert cluster.levels == ("machine", "block", "blocks8", "network")
    assert [domain.gpus for domain in cluster.level_domains[1]] == [16, 16, 16, 16, 12]
    assert [(domain.name, domain.gpus) for domain in cluster.level_domains[2]] == [
        ("blocks8-1", 32),
        ("blocks8-2", 32),
        ("blocks8-3", 12),
    ]


@pytest.mark.parametrize("sizes", ["", "BlockSizes=4", "BlockSizes=4,32"])
def test_aggregates_of_one_or_all_blocks_add_no_level(tmp_path: Path, sizes: str) -> None:
    topology = BLOCKS.replace("BlockSizes=4,8", sizes)
    cluster = load(tmp_path, nodes("NodeName=n[1-19] Gres=gpu:4\n") | {"topology.conf": topology})
    assert cluster.levels == ("machine", "block", "network")


def test_comments_may_hold_any_bytes_as_for_slurm(tmp_path: Path) -> None:
    text = b"# n\xf8der \xb6 \x0c page\nNodeName=n[1-2] Gres=gpu:4 # caf\xe9\n# a\xc2\x85b\n"
    (tmp_path / "slurm.conf").write_bytes(text)
    for path in (tmp_path, tmp_path / "slurm.conf"):
        assert [machine.gpus for machine in load_cluster(path).machines] == [4, 4]


def test_a_topology_file_of_comments_means_nothing_where_no_plugin_is_named(tmp_path: Path) -> None:
    cluster = load(tmp_path, nodes("NodeName=n[1-2] Gres=gpu:1\n") | {"topology.conf": "# SwitchName=s\n\n"})
    assert cluster.levels == ("machine", "network")


def test_an_included_file_may_be_called_like_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "lab_nodes.conf").write_text("NodeName=m Gres=gpu:1\n")
    cluster = load(tmp_path, {"slurm.conf": "ClusterName=Lab\nInclude %c_nodes.conf\n"})
    assert [machine.name for machine in cluster.machines] == ["m"]


def test_an_included_file_may_name_the_cluster_and_be_included_by_an_included_one(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "name.conf").write_text("ClusterName=Lab\n")
    (tmp_path / "parts" / "all.conf").write_text("Include %c_nodes.conf\n")
    (tmp_path / "parts" / "lab_nodes.conf").write_text("NodeName=m Gres=gpu:1\n")
    cluster = load(tmp_path, {"slurm.conf": "Include name.conf\nInclude parts/all.conf\n"})
    assert [machine.name for machine in cluster.machines] == ["m"]


def test_included_files_are_read_in_their_place(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "nodes.conf").write_text("NodeName=n[1-2] Gres=gpu:a100:4\n")
    cluster = load(
        tmp_path, nodes("NodeName=m Gres=gpu:1\nInclude parts/nodes.conf\nNodeName=z Gres=gpu:1\n")
    )
    assert [machine.name for machine in cluster.machines] == ["m", "n1", "n2", "z"]


def test_a_gres_line_without_node_name_holds_for_all(tmp_path: Path) -> None:
    files = nodes("NodeName=n1 Gres=gpu:2\n") | {"gres.conf": "Name=gpu Type=t4 File=/dev/nvidia[0-1]\n"}
    assert load(tmp_path, files).machines[0].gpu_type == "t4"


def test_gpus_left_to_detection_take_slurm_confs_count(tmp_path: Path) -> None:
    files = nodes("NodeName=n1 Gres=gpu:a100:8\n") | {
        "gres.conf": "AutoDetect=nvml\nName=gpu AutoDetect=nvml\n"
    }
    assert load(tmp_path, files).gpus == 8


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:h100:8", [Gpus("h100", 8)]),
        ("gpu:8(S:0-1)", [Gpus("", 8)]),
        ("gpu:a100:4(S:0,1),gpu:v100:2,nic:1", [Gpus("a100", 4), Gpus("v100", 2)]),
        ("gpu", [Gpus("", 1)]),
        ("gpu:t4", [Gpus("t4", 1)]),
        ("craynetwork:4, gpu:no_consume:2", [Gpus("", 2)]),
        ("gpumem:80G,mps:100", []),
        ("(null)", []),
        ("", []),
    ],
)
def test_gres_values_are_understood(gres: str, gpus: list[Gpus]) -> None:
    assert list(parse_gres(gres)) == gpus


def changed(name: str, old: str, new: str) -> dict[str, str]:
    assert old in FILES[name]
    return FILES | {name: FILES[name].replace(old, new, 1)}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"gres.conf": ""}, "the folder has no slurm.conf"),
        (nodes("ClusterName=x\n"), "slurm.conf: no NodeName line has GPUs"),
        (nodes("NodeName=n[1- Gres=gpu:1"), r"slurm.conf, line 1: 'n\[1-' is not a host list"),
        (nodes("\nNodeName=n1 junk Gres=gpu:1"), "slurm.conf, line 2: 'junk Gres=gpu:1' is not Key=Value"),
        (
            nodes("NodeName=n1 Gres=gpu:1\nNodeName=n[1-2]"),
            "line 2: node n1 is defined twice, first in .*line 1",
        ),
        (nodes("NodeName=n1 Gres=gpu:a:b:1"), "line 1: Gres entry 'gpu:a:b:1' is not"),
        (
            nodes("NodeName=n1 Gres=gpu:a100:4,gpu:v100:4"),
            r"slurm.conf: no node with GPUs can be used: n1 \(GPUs of types a100, v100\)$",
        ),
        (
            nodes("\nInclude /no/nodes.conf"),
            "slurm.conf, line 2: the file that it includes, /no/nodes.conf, is not there",
        ),
        (nodes("Include nodes.d/*.conf"), r"nodes.d/\*.conf, is not there; Slurm takes the path of one file"),
        (nodes("Include a.conf b.conf"), "a.conf b.conf, is not there; Slurm takes the path of one file"),
        (nodes("Include slurm.conf"), "include each other more than 8 deep"),
        (changed("gres.conf", "File=/dev/nvidia[0-7]", "Count=x"), "gres.conf, line 3: count 'x' is not"),
        (
            changed("slurm.conf", "topology/tree", "topology/3d_torus"),
            "topology/3d_torus is not supported; supp",
        ),
        (
            changed("topology.conf", "03-04,07", "01,03-04,07"),
            "machine gpu01 is on two switches: leaf1 and leaf2",
        ),
        (
            changed("topology.conf", "mid2 Switches=leaf[3-4]", "mid2 Switches=leaf[3-5]"),
            "unknown switch leaf5",
        ),
        (changed("topology.conf", "leaf[3-4]", "leaf[2-4]"), "leaf2 is below two switches: mid1 and mid2"),
        (changed("topology.conf", "Nodes=old[1-2]", "Nodes=old[1-2] Switches=spine"), "part of a cycle"),
        (changed("topology.conf", "SwitchName=leaf2", "SwitchName=leaf1"), "switch leaf1 is defined twice"),
        (changed("topology.conf", "leaf[1-2]", "leaf[1-"), r"topology.conf, line 6: 'leaf\[1-' is not"),
        (FILES | {"topology.conf": "# nothing"}, "has neither SwitchName nor BlockName lines"),
        (FILES | {"topology.conf": TREE + BLOCKS}, "has both SwitchName and BlockName lines"),
        (
            FILES | {"topology.conf": "BlockName=b1"},
            r"no node with GPUs can be used: gpu\[01-04,07\],old\[1-2\] \(in no block\)",
        ),
        (FILES | {"topology.conf": BLOCKS.replace("4,8", "4,x")}, "line 7: BlockSizes has 'x'"),
        (FILES | {"topology.conf": BLOCKS.replace("4,8", "4,6")}, "line 7: BlockSizes has '6'"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path, files)
    assert str(caught.value).startswith(str(tmp_path))
    assert str(caught.value).count(str(tmp_path)) <= 2
    assert "\n" not in str(caught.value)
