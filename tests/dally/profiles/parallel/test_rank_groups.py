"""Which groups of ranks lie inside a machine."""

from collections import Counter
from itertools import chain, pairwise, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.errors import InputError
from dally.jobs.parallelism import USUAL_ORDER, Axis, Parallelism
from dally.profiles.parallel.rank_groups import Crossing, RankGroup, spread_groups, whole_machines


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


def test_racks_are_looked_at_as_machines_are() -> None:
    """Four machines, two in each rack: replicas cross machines in a rack, stages cross racks."""
    spread = spread_groups(Parallelism.parse("tp=4,dp=4,pp=2"), (8, 8, 8, 8), [(0, 1, 2, 3), (0, 0, 1, 1)])
    assert spread.groups[Axis.DATA] == RankGroup(Axis.DATA, 4, 2, 2, 4, (Crossing(1, 4, 0),))
    assert spread.groups[Axis.PIPELINE] == RankGroup(Axis.PIPELINE, 2, 2, 1, 8, (Crossing(2, 1, 16),))


SIZES = st.sampled_from([1, 2, 3, 4])


@given(
    tp=SIZES,
    cp=SIZES,
    dp=SIZES,
    pp=SIZES,
    order=st.permutations(USUAL_ORDER),
    cuts=st.lists(st.integers(1, 255), max_size=6, unique=True),
)
def test_spreads_are_those_of_ranks_counted_one_by_one(
    tp: int, cp: int, dp: int, pp: int, order: list[Axis], cuts: list[int]
) -> None:
    plan = Parallelism(tp=tp, cp=cp, dp=dp, pp=pp, ep=dp, order=tuple(order))
    ends = [0, *sorted(cut for cut in cuts if cut < plan.gpus), plan.gpus]
    machines = [end - start for start, end in pairwise(ends)]
    machine_of = list(chain.from_iterable(repeat(number, count) for number, count in enumerate(machines)))
    for axis, found in spread_groups(plan, machines).groups.items():
        groups = [Counter(machine_of[rank] for rank in group) for group in _groups(plan, axis)]
        most = max(len(group) for group in groups)
        leaving = Counter(chain.from_iterable(group for group in groups if len(group) > 1))
        inside = min(max(group.values()) for group in groups if len(group) == most)
        sharers = max(leaving.values(), default=0)
        assert found == RankGroup(axis, groups[0].total(), most, inside, sharers)


def _groups(plan: Parallelism, axis: Axis) -> list[list[int]]:
    """The ranks of each group of an axis, from each rank's place in all axes."""
    shared = {Axis.DATA: {Axis.DATA, Axis.CONTEXT}, Axis.EXPERT: set(USUAL_ORDER) - {Axis.PIPELINE}}
    members: dict[tuple[int, ...], list[int]] = {}
    for rank in range(plan.gpus):
        place, rest = {}, rank
        for each in plan.order:
            rest, place[each] = divmod(rest, plan.size(each))
        same = tuple(place[each] for each in USUAL_ORDER if each not in shared.get(axis, {axis}))
        members.setdefault(same, []).append(rank)
    if axis is not Axis.EXPERT:
        return [*members.values()]
    return [stage[at : at + plan.ep] for stage in members.values() for at in range(0, len(stage), plan.ep)]
