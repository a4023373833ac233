"""Free GPUs: best fit, packing and undoing, held against a plain search."""

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.cluster.free import FreeGpus
from dally.cluster.free_index import FreeIndex
from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Gang
from dally.testing.worlds import racks

SIZES = st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=4), min_size=1, max_size=4)


def used(topology: Topology, free: FreeGpus) -> list[int]:
    return [machine.gpus - free.on(index) for index, machine in enumerate(topology.machines)]


def test_best_fit_takes_the_machine_that_is_left_with_least() -> None:
    free = FreeGpus(racks([[8, 4], [6, 8]]))
    assert free.find(Gang(5), 0) == ((2, 5),)
    free.take(((2, 3),))
    assert free.find(Gang(5), 0) == ((0, 5),), "ties go to the lowest index"


def test_a_gang_accepts_the_machines_of_its_names_and_type_with_as_many_gpus_as_it_wants_on_each() -> None:
    free, some = FreeGpus(racks([[8, 4, 4, 4]], ("a100", "v100"))), frozenset({"r0m0", "r0m1"})
    assert free.accepted(Gang(20)) is free.accepted(Gang(16, None, 4)) is None
    assert free.accepted(Gang(4, machines=some)) == some
    assert free.accepted(Gang(4, "v100")) == frozenset({"r0m1", "r0m3"})
    assert free.accepted(Gang(4, "v100", machines=some)) == frozenset({"r0m1"})
    assert free.accepted(Gang(8, None, 8)) == free.accepted(Gang(8, None, 8, some)) == frozenset({"r0m0"})
    assert free.accepted(Gang(8, "h100")) == frozenset()
    assert FreeGpus(racks([[4, 4]], ("a100",))).accepted(Gang(4, "a100", 4)) is None


def test_a_rack_is_chosen_by_best_fit_and_filled_on_few_machines() -> None:
    free = FreeGpus(racks([[4, 4, 4], [4, 4, 2]]))
    assert free.find(Gang(9), 1) == ((3, 4), (4, 4), (5, 1))


def test_a_rack_where_fewer_machines_do_is_a_better_fit_than_one_with_less_to_spare() -> None:
    free = FreeGpus(racks([[4, 4, 4], [8, 8, 8], [8, 8]]))
    assert free.find(Gang(12), 1) == ((6, 8), (7, 4)), "two machines, and four GPUs to spare, not twelve"
    free.take(((7, 7),))
    assert free.find(Gang(12), 1) == ((3, 8), (4, 4))
    free.take(((3, 3), (4, 3), (5, 3)))
    assert free.find(Gang(12), 1) == ((0, 4), (1, 4), (2, 4)), "three machines everywhere: least to spare"


@settings(deadline=None)
@given(sizes=SIZES, taken=st.lists(st.integers(0, 8), max_size=16), gpus=st.integers(1, 24))
def test_the_best_fit_is_the_one_that_a_plain_search_finds(
    sizes: list[list[int]], taken: list[int], gpus: int
) -> None:
    free = FreeGpus(racks(sizes))
    for machine, count in zip(range(len(free.topology.machines)), taken, strict=False):
        free.take(((machine, min(count, free.on(machine))),))
    found = free.find(Gang(gpus), 1)

    def fit(machines: Sequence[int]) -> tuple[int, int]:
        left = sorted((free.on(machine) for machine in machines), reverse=True)
        needed = next(count for count in range(1, len(left) + 1) if sum(left[:count]) >= gpus)
        return needed, sum(left) - gpus

    here = [domain.children for domain in free.topology.level_domains[1] if free.on(domain.index) >= gpus]
    assert (found is None) == (not here)
    if found is not None:
        rack = next(machines for machines in here if found[0][0] in machines)
        assert fit(rack) == min(map(fit, here))
        assert len(found) == fit(rack)[0]
        assert {machine for machine, _ in found} <= set(rack)


def test_a_gang_over_racks_takes_the_fewest_racks() -> None:
    free = FreeGpus(racks([[2, 2], [4, 4], [4, 2]]))
    assert free.lowest_level(Gang(10)) == 2
    assert free.find(Gang(10), 2) == ((0, 2), (2, 4), (3, 4)), "the fullest rack, then best fit for the rest"


def test_levels_are_found_from_the_bottom_up() -> None:
    free = FreeGpus(racks([[4, 4], [4]]))
    assert [free.lowest_level(Gang(gpus)) for gpus in (4, 5, 8, 9, 12)] == [0, 1, 1, 2, 2]
    assert free.lowest_level(Gang(13)) is None
    assert free.lowest_level(Gang(2), start=1) == 1


def test_gpu_types_are_kept_apart() -> None:
    free = FreeGpus(racks([[4, 8], [4, 8]], ("a", "b")))
    assert free.total("a") == 8
    assert free.find(Gang(6, "a"), 0) is None
    assert free.find(Gang(6, "a"), 2) == ((0, 4), (2, 2))
    assert free.find(Gang(6, "b"), 0) == ((1, 6),)
    assert free.total("c") == 0
    assert free.lowest_level(Gang(1, "c")) is None


def test_what_is_not_free_cannot_be_taken() -> None:
    free = FreeGpus(racks([[4]]))
    free.take(((0, 3),))
    with pytest.raises(AssertionError, match="no 2 free GPUs"):
        free.take(((0, 2),))


def test_a_trial_leaves_no_trace() -> None:
    free = FreeGpus(racks([[4, 4]]))
    free.take(((0, 1),))
    with free.trial():
        free.take(((0, 3), (1, 4)))
        free.give(((0, 1),))
        assert free.total() == 1
    assert free.total() == 7
    assert free.find(Gang(4), 0) == ((1, 4),)


