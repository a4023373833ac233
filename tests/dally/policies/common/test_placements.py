"""Whom to stop for a gang, and when a domain will hold one."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from dally.cluster.free import FreeGpus
from dally.cluster.topology import Allocation
from dally.jobs.job import Job
from dally.policies.common.backfill import reserve
from dally.policies.common.placements import closest, find_cheapest_victims, find_victims, might_fit_closer
from dally.profiles.costs import CostModel
from dally.state import JobState
from dally.testing.worlds import racks


def running(free: FreeGpus, *allocations: Allocation) -> list[JobState]:
    jobs = []
    for order, allocation in enumerate(allocations):
        free.take(allocation)
        gpus = sum(count for _, count in allocation)
        jobs.append(JobState(Job(f"j{order}", 0, gpus, 100), order, 0.0, allocation=allocation))
    return jobs


def test_victims_are_taken_in_order_until_one_domain_holds_the_gang() -> None:
    free = FreeGpus(racks([[4, 4]]))
    jobs = running(free, ((0, 4),), ((1, 2),), ((1, 1),))
    assert find_victims(free, jobs[1:], Job("g", 0, 4, 1), 0) == jobs[1:]
    assert find_victims(free, jobs, Job("g", 0, 4, 1), 0) == jobs[:1]


def test_victims_that_turn_out_not_to_be_needed_are_spared() -> None:
    free = FreeGpus(racks([[8]]))
    jobs = running(free, ((0, 1),), ((0, 2),), ((0, 5),))
    assert find_victims(free, jobs, Job("g", 0, 5, 1), 0) == jobs[2:]
    assert find_victims(free, jobs, Job("g", 0, 7, 1), 0) == jobs[1:]


def test_nobody_is_stopped_in_vain() -> None:
    free = FreeGpus(racks([[4, 4]]))
    jobs = running(free, ((0, 3),), ((1, 3),))
    assert find_victims(free, jobs, Job("g", 0, 5, 1), 0) == []
    assert find_victims(free, jobs, Job("g", 0, 6, 1), 1) == jobs


def test_only_gpus_of_the_right_type_count() -> None:
    free = FreeGpus(racks([[4, 4]], ("a", "b")))
    jobs = running(free, ((0, 4),), ((1, 4),))
    assert find_victims(free, jobs, Job("g", 0, 4, 1, gpu_type="b"), 1) == jobs[1:]
    promise = reserve(free, Job("g", 0, 3, 1, gpu_type="b"), 1, [(10.0, ((0, 4),)), (20.0, ((1, 4),))])
    assert (promise.shadow_s, promise.extra) == (20.0, 1)


def test_a_reservation_that_no_release_fulfils_is_for_never() -> None:
    free = FreeGpus(racks([[4]]))
    free.take(((0, 2),))
    promise = reserve(free, Job("g", 0, 4, 1), 0, [(10.0, ((0, 1),))])
    assert (promise.shadow_s, promise.extra) == (float("inf"), 0)


def test_gpus_freed_at_the_shadow_time_itself_are_left_over() -> None:
    free = FreeGpus(racks([[4]]))
    free.take(((0, 4),))
    ends: list[tuple[float, Allocation]] = [(10.0, ((0, 2),)), (10.0, ((0, 1),)), (11.0, ((0, 1),))]
    promise = reserve(free, Job("g", 0, 2, 1), 0, ends)
    assert (promise.shadow_s, promise.extra) == (10.0, 1)


PER_MACHINE = st.lists(st.integers(0, 4), min_size=6, max_size=6)


@given(own=PER_MACHINE, others=PER_MACHINE)
def test_who_could_be_closer_is_told_so(own: list[int], others: list[int]) -> None:
    """Exactly at lower levels; never wrongly told no where fewer machines would hold it."""
    topology = racks([[4, 4, 4], [4, 4, 4]])
    assume(sum(own))
    free = FreeGpus(topology)
    free.take(tuple((machine, min(gpus, 4 - own[machine])) for machine, gpus in enumerate(others)))
    job = Job("j", 0.0, sum(own), 100.0)
    allocation = tuple((machine, gpus) for machine, gpus in enumerate(own) if gpus)
    level = topology.level_of(allocation)
    there = JobState(job, 0, 0.0, allocation=allocation, level=level)
    free.take(allocation)
    best = CostModel(topology).best_level(job.gang)
    said = might_fit_closer(free, there, best)
    free.give(allocation)
    placement = closest(free, job, best, topology.top)
    assert placement is not None
    if level > best:
        assert said == (placement.level < level)
    elif len(placement.allocation) < len(allocation):
        assert said


def cost_of(costs: list[int], victims: list[JobState]) -> int:
    return sum(costs[victim.order] for victim in victims)


def test_the_block_that_costs_least_is_cleared_not_the_first_that_can_be() -> None:
    free = FreeGpus(racks([[4, 4], [4, 4], [4, 4]]))
    jobs = running(free, ((0, 4),), ((1, 4),), ((2, 4), (3, 4)), ((4, 4),), ((5, 4),))
    costs = [3, 3, 4, 1, 9]
    wanted = Job("g", 0, 8, 1, gpus_per_machine=4, segment=2)
    assert find_victims(free, jobs, wanted, 1) == jobs[:2]
    found = find_cheapest_victims(free, jobs, wanted, 1, lambda victim: costs[victim.order])
    assert found == jobs[2:3]


def test_segments_in_several_blocks_are_the_cheapest_ones() -> None:
    free = FreeGpus(racks([[4, 4], [4, 4], [4, 4]]))
    jobs = running(free, *(((machine, 4),) for machine in range(6)))
    costs = [9, 1, 2, 2, 3, 3]
    wanted = Job("g", 0, 16, 1, gpus_per_machine=4, segment=2)
    found = find_cheapest_victims(free, jobs, wanted, 2, lambda victim: costs[victim.order])
    assert {victim.order for victim in found} == {2, 3, 4, 5}


def test_nobody_is_stopped_for_a_domain_that_is_first_where_fewer_would_do_in_another() -> None:
    free = FreeGpus(racks([[4, 4], [4, 4]]))
    jobs = running(free, ((0, 4),), ((1, 4), (2, 4), (3, 4)))
    assert find_victims(free, jobs, Job("g", 0, 8, 1), 1) == jobs[1:]


@st.composite
def full_blocks(draw: st.DrawFn) -> tuple[FreeGpus, list[JobState], list[int], Job]:
    """Three blocks of four machines, jobs on them of which some lie in several, and one in segments."""
    free = FreeGpus(racks([[2] * 4] * 3, depth=draw(st.sampled_from([3, 4]))))
    allocations: list[Allocation] = []
    for machines in draw(st.lists(st.sets(st.integers(0, 11), min_size=1, max_size=6), max_size=10)):
        share = draw(st.integers(1, 2))
        able = [machine for machine in sorted(machines) if free.on(machine) >= share]
        if able:
            allocations.append(tuple((machine, share) for machine in able))
            free.take(allocations[-1])
    for allocation in allocations:
        free.give(allocation)
    jobs = running(free, *allocations)
    segment = draw(st.integers(2, 4))
    share = draw(st.integers(1, 2))
    gpus = share * segment * draw(st.integers(1, 3))
    costs = draw(st.lists(st.integers(1, 100), min_size=len(jobs), max_size=len(jobs)))
    spread, close = draw(st.booleans()), draw(st.booleans())
    wanted = Job("g", 0, gpus, 1, gpus_per_machine=share, segment=segment)
    return free, jobs, costs, replace(wanted, spread_segments=spread, consolidate_segments=close)


@given(full=full_blocks(), level=st.integers(1, 3))
def test_blocks_are_cleared_whenever_they_can_be_for_no_more_than_in_turn_and_nobody_in_vain(
    full: tuple[FreeGpus, list[JobState], list[int], Job], level: int
) -> None:
    free, jobs, costs, wanted = full
    level = min(level, free.topology.top)
    assume(free.lowest_level(wanted.gang, level) != level)
    in_turn = find_victims(free, jobs, wanted, level)
    found = find_cheapest_victims(free, jobs, wanted, level, lambda victim: costs[victim.order])
    assert bool(found) == bool(in_turn)
    assert cost_of(costs, found) <= cost_of(costs, in_turn)
    with free.trial():
        for victim in found:
            free.give(victim.allocation)
        if found:
            assert closest(free, wanted, 1, level) is not None
            for victim in found:
                free.take(victim.allocation)
                assert closest(free, wanted, 1, level) is None, "it is stopped in vain"
                free.give(victim.allocation)


@given(full=full_blocks(), level=st.integers(1, 2), in_segments=st.booleans())
def test_victims_are_of_the_first_jobs_that_make_room_together(
    full: tuple[FreeGpus, list[JobState], list[int], Job], level: int, in_segments: bool
) -> None:
    free, jobs, _, wanted = full
    if not in_segments:
        wanted = Job("g", 0, wanted.gpus, 1)
    assume(free.lowest_level(wanted.gang, level) != level)
    found = find_victims(free, jobs, wanted, level)
    enough: list[JobState] = []
    with free.trial():
        for victim in jobs:
            free.give(victim.allocation)
            enough.append(victim)
            if free.lowest_level(wanted.gang, level) == level:
                break
        else:
            enough = []
    assert bool(found) == bool(enough)
    if found:
        assert found[-1] is enough[-1]
        assert all(any(victim is other for other in enough) for victim in found)
