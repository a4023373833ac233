"""The search for allocations, on problems small enough to solve by hand, and what must always hold of it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.jobs.job import Job, JobKind
from dally.policies.pollux.allocation_problem import ProblemBuilder, ServiceHad
from dally.policies.pollux.allocation_search import Allocations, AllocationSearch, States
from dally.policies.pollux.allocation_speeds import APART, CLOSE, PlacedSpeeds
from dally.policies.pollux.knobs import PolluxKnobs
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.profiles.goodput import Batching
from dally.state import ClusterState
from dally.testing.worlds import racks

RULES = PolluxKnobs()
POLLUX = load_profiles("pollux")


def problem(
    held: list[list[int]],
    capacity: list[int],
    most: int = 4,
    least: list[int] | None = None,
    share: list[int] | None = None,
    apart: float = 0.5,
) -> Allocations:
    """Jobs that are k times as fast on k GPUs of one machine, and `apart` times that on more than needed."""
    jobs, sizes = len(held), np.arange(max(capacity) * len(capacity) + 1)
    table = np.stack([sizes, sizes * apart]).astype(float)
    wide = np.maximum(1, np.ceil(sizes / max(capacity))).astype(np.int64)
    return Allocations(
        held=np.array(held, dtype=np.int16),
        capacity=np.array(capacity),
        usable=np.ones((jobs, len(capacity)), dtype=bool),
        least=np.array(least or [1] * jobs),
        most=np.maximum(most, np.array(least or [1] * jobs)),
        share=np.array(share or [0] * jobs),
        segment=np.ones(jobs, dtype=np.int64),
        spread=np.zeros(jobs, dtype=bool),
        in_segments=np.zeros(jobs, dtype=bool),
        whole_blocks=np.zeros(jobs, dtype=bool),
        block=np.zeros(len(capacity), dtype=np.int64),
        area=np.zeros((jobs, len(capacity)), dtype=np.int64),
        speedups=np.tile(table, (jobs, 1, 1, 1)),
        fewest=wide[None],
        kinds=[np.arange(len(capacity))],
        factor=np.ones(jobs),
        taken=np.zeros(len(capacity), dtype=bool),
        avoid=True,
        power=-1.0,
    )


def search(given: Allocations, generations: int = 60, seed: int = 0) -> States:
    rng = np.random.default_rng(seed)
    return AllocationSearch(given, rng, 30).run(given.held[None], generations, generations, kept=30).states


def repaired(given: Allocations, state: list[list[int]]) -> list[list[int]]:
    owners = given.owners(np.array([state], dtype=np.int16))
    rows: list[list[int]] = given.states(given.repaired(owners, given.capacity[None], given.taken[None]))[
        0
    ].tolist()
    return rows


def values(given: Allocations, states: States) -> list[list[float]]:
    found: list[list[float]] = given.values(given.owners(states)).tolist()
    return found


def test_speed_ups_count_gpus_and_machines() -> None:
    given = problem([[0, 0]], [4, 4])
    states = np.array([[[2, 0]], [[1, 1]], [[4, 2]], [[0, 0]]], dtype=np.int16)
    assert values(given, states) == [[2], [1], [6], [0]]


def test_a_changed_row_counts_for_less() -> None:
    given = replace(problem([[2, 0], [0, 2]], [4, 4]), factor=np.array([0.5, 0.25]))
    states = np.array([[[2, 0], [0, 4]]], dtype=np.int16)
    assert values(given, states) == [[2, 1]]


def test_the_slowest_type_of_a_row_counts() -> None:
    one = problem([[0, 0]], [4, 4])
    speedups = np.concatenate([one.speedups, 0.25 * one.speedups], axis=1)
    kinds = [np.array([0]), np.array([1])]
    given = replace(one, speedups=speedups, kinds=kinds, fewest=np.tile(one.fewest * 2, (2, 1)))
    states = np.array([[[4, 0]], [[0, 4]], [[2, 2]]], dtype=np.int16)
    assert values(given, states) == [[4], [1], [1]]


@pytest.mark.parametrize(("power", "mean"), [(-1.0, 1.6), (0.0, 2.0), (1.0, 2.5)])
def test_fitness_is_a_power_mean(power: float, mean: float) -> None:
    given = replace(problem([[0], [0]], [8]), power=power)
    assert given.fitness(np.array([[1.0, 4.0]]))[0] == pytest.approx(mean, rel=2e-3)


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=4, max_size=4))
def test_the_jobs_of_gpus_say_the_same_as_rows(state: list[list[int]]) -> None:
    given = problem([[0, 0, 0]] * 4, [4, 4, 4])
    states = np.array([state, given.held], dtype=np.int16)
    assert given.states(given.owners(states)).tolist() == states.tolist()


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=4, max_size=4))
def test_only_rows_that_differ_from_what_is_held_count_for_less(state: list[list[int]]) -> None:
    held = [[2, 0, 1], [0, 3, 0], [1, 1, 1], [0, 0, 0]]
    given = replace(problem(held, [12, 12, 12], apart=1.0), factor=np.full(4, 0.5))
    kept = [1.0 if row == before else 0.5 for row, before in zip(state, held, strict=True)]
    assert values(given, np.array([state], dtype=np.int16)) == [
        [factor * sum(row) for factor, row in zip(kept, state, strict=True)]
    ]


def test_repair_keeps_what_fits_and_cuts_later_jobs_first() -> None:
    given = problem([[0, 0]] * 3, [4, 4])
    assert repaired(given, [[3, 0], [3, 0], [0, 2]]) == [[3, 0], [1, 0], [0, 2]]


def test_repair_leaves_one_job_over_several_machines_on_each() -> None:
    given = problem([[0, 0, 0]] * 2, [4, 4, 4])
    assert repaired(given, [[1, 1, 0], [0, 1, 1]]) == [[1, 1, 0], [0, 0, 1]]
    assert repaired(replace(given, avoid=False), [[1, 1, 0], [0, 1, 1]]) == [[1, 1, 0], [0, 1, 1]]
    busy = replace(given, taken=np.array([True, False, False]))
    assert repaired(busy, [[1, 1, 0], [1, 0, 0]]) == [[0, 1, 0], [1, 0, 0]]


def test_repair_gives_a_gang_all_or_nothing() -> None:
    given = problem([[0, 0]] * 2, [4, 4], least=[3, 3])
    assert repaired(given, [[3, 0], [3, 0]]) == [[3, 0], [0, 0]]
    shared = problem([[0, 0]] * 2, [4, 4], least=[4, 1], share=[2, 0])
    assert repaired(shared, [[2, 2], [1, 0]]) == [[2, 2], [1, 0]]
    assert repaired(shared, [[3, 1], [1, 0]]) == [[0, 0], [1, 0]]


def in_blocks(given: Allocations, *whole_blocks: bool) -> Allocations:
    """The first two machines in one block, the others in another; some jobs share theirs with nobody."""
    block = np.array([0, 0, *[1] * (len(given.capacity) - 2)])
    return replace(given, block=block, whole_blocks=np.array(whole_blocks))


def test_repair_leaves_a_block_to_the_first_of_those_who_cannot_share_it() -> None:
    given = in_blocks(problem([[0, 0, 0]] * 3, [2, 2, 2]), False, True, False)
    assert repaired(given, [[0, 0, 1], [1, 0, 0], [0, 1, 0]]) == [[0, 0, 1], [1, 0, 0], [0, 0, 0]]
    assert repaired(given, [[1, 0, 0], [0, 1, 0], [0, 1, 1]]) == [[1, 0, 0], [0, 0, 0], [0, 1, 1]]
    gangs = in_blocks(problem([[0, 0, 0]] * 2, [2, 2, 2], least=[1, 2]), True, False)
    assert repaired(gangs, [[1, 0, 0], [0, 1, 1]]) == [[1, 0, 0], [0, 0, 0]], (
        "or nothing, if it is too little"
    )


def test_a_chosen_job_stays_whoever_is_in_its_block() -> None:
    given = in_blocks(problem([[0, 0, 0]] * 3, [2, 2, 2]), False, True, False)
    state = [[1, 0, 0], [1, 0, 0], [0, 1, 1]]

    def kept(chosen: int) -> list[list[int]]:
        owners = given.set_apart(given.owners(np.array([state], dtype=np.int16)), np.array([chosen]))
        rows: list[list[int]] = given.states(owners)[0].tolist()
        return rows

    assert kept(1) == [[0, 0, 0], [1, 0, 0], [0, 0, 1]]
    assert kept(2) == [[1, 0, 0], [0, 0, 0], [0, 1, 1]]


def test_what_is_filled_up_shares_no_block_that_it_must_not() -> None:
    given = in_blocks(problem([[0, 0, 0]] * 3, [2, 2, 2]), False, True, False)
    state = np.array([[1, 0, 0], [0, 0, 0], [0, 0, 0]], dtype=np.int16)
    assert given.filled(state).tolist() == [[1, 0, 0], [0, 0, 1], [1, 0, 0]]


def test_the_least_sizes_fill_what_is_free_in_order() -> None:
    given = problem([[2, 0], [0, 0], [0, 0], [0, 0]], [4, 4], least=[1, 4, 1, 3])
    assert given.filled(given.held).tolist() == [[2, 0], [0, 4], [1, 0], [0, 0]]


def test_a_lone_job_is_given_all_that_it_may_have_on_one_machine() -> None:
    best = search(problem([[0, 0, 0]], [4, 4, 4]))[0]
    assert sorted(best[0].tolist()) == [0, 0, 4]


def test_the_harmonic_mean_shares_evenly() -> None:
    """Of 1/a + 1/b with a + b <= 4 the least is at 2 and 2."""
    assert search(problem([[4], [0]], [4]))[0].tolist() == [[2], [2]]


def test_jobs_are_put_together_on_machines_of_their_own() -> None:
    best = search(problem([[1, 1], [1, 1]], [4, 4]))[0]
    assert sorted(best.tolist()) == [[0, 4], [4, 0]]


def test_a_search_stops_where_nothing_can_be_better() -> None:
    given = problem([[4, 0], [0, 4]], [4, 4])
    found = AllocationSearch(given, np.random.default_rng(0), 10).run(given.held[None], 50, 50)
    assert (found.generations, found.states[0].tolist()) == (0, [[4, 0], [0, 4]])


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_all_that_is_found_fits_and_is_no_worse_than_what_was(data: st.DataObject) -> None:
    capacity = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    jobs = data.draw(st.integers(1, 6))
    share = data.draw(st.lists(st.sampled_from([0, 0, 1, 2]), min_size=jobs, max_size=jobs))
    least = [max(1, each) * data.draw(st.integers(1, 3)) for each in share]
    given = problem([[0] * len(capacity)] * jobs, capacity, most=8, least=least, share=share)
    given = replace(given, most=np.where(np.array(share) == 2, given.least, given.most))
    states = search(given, 10, data.draw(st.integers(0, 9)))
    assert (states.sum(axis=1) <= given.capacity).all()
    gpus = states.sum(axis=2)
    assert ((gpus == 0) | ((gpus >= given.least) & (gpus <= given.most))).all()
    wide = (states > 0) & (np.count_nonzero(states, axis=2) > 1)[:, :, None]
    assert (wide.sum(axis=1) <= 1).all()
    for row, each in enumerate(share):
        assert each == 0 or set(np.unique(states[:, row])) <= {0, each}
    before = given.fitness(given.values(given.owners(given.held[None])))[0]
    assert given.fitness(given.values(given.owners(states[:1])))[0] >= before


def test_the_same_seed_finds_the_same() -> None:
    given = problem([[1, 1], [1, 1], [0, 0]], [4, 4])
    assert (search(given, 5, 3) == search(given, 5, 3)).all()


def elastic(name: str, gpus: int = 1, most: int = 16) -> Job:
    return Job(name, 0.0, gpus, 1000.0, model="cifar10", kind=JobKind.ELASTIC, min_gpus=1, max_gpus=most)


def cluster() -> ClusterState:
    topology = racks([[4] * 4], ("t4",))
    return ClusterState(topology, CostModel(topology, POLLUX, batching=Batching.GOODPUT))


def test_tables_hold_the_costs_of_real_placements() -> None:
    state = cluster()
    job = state.submit(elastic("a"), 0.0)
    table = PlacedSpeeds(state.costs).table(job, 0.0, 8)[0]
    costs = state.costs
    assert table[CLOSE, 4] == 1 / costs.cost(job.job, ((0, 4),)).slowdown
    assert table[APART, 4] == 1 / costs.cost(job.job, ((0, 2), (1, 2))).slowdown
    assert table[CLOSE, 6] == 1 / costs.cost(job.job, ((0, 4), (1, 2))).slowdown
    assert table[APART, 6] == 1 / costs.cost(job.job, ((0, 1), (1, 1), (2, 2), (3, 2))).slowdown
    assert table[CLOSE, 1] == table[APART, 1] == 1 / costs.cost(job.job, ((0, 1),)).slowdown
    assert PlacedSpeeds(state.costs).fewest(9)[0].tolist() == [1, 1, 1, 1, 1, 2, 2, 2, 2, 3]


def test_a_job_may_have_twice_what_it_has_had() -> None:
    state = cluster()
    jobs = [state.submit(elastic(name, most=6), 0.0) for name in ("new", "old", "older")]
    pasts = {"old": ServiceHad(2, 1), "older": ServiceHad(4, 1)}
    found = ProblemBuilder(state, RULES).build(state, jobs, pasts, 100.0)
    assert found.allocations.most.tolist() == [1, 4, 6]
    assert list(found.fair) == [6, 6, 6]
    unbound = ProblemBuilder(state, replace(RULES, growth=0.0)).build(state, jobs, pasts, 100.0)
    assert unbound.allocations.most.tolist() == [6, 6, 6]


def test_a_restart_weighs_by_age_and_by_earlier_ones() -> None:
    """After 270 s and two restarts before: (270 - 60) / (270 + 30)."""
    state = cluster()
    jobs = [state.submit(elastic(name), 0.0) for name in ("new", "first", "third")]
    pasts = {"first": ServiceHad(1, 1), "third": ServiceHad(1, 3)}
    found = ProblemBuilder(state, RULES).build(state, jobs, pasts, 270.0)
    assert found.allocations.factor.tolist() == pytest.approx([1, 0.9, 0.7])


def test_states_survive_as_plain_data_though_jobs_and_machines_go() -> None:
    state = cluster()
    jobs = [state.submit(elastic(name), 0.0) for name in ("a", "b")]
    builder = ProblemBuilder(state, RULES)
    before = builder.build(state, jobs, {}, 0.0)
    plain = before.plain(np.array([[[1, 0, 0, 2], [0, 3, 0, 0]]], dtype=np.int16))
    assert plain == {"jobs": ["a", "b"], "states": [[[0, 0, 1], [0, 3, 2], [1, 1, 3]]]}
    state.withhold(0, 4)
    after = builder.build(state, jobs[:1], {}, 0.0)
    assert after.states(plain).tolist() == [[[0, 0, 2]]]
