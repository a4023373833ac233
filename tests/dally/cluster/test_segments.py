"""Gangs in segments: free GPUs, best fit and what comes free, held against a plain search."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.cluster.free import FreeGpus, most_units
from dally.cluster.idle_cluster import IdleCluster
from dally.cluster.topology import Topology
from dally.errors import CapacityError
from dally.jobs.job import Gang, Job
from dally.policies.common.placements import Gains, accepted
from dally.policies.slurm.node_choice import best_fit
from dally.testing.worlds import racks

BLOCKS = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=4)
MOVES = st.lists(st.tuples(st.integers(0, 15), st.integers(-3, 3)), max_size=12)
DEPTHS = st.sampled_from([2, 3, 3, 4])


def gang(machines: int, segment: int, share: int = 1) -> Gang:
    return Gang(machines * share, None, share, None, segment)


@st.composite
def gangs(draw: st.DrawFn, most: int) -> Gang:
    """Gangs of two machines or more in segments, which may have to be apart, or close together."""
    segment, spread = draw(st.integers(1, 3)), draw(st.booleans())
    count, share = draw(st.integers(2 if segment == 1 else 1, most)), draw(st.integers(1, 2))
    return Job(
        "g", 0.0, segment * count * share, 1.0, gpus_per_machine=share, segment=segment,
        spread_segments=spread, consolidate_segments=draw(st.booleans()),
    ).gang  # fmt: skip


def close_level(topology: Topology, asked: Gang) -> int:
    """The lowest level at which a domain has so many machines, or blocks where segments are spread."""
    if not asked.consolidated:
        return topology.top
    segment = asked.segment or 1
    for level, domains in enumerate(topology.level_domains):
        for domain in domains:
            inside = [path for path in topology.ancestors if domain.index in path]
            blocks = len({path[1] for path in inside}) if level else 0
            if blocks * segment >= asked.units if asked.spread else len(inside) >= asked.units:
                return level
    return topology.top


def is_whole(topology: Topology, machines: Sequence[int], asked: Gang) -> bool:
    """Whether machines are whole segments, each in one block, and lie to each other as they are to."""
    blocks, segment = Counter(topology.ancestors[machine][1] for machine in machines), asked.segment or 1
    whole = all(count % segment == 0 for count in blocks.values())
    apart = not asked.spread or max(blocks.values()) == segment
    return whole and apart and level_of(topology, machines) <= close_level(topology, asked)


def ways(free: FreeGpus, asked: Gang) -> Iterator[tuple[int, ...]]:
    """Every choice of machines for a gang."""
    able = [each for each in range(len(free.topology.machines)) if asked.held(free.on(each))]
    for machines in combinations(able, asked.units):
        if is_whole(free.topology, machines, asked):
            yield machines


def level_of(topology: Topology, machines: Sequence[int]) -> int:
    return topology.level_of(tuple((machine, 1) for machine in machines))


def moved(free: FreeGpus, moves: Sequence[tuple[int, int]]) -> None:
    """Take and give GPUs here and there."""
    machines = free.topology.machines
    for at, delta in moves:
        machine = at % len(machines)
        used = machines[machine].gpus - free.on(machine)
        if delta > 0:
            free.take(((machine, min(delta, free.on(machine))),))
        else:
            free.give(((machine, min(-delta, used)),))


def test_indexes_of_segments_that_nobody_asks_for_any_more_go() -> None:
    free = FreeGpus(racks([[1] * 100] * 2))
    for segment in range(2, 101):
        free.usable(gang(segment, segment))
    assert free.usable(gang(2, 2)) == 200
    free.take(((0, 1),))
    assert [free.usable(gang(each, each)) for each in (2, 99, 100)] == [198, 198, 100]
    assert len(free._indexes) <= 65


def test_a_segment_lies_in_one_block_and_the_tightest_is_taken() -> None:
    free = FreeGpus(racks([[1] * 5, [1] * 4, [1] * 3]))
    assert free.find(gang(4, 4), 1) == tuple((machine, 1) for machine in (5, 6, 7, 8))
    assert free.lowest_level(gang(8, 4)) == 2
    assert free.lowest_level(gang(12, 4)) is None, (
        "twelve machines are free, but the last four are in two blocks"
    )
    assert free.lowest_level(gang(12, 1)) == 2
    free.take(((5, 1), (0, 1), (1, 1)))
    assert free.lowest_level(gang(4, 4)) is None
    assert free.find(gang(6, 3), 2) == tuple((machine, 1) for machine in (2, 3, 4, 6, 7, 8))


def test_it_takes_the_fewest_blocks() -> None:
    free = FreeGpus(racks([[1] * 3, [1] * 6, [1] * 4]))
    found = free.find(gang(8, 2), 2)
    assert found is not None
    assert Counter(free.topology.ancestors[machine][1] for machine, _ in found) == {14: 6, 13: 2}


@settings(deadline=None, max_examples=200)
@given(BLOCKS, DEPTHS, MOVES, gangs(5))
def test_segments_are_found_wherever_a_plain_search_finds_them(
    sizes: list[list[int]], depth: int, moves: list[tuple[int, int]], asked: Gang
) -> None:
    free, share = FreeGpus(racks(sizes, depth=depth)), asked.per_machine
    free.held(0, asked)  # its index is made before GPUs are taken
    moved(free, moves)
    topology, known = free.topology, [*ways(free, asked)]
    levels = {level_of(topology, machines) for machines in known}
    highest = close_level(topology, asked)
    assert free.highest(asked) == highest
    assert free.lowest_level(asked) == min(levels, default=None)
    again = FreeGpus(topology)
    again.take(tuple((at, machine.gpus - free.on(at)) for at, machine in enumerate(topology.machines)))
    left = [free.on(machine) for machine in range(len(topology.machines))]
    for level in range(1, topology.top + 1):
        found = free.find(asked, level)
        assert found == again.find(asked, level), "an index made later says the same"
        assert (found is None) == (not any(below <= level for below in levels))
        chosen = best_fit(topology, left, asked, min(level, highest))
        assert (chosen is None) == (found is None)
        for place in (found, chosen):
            if place is not None:
                machines = tuple(machine for machine, _ in place)
                assert machines in known
                assert {gpus for _, gpus in place} == {share}
                assert level_of(topology, machines) <= level
    for domain in topology.domains[len(topology.machines) :]:
        inside = dict[int, list[int]]()
        for at, path in enumerate(topology.ancestors):
            if domain.index in path:
                inside.setdefault(path[min(domain.level, highest)], []).append(at)
        assert free.held(domain.index, asked) == max(
            most_units(topology, asked, ((at, left[at]) for at in each)) for each in inside.values()
        )


@settings(deadline=None, max_examples=200)
@given(BLOCKS, DEPTHS, MOVES, gangs(4))
def test_what_comes_free_is_counted_in_whole_segments(
    sizes: list[list[int]], depth: int, moves: list[tuple[int, int]], asked: Gang
) -> None:
    free = FreeGpus(racks(sizes, depth=depth))
    topology = free.topology
    moved(free, moves)
    used = [machine.gpus - free.on(at) for at, machine in enumerate(topology.machines)]
    for level in range(1, topology.top + 1):
        gains, later = Gains(free, asked, level), FreeGpus(topology)
        later.take(tuple(enumerate(used)))
        freed = [((at, gpus),) for at, gpus in enumerate(used) if gpus]
        for end, place in enumerate(freed, 1):
            domain = next(iter(gains.add(place)), None)
            later.give(place)
            held = [later.held(each.index, asked) for each in topology.level_domains[level]]
            assert domain is None or later.held(domain, asked) == gains.spare(domain) + asked.units
            if (
                free.lowest_level(asked) is None
                and later.lowest_level(asked) is not None
                and level == topology.top
            ):
                assert domain is not None
            assert (domain is None) or max(held) >= asked.units
            if domain is not None and later.held(domain, asked) >= asked.units:
                for each in [each for each in freed[:end] if not gains.needs(each, domain)]:
                    later.take(each)
                assert later.held(domain, asked) >= asked.units, "it fits without what it does not need"
                break


def test_segments_that_spread_take_one_block_each_and_consolidated_ones_a_domain_that_could_hold_them() -> (
    None
):
    free = FreeGpus(racks([[1] * 4] * 4, depth=4))  # blocks 0 and 2 are in one pod, 1 and 3 in the other
    apart, near = gang(4, 2)._replace(spread=True), gang(6, 2)._replace(consolidated=True)
    both = apart._replace(consolidated=True)
    blocks = [domain.index for domain in free.topology.level_domains[1]]
    free.take(tuple((machine, 1) for machine in (0, 1, 2, 4, 5, 6)))  # one machine left of blocks 0 and 1
    found = free.find(apart, 3)
    assert found is not None
    assert Counter(free.topology.ancestors[at][1] for at, _ in found) == {blocks[2]: 2, blocks[3]: 2}
    assert free.usable(apart) == 4
    assert free.lowest_level(both) is None, "two blocks of one pod must have two machines each"
    assert (free.highest(near), free.lowest_level(near), free.usable(near)) == (2, None, 4)
    free.give(((0, 1),))
    assert free.find(near, 3) == tuple((machine, 1) for machine in (0, 3, 8, 9, 10, 11))
    found = free.find(both, 3)
    assert found is not None
    assert Counter(free.topology.ancestors[at][1] for at, _ in found) == {blocks[0]: 2, blocks[2]: 2}
    assert accepted(both) == "in segments of 2 machines, each segment in another block, close together"


def test_a_segment_larger_than_any_block_is_refused_in_one_line() -> None:
    idle = IdleCluster(racks([[4] * 3, [4] * 2]))
    assert idle.best_level(gang(3, 3, 4)) == 1
    assert idle.most_gpus(gang(2, 2, 4)) == 16
    message = (
        "a gang of 16 GPUs, 4 on each machine and 4 machines in each segment, does not fit: "
        "cluster test has 20, 0 of them in such segments"
    )
    with pytest.raises(CapacityError, match=message):
        idle.best_level(gang(4, 4, 4))
    said = "4 on each machine and 1 machine in each segment, each segment in another block, does not fit"
    with pytest.raises(CapacityError, match=said):
        idle.best_level(gang(3, 1, 4)._replace(spread=True))
