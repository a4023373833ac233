"""Machines for a gang by what is left on each, as others do it and as Slurm's topology/tree does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.jobs.job import Gang
from dally.policies.slurm.node_choice import as_topology_tree, best_fit, leaves_of
from dally.testing.worlds import racks

FOUR_RACKS = racks([[2, 2], [2, 2], [2, 2], [2, 2]])
"""Eight machines of two GPUs: 0 and 1 under the first leaf switch, and so on."""


def test_best_fit_takes_the_lowest_domain_that_holds_the_gang() -> None:
    left = [0, 2, 2, 2, 2, 2, 2, 2]
    assert best_fit(FOUR_RACKS, left, Gang(2), 2) == ((1, 2),)
    assert best_fit(FOUR_RACKS, left, Gang(4), 2) == ((2, 2), (3, 2))
    assert best_fit(FOUR_RACKS, left, Gang(6), 1) is None
    assert best_fit(FOUR_RACKS, left, Gang(15), 2) is None


def test_best_fit_takes_the_fewest_machines_and_then_the_least_to_spare() -> None:
    topology = racks([[4, 4, 4], [4, 4, 4]])
    assert best_fit(topology, [2, 2, 2, 4, 1, 4], Gang(6), 1) == ((3, 4), (5, 2))
    assert best_fit(topology, [4, 4, 4, 4, 3, 0], Gang(7), 1) == ((3, 4), (4, 3))


def test_topology_tree_begins_under_the_switch_with_fewest_machines_left_though_another_holds_the_gang() -> (
    None
):
    """Real Slurm 22.05 left a job of four GPUs with --switches=1 waiting here, with three idle racks."""
    spread = as_topology_tree(FOUR_RACKS, [0, 2, 2, 2, 2, 2, 2, 2], Gang(4))
    assert spread == ((1, 2), (2, 2))
    assert leaves_of(FOUR_RACKS, ((1, 2), (2, 2))) == 2


def test_topology_tree_prefers_machines_with_more_gpus_left() -> None:
    """With one GPU less on that machine, it started the job in an idle rack."""
    assert as_topology_tree(FOUR_RACKS, [0, 1, 0, 0, 0, 0, 2, 2], Gang(4)) == ((6, 2), (7, 2))
    assert as_topology_tree(FOUR_RACKS, [0, 1, 0, 0, 2, 2, 0, 1], Gang(6)) == ((1, 1), (4, 2), (5, 2), (7, 1))


def test_topology_tree_gives_one_gpu_where_fewest_machines_are_left() -> None:
    assert as_topology_tree(FOUR_RACKS, [2, 2, 2, 2, 0, 1, 2, 2], Gang(1)) == ((5, 1),)


def test_topology_tree_takes_a_switch_with_as_many_machines_as_the_job_names() -> None:
    left = [0, 2, 2, 2, 2, 2, 2, 2]
    assert as_topology_tree(FOUR_RACKS, left, Gang(4, per_machine=2)) == ((2, 2), (3, 2))
    assert as_topology_tree(FOUR_RACKS, [2, 1] * 4, Gang(4, per_machine=2)) == ((0, 2), (2, 2))


def test_topology_tree_spans_no_two_networks() -> None:
    islands = replace(racks([[2, 2], [2, 2]]), islands=True)
    assert as_topology_tree(islands, [0, 2, 2, 2], Gang(4)) == ((2, 2), (3, 2))
    assert as_topology_tree(islands, [0, 2, 2, 0], Gang(4)) is None


@given(left=st.lists(st.integers(0, 2), min_size=8, max_size=8), gpus=st.integers(1, 16))
@pytest.mark.parametrize("choose", ["tree", "fit"])
def test_a_gang_gets_all_its_gpus_from_those_left_if_there_are_enough(
    choose: str, left: list[int], gpus: int
) -> None:
    gang = Gang(gpus)
    tree = as_topology_tree(FOUR_RACKS, left, gang)
    allocation = tree if choose == "tree" else best_fit(FOUR_RACKS, left, gang, FOUR_RACKS.top)
    assert (allocation is None) == (sum(left) < gpus)
    if allocation is not None:
        assert sum(taken for _, taken in allocation) == gpus
        assert all(0 < taken <= left[machine] for machine, taken in allocation)
