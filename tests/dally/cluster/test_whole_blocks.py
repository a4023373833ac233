"""Gangs that share their blocks with nobody: free GPUs, what comes free, and what is promised."""

from collections.abc import Sequence
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.cluster.free import FreeGpus, placed
from dally.cluster.idle_cluster import IdleCluster
from dally.cluster.topology import Allocation, WholeBlocks
from dally.jobs.job import Gang, Job
from dally.policies.common.backfill import reserve
from dally.policies.common.kept_machines import KeptMachines
from dally.policies.common.placements import Gains, find_cheapest_victims, find_victims
from dally.state import JobState
from dally.testing.worlds import racks

BLOCKS = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=4)
DEPTHS = st.sampled_from([2, 3, 3, 4])
MOVES = st.lists(
    st.tuples(st.integers(0, 11), st.sampled_from(["take", "whole", "close", "keep"])), max_size=6
)


def alone(gpus: int, share: int | None = None, segment: int | None = None) -> Gang:
    return Gang(gpus, None, share, None, segment, whole_blocks=True)


@st.composite
def gangs(draw: st.DrawFn) -> Gang:
    share = draw(st.sampled_from([None, 1, 2]))
    if share is None:
        return alone(draw(st.integers(1, 9)))
    segment = draw(st.sampled_from([None, 2]))
    return alone(share * (segment or 1) * draw(st.integers(1, 4)), share, segment)


class UsedCluster:
    """A cluster in some use: what is held there, by whom, and in which blocks somebody is."""

    def __init__(self, sizes: list[list[int]], depth: int, moves: Sequence[tuple[int, str]]) -> None:
        self.free = FreeGpus(racks(sizes, depth=depth))
        self.held: list[Allocation] = []
        self.busy: set[int] = set()
        closed = dict[int, int]()
        machines = self.free.topology.machines
        for at, kind in moves:
            machine = at % len(machines)
            block, gpus = self.free.block(machine), self.free.on(machine)
            if kind == "close" and gpus and machine not in closed:
                closed[machine] = closed.get(machine, 0) + gpus
                self.free.withhold(machine, machines[machine].gpus - self.free.capacity[machine] + gpus, True)
            elif kind == "keep" and gpus and machine not in closed:
                self.free.withhold(machine, 1, False)
                closed[machine] = 1
                self.busy.add(block)
            elif kind in ("take", "whole") and gpus and (kind == "take" or block not in self.busy):
                taken = ((machine, 1),)
                self.held.append(WholeBlocks(taken) if kind == "whole" else taken)
                self.free.take(self.held[-1])
                self.busy.add(block)

    def unused(self) -> dict[int, int]:
        """GPUs of machines in whose blocks nobody is."""
        machines = range(len(self.free.topology.machines))
        return {each: self.free.on(each) for each in machines if self.free.block(each) not in self.busy}


def most(cluster: UsedCluster, gang: Gang, inside: int) -> int:
    """What a domain could give a gang, in its units, by a plain count."""
    blocks = dict[int, int]()
    for machine, gpus in cluster.unused().items():
        if inside in cluster.free.topology.ancestors[machine]:
            block = cluster.free.block(machine)
            blocks[block] = blocks.get(block, 0) + gang.held(gpus)
    return sum(count - count % (gang.segment or 1) for count in blocks.values())


