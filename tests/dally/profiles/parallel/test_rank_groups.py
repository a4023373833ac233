"""Which groups of ranks lie inside a machine."""

import pytest

from dally.errors import InputError
from dally.jobs.parallelism import Axis, Parallelism
from dally.profiles.parallel.rank_groups import RankGroup, spread_groups, whole_machines


def test_the_first_axis_lies_inside_and_the_last_crosses() -> None:
    spread = spread_groups(Parallelism.parse("tp=4,dp=2,pp=4"), whole_machines(32, 8))
    assert spread.crossing == (Axis.PIPELINE,)
    assert spread.groups[Axis.TENSOR] == RankGroup(Axis.TENSOR, 4, 1, 4, 0)
    assert spread.groups[Axis.DATA] == RankGroup(Axis.DATA, 2, 1, 2, 0)
    assert spread.groups[Axis.PIPELINE] == RankGroup(Axis.PIPELINE, 4, 4, 1, 8)


def test_another_order_puts_another_axis_inside() -> None:
    spread = spread_groups(Parallelism.parse("tp=4,dp=2,pp=4,order=tp-pp-cp-dp"), whole_machines(32, 8))
    assert spread.crossing == (Axis.DATA, Axis.PIPELINE)
    assert spread.groups[Axis.PIPELINE].inside == 2
    assert spread.groups[Axis.DATA] == RankGroup(Axis.DATA, 2, 2, 1, 8)


def test_machines_that_hold_part_of_a_group_make_it_cross() -> None:
    plan = Parallelism.parse("tp=4,dp=4")
    assert spread_groups(plan, (8, 8)).crossing == (Axis.DATA,)
    assert spread_groups(plan, (6, 6, 4)).crossing == (Axis.TENSOR, Axis.DATA)
    assert spread_groups(plan, (6, 6, 4)).groups[Axis.TENSOR].inside == 2


def test_ranks_that_split_a_sequence_share_weights_with_the_replicas() -> None:
    spread = spread_groups(Parallelism.parse("cp=2,dp=4"), (8,))
    assert spread.groups[Axis.CONTEXT].size == 2
    assert spread.groups[Axis.DATA].size == 8


def test_expert_groups_are_neighbours_in_a_stage() -> None:
    spread = spread_groups(Parallelism.parse("dp=16,pp=2,ep=8"), whole_machines(32, 8))
    assert spread.groups[Axis.EXPERT] == RankGroup(Axis.EXPERT, 8, 1, 8, 0)
    assert spread_groups(Parallelism.parse("dp=16,ep=16"), (8, 8)).groups[Axis.EXPERT].crosses


def test_the_last_machine_may_be_part_full() -> None:
    assert whole_machines(20, 8) == (8, 8, 4)


def test_a_placement_of_other_gpus_is_refused() -> None:
    with pytest.raises(InputError, match="placement: has 8 GPUs, the plan dp=4 needs 4"):
        spread_groups(Parallelism(dp=4), (8,))
