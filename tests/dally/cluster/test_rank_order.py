"""The order of nodes: no order has fewer groups that span racks, and neighbours by name may span many."""

from itertools import permutations
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.cluster.rank_order import group_machines, rank_order, spanning_groups
from dally.commands import main
from dally.jobs.parallelism import Parallelism
from dally.testing.worlds import racks

SLURM_CONF = "NodeName=n[1-12] Gres=gpu:8\nPartitionName=gpu Nodes=ALL\nTopologyPlugin=topology/tree\n"
SWITCHES = """\
SwitchName=s1 Nodes=n[1,5,9]
SwitchName=s2 Nodes=n[2,6,10]
SwitchName=s3 Nodes=n[3-4,7-8,11-12]
SwitchName=top Switches=s[1-3]
"""


@pytest.mark.parametrize(
    ("plan", "ranks_per_machine", "machines"),
    [
        ("dp=16", 8, 1),  # one group of all
        ("tp=8,dp=4", 8, 1),  # each fits
        ("tp=16,dp=4", 8, 2),
        ("tp=8,pp=2,dp=4", 8, 4),  # tp, then dp: the pipeline is outside
        ("tp=8,pp=2,dp=4,order=tp-cp-pp-dp", 8, 2),
        ("tp=6,dp=2,pp=2", 8, 2),
    ],
)
def test_the_group_is_the_innermost_that_does_not_fit_a_machine(
    plan: str, ranks_per_machine: int, machines: int
) -> None:
    assert group_machines(Parallelism.parse(plan), ranks_per_machine) == machines


def test_leftovers_of_racks_make_up_groups_behind_the_whole_ones() -> None:
    topology = racks([[8] * 5, [8] * 5, [8] * 2])
    order = rank_order(topology, range(12), 4)
    assert order[:8] == (0, 1, 2, 3, 5, 6, 7, 8)
    assert spanning_groups(topology, order, 4, 1) == 1
    assert spanning_groups(topology, range(12), 4, 1) == 2


def test_a_last_group_that_is_not_whole_lies_in_one_rack() -> None:
    topology = racks([[8], [8] * 2, [8] * 2])
    order = rank_order(topology, range(5), 3)
    assert (order, spanning_groups(topology, order, 3, 1)) == ((3, 4, 0, 1, 2), 1)


@settings(max_examples=60)
@given(st.data())
def test_no_order_has_fewer_groups_that_span_racks(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    topology = racks([[8] * size for size in sizes])
    every = range(len(topology.machines))
    machines = data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=6, unique=True))
    group = data.draw(st.integers(1, 3))
    order = rank_order(topology, machines, group)
    assert sorted(order) == sorted(machines)
    best = min(spanning_groups(topology, each, group, 1) for each in permutations(machines))
    assert spanning_groups(topology, order, group, 1) == best


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    (tmp_path / "slurm.conf").write_text(SLURM_CONF)
    (tmp_path / "topology.conf").write_text(SWITCHES)
    (tmp_path / "gres.conf").write_text("")
    return tmp_path


def ordered(cluster: Path, *arguments: str, nodes: str = "n[1-2,5-6]") -> tuple[int, str, str]:
    words = ["rank-order", "--cluster", str(cluster), "--nodes", nodes, *arguments]
    done = CliRunner().invoke(main, words)
    return done.exit_code, done.stdout, done.stderr


def test_nodes_of_one_switch_stand_beside_each_other(cluster: Path) -> None:
    code, order, _ = ordered(cluster, "--plan", "tp=16,dp=2", "--tasks-per-node=8")
    assert (code, order) == (0, "n1,n5,n2,n6\n")


def test_a_node_is_told_its_place(cluster: Path) -> None:
    _, place, told = ordered(cluster, "--plan=tp=16,dp=2", "--tasks-per-node=8", "--rank-of=n5")
    assert (place, told) == ("1\n", "groups of 2 nodes that span several of rack: 0, 2 by name\n")


def test_a_host_file_has_a_line_for_each_rank(cluster: Path, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    code, path, _ = ordered(cluster, "--tasks-per-node=2", f"--hostfile={hosts}")
    assert (code, path) == (0, f"{hosts}\n")
    assert hosts.read_text().split() == ["n1", "n1", "n5", "n5", "n2", "n2", "n6", "n6"]


@pytest.mark.parametrize(
    ("arguments", "nodes", "line"),
    [
        ((), "n13", "node n13 is not in"),
        (("--plan=tp=4",), "n[1-2]", "plan tp=4 has 4 ranks, and there are 2 nodes x 1 task"),
        (("--rank-of=n7",), "n[1-2]", "node n7 is none of n[1-2]"),
        ((), "", "no nodes are given"),
    ],
)
def test_what_cannot_be_ordered_is_one_line(
    cluster: Path, arguments: tuple[str, ...], nodes: str, line: str
) -> None:
    code, _, told = ordered(cluster, *arguments, nodes=nodes)
    assert (code, told.count("\n")) == (1, 1)
    assert line in told