@settings(deadline=None, max_examples=150)
@given(BLOCKS, DEPTHS, MOVES, gangs())
def test_only_blocks_that_nobody_uses_have_something_for_them(
    sizes: list[list[int]], depth: int, moves: list[tuple[int, str]], gang: Gang
) -> None:
    fresh = UsedCluster(sizes, depth, [])
    fresh.free.usable(gang)  # an index that is there before anybody takes anything is the same
    cluster = UsedCluster(sizes, depth, moves)
    free, topology = cluster.free, cluster.free.topology
    root = topology.root.index
    assert free.held(root, gang) == most(cluster, gang, root)
    level = free.lowest_level(gang)
    domains = [each for each in topology.domains if each.level >= int(gang.segment is not None)]
    enough = [each.level for each in domains if most(cluster, gang, each.index) >= gang.units]
    assert level == min(enough, default=None)
    if level is None:
        return
    found = free.find(gang, level)
    assert isinstance(found, WholeBlocks)
    assert sum(gpus for _, gpus in found) == gang.gpus
    assert {free.block(machine) for machine, _ in found}.isdisjoint(cluster.busy)
    before = [free.on(domain.index) for domain in topology.domains]
    with free.trial():
        free.take(found)
        assert not any(free.on(machine) for machine in topology.beside(machine for machine, _ in found))
        assert not free.holds(found)
        free.give(found)
        assert free.holds(found)
        free.take(found)
    assert [free.on(domain.index) for domain in topology.domains] == before
    assert free.find(gang, level) == found


@settings(deadline=None, max_examples=150)
@given(BLOCKS, DEPTHS, MOVES, gangs(), st.integers(0, 3))
def test_what_comes_free_is_what_a_domain_has_once_it_is_given_back(
    sizes: list[list[int]], depth: int, moves: list[tuple[int, str]], gang: Gang, above: int
) -> None:
    for asked in (gang, gang._replace(whole_blocks=False)):  # others gain whole blocks, too
        cluster = UsedCluster(sizes, depth, moves)
        free, topology = cluster.free, cluster.free.topology
        level = max(min(above, topology.widest), int(asked.segment is not None))
        gains = Gains(free, asked, level)
        for allocation in cluster.held:
            gains.add(allocation)
        domains = topology.level_domains[level]
        told = {domain.index: gains.spare(domain.index) for domain in domains}
        for allocation in cluster.held:
            free.give(allocation)
        assert told == {each: free.held(each, asked) - asked.units for each in told}


def running(name: str, place: Allocation, **fields: bool) -> JobState:
    job = Job(name, 0.0, sum(gpus for _, gpus in place), 100.0, **fields)  # type: ignore[arg-type]
    state = JobState(job, int(name), 0.0)
    state.allocation = placed(job.gang, place)
    return state


def test_all_who_are_in_a_block_must_leave_it_for_one_gpu_even_where_others_are_free() -> None:
    free = FreeGpus(racks([[4, 4], [4, 4]]))
    jobs = [
        running("0", ((0, 1),)),
        running("1", ((1, 1),)),
        running("2", ((2, 4),)),
        running("3", ((3, 1),)),
    ]
    for job in jobs:
        free.take(job.allocation)
    wants = Job("9", 0.0, 1, 100.0, whole_blocks=True)
    assert free.usable(wants.gang) == 0
    for level in (0, 1, 2):
        assert [each.job_id for each in find_victims(free, jobs, wants, level)] == ["0", "1"]
    assert [each.job_id for each in find_victims(free, [*jobs[2:], jobs[0]], wants, 1)] == ["2", "3"]
    assert find_victims(free, [jobs[0], jobs[2]], wants, 1) == []


def test_the_block_whose_jobs_cost_least_is_cleared() -> None:
    free = FreeGpus(racks([[4, 4], [4, 4], [4, 4]]))
    jobs = [running(f"{machine}", ((machine, 2),)) for machine in range(6)]
    for job in jobs:
        free.take(job.allocation)
    costs = dict(zip("012345", (3.0, 3.0, 1.0, 4.0, 9.0, 1.0), strict=True))
    shares = Job("9", 0.0, 8, 9.0, gpus_per_machine=4, whole_blocks=True)
    for wants in (Job("9", 0.0, 3, 9.0, whole_blocks=True), shares):
        found = find_cheapest_victims(free, jobs, wants, 1, lambda job: costs[job.job_id])
        assert [each.job_id for each in found] == ["2", "3"]


