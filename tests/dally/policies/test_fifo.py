"""First in, first out, with and without backfill, on cases small enough to compute by hand."""

import io
from math import inf

import pytest
from hypothesis import given, settings

from dally.jobs.job import Job
from dally.policies.common.in_order import InOrder
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.runs.records import EventLog
from dally.state import ClusterState, JobState
from dally.testing.worlds import CheckedScheduler, World, racks, simulate, worlds
from simulator.engine import Engine
from tests.dally.policies.events import job, levels, times, waits

HEAD = [job("first", 3, 100), job("head", 4, 50)]


def test_nobody_passes_the_first() -> None:
    result = simulate("fifo", racks([[4]]), [*HEAD, job("small", 1, 10)])
    assert [times(result, name) for name in ("first", "head", "small")] == [[0.0], [100.0], [150.0]]


@pytest.mark.parametrize(("duration_s", "start_s"), [(100.0, 0.0), (100.5, 150.0)])
def test_backfill_takes_jobs_that_end_by_the_time_the_head_can_start(
    duration_s: float, start_s: float
) -> None:
    jobs = [*HEAD, job("small", 1, duration_s)]
    result = simulate("fifo:backfill=easy", racks([[4]]), jobs)
    assert times(result, "small") == [start_s]
    assert times(result, "head") == [100.0]


def test_backfill_gives_away_just_what_the_head_leaves() -> None:
    jobs = [job("first", 6, 100), job("head", 7, 50), job("long0", 1, 1000), job("long1", 1, 1000)]
    result = simulate("fifo:backfill=easy", racks([[4, 4]]), jobs)
    assert [times(result, name) for name in ("head", "long0", "long1")] == [[100.0], [0.0], [150.0]]


def test_gpus_freed_at_the_same_moment_count_as_left_over() -> None:
    jobs = [job("a", 2, 100), job("b", 1, 100), job("head", 3, 50), job("long", 1, 1000)]
    result = simulate("fifo:backfill=easy", racks([[4]]), jobs)
    assert times(result, "long") == [0.0]


