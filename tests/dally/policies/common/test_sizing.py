"""Sizes made into decisions: what is kept, where growth goes, what moves, and when nothing does."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.cluster.topology import Allocation
from dally.jobs.job import Job, JobKind
from dally.plan import Decision, Migrate, Preempt, Resize, Start
from dally.policies.common.sizing import SizeTarget, plan_sizes, shrunk
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.state import ClusterState
from dally.testing.worlds import racks

AUTHOR = load_profiles("dally")
SLOW = "resnet50"
"""A model that the network slows."""


def elastic(name: str, gpus: int = 1, most: int = 8, duration_s: float = 1000.0, **more: object) -> Job:
    return Job(name, 0.0, gpus, duration_s, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=most, **more)  # type: ignore[arg-type]


def cluster(
    sizes: list[list[int]], running: Mapping[Job, Allocation], *waiting: Job, profiles: bool = False
) -> ClusterState:
    """Racks on which jobs run since 0 s, at their real speed, and others wait."""
    topology = racks(sizes)
    state = ClusterState(topology, CostModel(topology, AUTHOR if profiles else None))
    for job in (*running, *waiting):
        state.submit(job, 0.0)
    for job, place in running.items():
        state.start(job.job_id, place, 0.0, 0.0, 1 / state.costs.cost(job, place).slowdown)
    return state


def decide(state: ClusterState, now: float = 0.0, **gpus: int) -> dict[str, Decision]:
    """The decisions for sizes, by job."""
    free = [state.free.on(domain.index) for domain in state.topology.domains]
    decisions = plan_sizes(state, {name: SizeTarget(size, "as told") for name, size in gpus.items()}, now)
    assert [state.free.on(domain.index) for domain in state.topology.domains] == free, "on trial"
    return {each.job_id: each for each in decisions}


def place(decision: Decision) -> Allocation:
    assert isinstance(decision, Start | Migrate)
    return decision.allocation


def test_a_shrink_keeps_the_machines_with_most_gpus() -> None:
    assert shrunk(((0, 1), (1, 4), (2, 2)), 5) == ((1, 4), (2, 1))
    assert shrunk(((0, 2), (1, 2)), 2) == ((0, 2),)


def test_who_shrinks_gives_its_gpus_to_who_starts() -> None:
    state = cluster([[4, 4]], {elastic("a"): ((0, 2), (1, 4))}, elastic("b", 4))
    decisions = decide(state, a=4, b=4)
    assert decisions["a"] == Resize(
        "a",
        ((1, 4),),
        0,
        "4 GPUs at slowdown 0.25: 4 min 13 s to its end, 3 s of resize counted, "
        "instead of 2 min 47 s on 6; as told",
    )
    assert decisions["b"] == Start(
        "b", ((0, 4),), 0, "4 GPUs at slowdown 1: 16 min 40 s to its end, waited 0 s; as told"
    )


def test_who_shrank_for_nobody_keeps_its_gpus() -> None:
    state = cluster([[4]], {elastic("a"): ((0, 4),)}, elastic("b", gpu_type="b"))
    assert decide(state, a=2) == {}


def test_growth_stays_on_its_machine_then_goes_to_the_closest() -> None:
    state = cluster([[2, 4], [2, 8]], {elastic("a"): ((2, 1),)})
    assert place(decide(state, a=2)["a"]) == ((2, 2),)
    state = cluster([[2, 4], [2, 2]], {elastic("a"): ((2, 1),)})
    assert place(decide(state, a=4)["a"]) == ((2, 2), (3, 2))


def test_growth_that_is_not_worth_the_resize_does_not_happen() -> None:
    """Of 1000 s on one GPU 6.5 s are left: two GPUs would need 3.25 s and 3 s of resize; with 5.5 s, no."""
    state = cluster([[4]], {elastic("a"): ((0, 1),)})
    assert decide(state, now=994.5, a=2) == {}
    assert isinstance(decide(state, now=993.5, a=2)["a"], Resize)


def test_who_gets_no_machine_of_its_own_migrates_if_that_pays() -> None:
    """Its one machine is full, the other holds four; the restart costs 7 s."""
    state = cluster([[1, 4]], {elastic("a"): ((0, 1),), elastic("b"): ((1, 4),)})
    assert decide(state, a=4) == {}
    state = cluster([[1], [4]], {elastic("a", model=SLOW): ((0, 1),)}, profiles=True)
    moved = decide(state, a=4)["a"]
    assert type(moved) is Migrate
    assert moved.allocation == ((1, 4),)
    assert "7 s of restart counted" in moved.reason


def test_a_scattered_job_moves_closer_if_that_pays() -> None:
    state = cluster([[4], [4]], {elastic("a", 4, model=SLOW): ((0, 2), (1, 2))}, profiles=True)
    together = decide(state, a=4)["a"]
    assert type(together) is Resize
    assert place(together) == ((0, 4),)
    end_s = state.jobs["a"].end_s()
    assert decide(state, now=end_s - 1, a=4) == {}


def test_size_none_stops_a_job_for_who_starts_there() -> None:
    state = cluster([[4]], {elastic("a"): ((0, 4),)}, elastic("b", 2))
    decisions = decide(state, a=0, b=2)
    assert decisions["a"] == Preempt("a", ("b",), "as told")
    assert place(decisions["b"]) == ((0, 2),)


def test_a_start_takes_what_there_is_and_waits_below_its_least() -> None:
    rigid = Job("r", 0.0, 3, 10.0)
    state = cluster([[4]], {Job("x", 0.0, 2, 10.0): ((0, 2),)}, elastic("a", 4), rigid)
    assert place(decide(state, a=4)["a"]) == ((0, 2),)
    assert decide(state, r=3) == {}


def test_a_share_of_each_machine_is_kept() -> None:
    wide = elastic("a", 4, gpus_per_machine=2)
    state = cluster([[3, 3, 3]], {}, wide)
    assert place(decide(state, a=4)["a"]) == ((0, 2), (1, 2))
    state = cluster([[4, 4, 4]], {wide: ((0, 2),)})
    assert [gpus for _, gpus in place(decide(state, a=6)["a"])] == [2, 2, 2]
    state = cluster([[4, 4, 4]], {wide: ((0, 2), (1, 2), (2, 2))}, Job("r", 0.0, 4, 10.0))
    assert place(decide(state, a=4, r=4)["r"]) == ((2, 4),)


def test_jobs_grow_on_the_fastest_of_types_that_has_room() -> None:
    topology = racks([[2, 4]], ("k80", "v100"))
    state = ClusterState(topology, CostModel(topology, load_profiles("gavel")))
    state.submit(elastic("a", 2, model="resnet-50"), 0.0)
    assert place(decide(state, a=2)["a"]) == ((1, 2),)


@settings(max_examples=60, deadline=None)
@given(
    held=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    sizes=st.lists(st.integers(0, 8), min_size=3, max_size=3),
    waiting=st.lists(st.integers(1, 4), max_size=2),
)
def test_all_that_is_decided_fits_together(held: list[int], sizes: list[int], waiting: list[int]) -> None:
    """Three jobs run on machines of four GPUs each, in part; whatever sizes they and others are to have."""
    running = {elastic(f"r{n}"): ((n, gpus),) for n, gpus in enumerate(held) if gpus}
    newcomers = [elastic(f"w{n}", gpus) for n, gpus in enumerate(waiting)]
    state = cluster([[4, 4], [4]], running, *newcomers)
    wanted = {f"r{n}": size for n, size in enumerate(sizes) if held[n]}
    wanted |= {job.job_id: job.gpus for job in newcomers}
    decisions = decide(state, **wanted)
    for name, decision in decisions.items():
        if isinstance(decision, Preempt | Migrate):
            state.stop(name, 0.0, 0.0)
    for name, decision in decisions.items():
        if isinstance(decision, Start | Migrate):
            assert state.topology.level_of(decision.allocation) == decision.level
            state.start(name, decision.allocation, 0.0, 0.0, 1.0)


def test_reasons_are_those_of_the_policy() -> None:
    state = cluster([[2]], {}, elastic("a"))
    [decision] = plan_sizes(state, {"a": SizeTarget(2, "greatest gain")}, 60.0)
    assert decision.reason == "2 GPUs at slowdown 0.5: 8 min 20 s to its end, waited 1 min; greatest gain"


def test_a_trial_under_way_is_refused() -> None:
    state = cluster([[2]], {}, elastic("a"))
    with state.free.trial(), pytest.raises(AssertionError, match="trial"):
        plan_sizes(state, {"a": SizeTarget(2, "")}, 0.0)