def test_one_that_leaves_gives_all_of_its_blocks_to_others() -> None:
    free = FreeGpus(racks([[4, 4], [4, 4]]))
    jobs = [running("0", ((0, 1),), whole_blocks=True), running("1", ((2, 4),)), running("2", ((3, 4),))]
    for job in jobs:
        free.take(job.allocation)
    assert free.total() == 0
    assert [each.job_id for each in find_victims(free, jobs[::-1], Job("9", 0.0, 5, 9.0), 1)] == ["2", "1"]
    assert [each.job_id for each in find_victims(free, jobs, Job("9", 0.0, 8, 9.0), 1)] == ["0"]


def test_a_promise_of_whole_blocks_is_for_when_the_last_one_leaves_and_nobody_starts_there_for_longer() -> (
    None
):
    free = FreeGpus(racks([[4, 4], [4, 4]]))
    ends = ((10.0, ((0, 1),)), (20.0, ((1, 1),)), (90.0, ((2, 1),)))
    for _, allocation in ends:
        free.take(allocation)
    promised = reserve(free, Job("w", 0.0, 1, 100.0, whole_blocks=True), 2, ends)
    assert (promised.shadow_s, free.topology.domains[promised.domain].name) == (20.0, "core")
    promised = reserve(free, Job("w", 0.0, 1, 100.0, whole_blocks=True), 0, ends)
    assert (promised.shadow_s, free.topology.domains[promised.domain].name) == (20.0, "r0")
    assert promised.after(free, ((1, 1),), 30.0) is None
    assert promised.after(free, ((1, 1),), 20.0) == promised
    assert promised.after(free, ((3, 1),), 30.0) == promised
    other = reserve(free, Job("o", 0.0, 7, 100.0), 1, ends)
    assert (other.shadow_s, other.extra) == (10.0, 0)
    assert other.after(free, WholeBlocks(((0, 1),)), 30.0) is None, "it takes more than the one"


def test_without_somebody_to_wait_for_there_is_no_promise() -> None:
    free = FreeGpus(racks([[4, 4]]))
    free.withhold(0, 1, closed=False)
    free.take(((1, 2),))
    promised = reserve(free, Job("w", 0.0, 1, 100.0, whole_blocks=True), 1, [(10.0, ((1, 2),))])
    assert promised.shadow_s == inf, "others have a GPU there, whoever of ours leaves"


def test_closed_machines_do_not_count_and_those_that_come_back_belong_to_whoever_has_the_block() -> None:
    topology = racks([[4, 4, 4], [4, 4, 4]])
    assert IdleCluster(topology, closed=[0, 3]).lowest_level(alone(8, 4)) == 1
    assert IdleCluster(topology, closed=[0, 3]).lowest_level(alone(12, 4)) == 2
    free = FreeGpus(topology)
    free.withhold(0, 4, closed=True)
    place = WholeBlocks(((1, 4), (2, 4)))
    assert free.holds(place)
    free.take(place)
    free.withhold(0, 0, closed=False)
    assert (free.on(0), free.total()) == (0, 12)
    free.withhold(2, 4, closed=True)
    free.give(place)
    assert [free.on(machine) for machine in range(3)] == [4, 4, 0]
    free.withhold(2, 0, closed=False)
    assert free.usable(alone(1)) == 24


def test_what_is_kept_for_one_that_accepts_some_machines_is_all_of_their_blocks() -> None:
    free = FreeGpus(racks([[4, 4], [4, 4]]))
    with free.trial():
        kept = KeptMachines(free)
        names = frozenset({"r0m0"})
        kept.keep(JobState(Job("w", 0.0, 1, 9.0, machines=names, whole_blocks=True), 0, 0.0))
        assert [free.on(machine) for machine in range(4)] == [0, 0, 4, 4]
        kept.give_back()
    assert free.total() == 16


def test_nobody_takes_a_block_in_use_for_himself() -> None:
    free = FreeGpus(racks([[4, 4]]))
    free.take(((0, 1),))
    with pytest.raises(AssertionError, match="no 4 free GPUs"):
        free.take(WholeBlocks(((1, 4),)))