@pytest.mark.parametrize(("depth", "start_s"), [(1, 160.0), (2, 0.0)])
def test_backfill_looks_no_deeper_than_told(
    depth: int, start_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dally.policies.common.in_order.DEPTH", depth)
    jobs = [*HEAD, job("wide", 4, 10), job("small", 1, 10)]
    result = simulate("fifo:backfill=easy", racks([[4]]), jobs)
    assert times(result, "small") == [start_s]


@pytest.mark.parametrize(
    ("placement", "start_s", "level"), [("no-wait", 0.0, "rack"), ("consolidated", 100.0, "machine")]
)
def test_consolidated_waits_for_the_closest_placement(placement: str, start_s: float, level: str) -> None:
    jobs = [job("a", 3, 300), job("b", 3, 100), job("pair", 2, 50)]
    result = simulate(f"fifo:placement={placement}", racks([[4, 4]]), jobs)
    assert (times(result, "pair"), levels(result, "pair")) == ([start_s], [level])


@pytest.mark.parametrize(("duration_s", "start_s"), [(100.0, 0.0), (101.0, 150.0)])
def test_a_consolidated_head_reserves_the_first_machine_that_will_hold_it(
    duration_s: float, start_s: float
) -> None:
    jobs = [job("a", 4, 300), job("b", 2, 100), job("head", 4, 50), job("two", 2, duration_s)]
    result = simulate("fifo:placement=consolidated,backfill=easy", racks([[4, 4]]), jobs)
    assert times(result, "head") == [100.0]
    assert times(result, "two") == [start_s]


def test_gpus_outside_of_the_reserved_machine_are_given_away_for_any_time() -> None:
    jobs = [job("a", 3, 300), job("b", 2, 100), job("head", 4, 50), job("one", 1, 5000)]
    result = simulate("fifo:placement=consolidated,backfill=easy", racks([[4, 4]]), jobs)
    assert (times(result, "one"), times(result, "head")) == ([0.0], [100.0])


def test_gpus_of_machines_too_small_for_the_head_are_given_away_for_any_time() -> None:
    jobs = [
        Job("first", 0.0, 8, 100.0, gpus_per_machine=8),
        Job("head", 0.0, 8, 50.0, gpus_per_machine=8),
        Job("long", 0.0, 4, 5000.0),
    ]
    result = simulate("fifo:backfill=easy", racks([[8, 4]]), jobs)
    assert (times(result, "head"), times(result, "long")) == ([100.0], [0.0])


def test_while_the_head_waits_elsewhere_backfill_does_not_pass_the_first_of_other_machines() -> None:
    there, here = frozenset({"r0m0"}), frozenset({"r0m1"})
    jobs = [
        Job("runs", 0.0, 4, 90_000.0, machines=there),
        Job("ran", 0.0, 2, 1000.0, machines=here),
        Job("head", 0.0, 4, 100.0, machines=there),
        Job("first", 0.0, 4, 100.0, machines=here),
        Job("long", 0.0, 2, 1500.0, machines=here),
        Job("short", 0.0, 2, 900.0, machines=here),
    ]
    result = simulate("fifo:backfill=easy", racks([[4, 4]]), jobs)
    starts = [times(result, name) for name in ("head", "first", "long", "short")]
    assert starts == [[90_000.0], [1000.0], [1100.0], [0.0]]


def test_a_wait_is_said_once() -> None:
    arrivals = [job(f"late{number}", 1, 10, 1.0 + number) for number in range(5)]
    result = simulate("fifo", racks([[4]]), [*HEAD, *arrivals])
    assert waits(result, "head") == [(0.0, None)]


def promise_s(state: ClusterState, head: JobState, level: int) -> float:
    """When the head could start if nothing else did, by brute force."""
    request, topology = head.job, state.topology
    running = [state.jobs[name] for name in state.running]
    for end_s in (-inf, *sorted(each.end_s() for each in running)):
        gone = [each.allocation for each in running if each.end_s() <= end_s]
        for domain in topology.level_domains[level]:
            left = [
                state.free.on(index) + sum(gpus for held in gone for place, gpus in held if place == index)
                for index, machine in enumerate(topology.machines)
                if domain.index in topology.ancestors[index] and request.gpu_type in (None, machine.gpu_type)
            ]
            if sum(map(request.gang.held, left)) >= request.gang.units:
                return end_s
    return inf


class Watching(CheckedScheduler):
    """Holds backfill to its word: what the head was promised never moves back."""

    def __init__(self, state: ClusterState, policy: InOrder) -> None:
        super().__init__(state, policy)
        self.fifo = policy
        self.promised: dict[str, float] = {}

    def plan_applied(self, now: float) -> None:
        super().plan_applied(now)
        head = next(iter(self.fifo.queue), None)
        if head is None:
            return
        promise = promise_s(self.state, head, self.fifo.accepts(self.state, head, now))
        assert now <= promise <= self.promised.get(head.job_id, inf)
        self.promised[head.job_id] = promise


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["no-wait", "consolidated"])
@given(world=worlds(failing=False))
@settings(deadline=None)
def test_backfill_never_delays_the_head(placement: str, world: World) -> None:
    state = ClusterState(world.topology, CostModel(world.topology))
    policy = parse_policy(f"fifo:backfill=easy,placement={placement}").build(state)
    assert isinstance(policy, InOrder)
    log = EventLog(io.StringIO())
    assert Engine(Watching(state, policy), world.jobs, log).run().complete


def test_who_waits_is_told_for_which_job_all_machines_are_kept() -> None:
    narrow = Job("narrow", 0, 4, 50, machines=frozenset({"r0m0"}))
    jobs = [
        Job("first", 0, 4, 100, machines=frozenset({"r0m0"})),
        narrow,
        job("wide", 8, 10),
        job("small", 4, 10),
    ]
    events = simulate("fifo", racks([[4, 4]]), jobs).events
    (reason,) = (each["reason"] for each in events if (each["event"], each["job"]) == ("wait", "small"))
    assert reason == "4 GPUs could be had but must wait for job wide of 8 GPUs"