def test_a_trial_is_undone_even_when_it_fails() -> None:
    free = FreeGpus(racks([[4]]))
    with pytest.raises(AssertionError, match="no 9 free GPUs"), free.trial() as trial:
        trial.take(((0, 3), (0, 9)))
    assert free.total() == 4


def test_equal_shares_take_whole_machines_worth_where_least_is_left() -> None:
    free = FreeGpus(racks([[8, 8, 8], [8, 8]]))
    free.take(((0, 4), (3, 1)))
    gang = Gang(8, per_machine=4)
    assert free.lowest_level(gang) == 1, "two machines are never one"
    assert free.find(gang, 1) == ((3, 4), (4, 4)), "the rack with fewer such machines"
    free.take(((3, 8 - 1),))
    assert free.find(gang, 1) == ((0, 4), (1, 4)), "machines with least to spare first"
    assert free.lowest_level(Gang(32, per_machine=8)) is None


def test_a_share_for_one_machine_is_never_scattered() -> None:
    free = FreeGpus(racks([[4, 4], [8]]))
    free.take(((2, 3),))
    assert free.find(Gang(4, per_machine=4), 0) == ((0, 4),), "the best fit"
    assert free.lowest_level(Gang(6, per_machine=6)) is None
    assert free.lowest_level(Gang(6)) == 1


@settings(deadline=None)
@given(sizes=SIZES, steps=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 4)), max_size=12))
def test_shares_are_found_wherever_a_plain_search_finds_them(
    sizes: list[list[int]], steps: list[tuple[int, int]]
) -> None:
    topology = racks(sizes)
    free = FreeGpus(topology)
    for share, machines in steps:
        gang = Gang(share * machines, per_machine=share)
        held = [
            [
                sum(
                    free.on(m) >= share and topology.ancestors[m][level] == domain.index
                    for m in range(len(topology.machines))
                )
                for domain in domains
            ]
            for level, domains in enumerate(topology.level_domains)
        ]
        expected = next((level for level, counts in enumerate(held) if max(counts) >= machines), None)
        assert free.lowest_level(gang) == expected
        if expected is not None:
            allocation = free.find(gang, expected)
            assert allocation is not None
            assert [gpus for _, gpus in allocation] == [share] * machines
            assert topology.level_of(allocation) <= expected
            free.take(allocation)


@settings(deadline=None)
@given(sizes=SIZES, asks=st.lists(st.integers(1, 20), max_size=12), data=st.data())
def test_every_answer_is_what_a_plain_search_gives(
    sizes: list[list[int]], asks: list[int], data: st.DataObject
) -> None:
    topology = racks(sizes)
    free = FreeGpus(topology)
    held: list[Allocation] = []
    for gpus in asks:
        back = data.draw(st.integers(-len(held) - 1, len(held) - 1))
        if back >= 0:
            free.give(held.pop(back))
        level = free.lowest_level(Gang(gpus))
        assert level == plain_level(topology, free, gpus)
        allocation = None if level is None else free.find(Gang(gpus), level)
        if allocation is not None:
            assert sum(count for _, count in allocation) == gpus
            assert topology.level_of(allocation) <= (level or 0)
            free.take(allocation)
            held.append(allocation)
    taken = [
        sum(count for allocation in held for machine, count in allocation if machine == m)
        for m in range(len(topology.machines))
    ]
    assert used(topology, free) == taken


def plain_level(topology: Topology, free: FreeGpus, gpus: int) -> int | None:
    for level, domains in enumerate(topology.level_domains):
        if any(free.on(domain.index) >= gpus for domain in domains):
            return level
    return None


@given(
    counts=st.lists(st.integers(0, 9), min_size=1),
    moves=st.lists(st.tuples(st.integers(0), st.integers(0, 9))),
)
def test_the_index_agrees_with_a_list(counts: list[int], moves: Sequence[tuple[int, int]]) -> None:
    index = FreeIndex()
    for member, count in enumerate(counts):
        index.add(member, count)
    for member, new in moves:
        place = member % len(counts)
        index.move(1 << place, counts[place], new)
        counts[place] = new
    assert index.most == max(counts)
    for asked in range(11):
        fitting = [(count, member) for member, count in enumerate(counts) if count >= asked]
        assert index.best_fit(asked) == (min(fitting)[1] if fitting else None)
    some = [(-count, member) for member, count in enumerate(counts) if count]
    assert index.fullest() == (min(some)[1] if some else None)


def test_a_gang_lies_on_the_machines_that_it_accepts_only() -> None:
    free = FreeGpus(racks([[4, 4], [4, 4]]))
    some = Gang(6, machines=frozenset({"r0m1", "r1m0", "r1m1"}))
    assert free.lowest_level(some) == 1
    assert free.find(some, 1) == ((2, 4), (3, 2))
    assert free.lowest_level(some._replace(gpus=13)) is None
    assert free.total(machines=some.machines) == 12
    free.take(((3, 4),))
    assert free.lowest_level(some) == 2
    assert free.held(free.topology.root.index, some) == 8
    assert [free.accepts(some, machine) for machine in range(4)] == [False, True, True, True]


def test_indexes_of_filters_that_nobody_asks_for_any_more_go() -> None:
    free = FreeGpus(racks([[4] * 10, [4] * 10]))
    names = [machine.name for machine in free.topology.machines]
    filters = [frozenset(pair) for pair in combinations(names, 2)]
    for machines in filters:
        assert free.lowest_level(Gang(4, machines=machines)) == 0
    free.take(((0, 4),))
    first = Gang(5, machines=filters[0])
    assert free.lowest_level(first) is None
    free.give(((0, 4),))
    assert free.lowest_level(first) == 1
    assert len(free._indexes) <= 65
