"""Dally as published, on cases small enough to compute by hand."""

import json

import pytest

from dally.cluster.topology import Topology
from dally.jobs.job import Job
from dally.plan import Preempt, Start
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.testing.worlds import Result, racks, simulate

LEASE_S = 3600.0


def job(name: str, gpus: int, duration_s: float, submit_s: float = 0.0) -> Job:
    return Job(name, submit_s, gpus, duration_s)


def starts(result: Result, name: str) -> list[tuple[float, str]]:
    kinds = ("start", "migrate")
    return [(e["t"], e["level"]) for e in result.events if e["event"] in kinds and e["job"] == name]


def in_turn(result: Result) -> list[str]:
    return [event["job"] for event in result.events if event["event"] == "start"]


# One GPU is left on each of two machines: two GPUs are free, but not on one machine.
FRAGMENTED = [job("long0", 3, 3000), job("long1", 3, 3000), job("pair", 2, 500)]


@pytest.mark.parametrize(
    ("timers", "start_s", "level"),
    [
        ("timers=no-wait", 0.0, "rack"),
        ("timers=manual,machine=0.5,rack=0.75", 1800.0, "rack"),
        ("timers=manual,machine=0.25,rack=0.5", 900.0, "rack"),
        ("timers=consolidated", 3000.0, "machine"),
        ("timers=auto", 3000.0, "machine"),
    ],
)
def test_a_job_declines_a_rack_until_its_machine_timer_runs_out(
    timers: str, start_s: float, level: str
) -> None:
    result = simulate(f"dally:{timers}", racks([[4, 4]]), FRAGMENTED)
    assert starts(result, "pair") == [(start_s, level)]


@pytest.mark.parametrize(
    ("timers", "start_s", "level"),
    [
        ("timers=manual,machine=0.5,rack=0.75", 2700.0, "network"),
        ("timers=manual,machine=0.5,rack=1.5", 3000.0, "machine"),
    ],
)
def test_both_timers_count_from_the_beginning_of_the_wait(timers: str, start_s: float, level: str) -> None:
    result = simulate(f"dally:{timers}", racks([[4], [4]]), FRAGMENTED)
    assert starts(result, "pair") == [(start_s, level)]


def test_a_gang_larger_than_a_machine_takes_a_rack_at_once_and_waits_for_it_only() -> None:
    jobs = [job("wide", 6, 100), job("blocked", 6, 100)]
    result = simulate("dally:timers=manual,machine=9,rack=0.01", racks([[4, 4], [4]]), jobs)
    assert starts(result, "wide") == [(0.0, "rack")]
    assert starts(result, "blocked") == [(36.0, "network")]


def test_a_gang_larger_than_a_rack_takes_any_gpus_at_once() -> None:
    result = simulate("dally:timers=manual,machine=9,rack=9", racks([[4], [4]]), [job("wide", 6, 100)])
    assert starts(result, "wide") == [(0.0, "network")]


def test_a_new_job_takes_the_gpus_at_the_lease_end_and_the_loser_pays_its_restart() -> None:
    jobs = [job("first", 4, 10_000), job("second", 4, 1000, submit_s=100)]
    result = simulate("dally", racks([[4]]), jobs)
    assert starts(result, "first") == [(0.0, "machine"), (4600.0, "machine")]
    assert starts(result, "second") == [(3600.0, "machine")]
    first = result.by_job["first"]
    assert first.end_s == pytest.approx(4600 + 6 + 4 + (10_000 - 3600))
    assert (first.preemptions, first.restart_s, first.queue_s) == (1, 10, 1000)


def test_a_lease_that_nobody_wanted_was_renewed_without_an_event() -> None:
    jobs = [job("first", 4, 10_000), job("second", 4, 1000, submit_s=4000)]
    result = simulate("dally", racks([[4]]), jobs)
    assert starts(result, "second") == [(7200.0, "machine")]


def test_equal_claims_take_turns_lease_by_lease() -> None:
    jobs = [job(name, 4, 2 * LEASE_S - 50) for name in ("a", "b", "c")]
    result = simulate("dally", racks([[4]]), jobs)
    assert in_turn(result) == ["a", "b", "c", "a", "b", "c"]


def test_who_lost_its_gpus_waits_for_its_timer_anew() -> None:
    jobs = [job("first", 4, 10_000), job("second", 4, 1000, submit_s=100)]
    events = simulate("dally", racks([[4]]), jobs).events
    waits = [(e["job"], e["until"]) for e in events if e["event"] == "wait"]
    assert waits == [("second", 100 + 6 * LEASE_S), ("first", 3600 + 6 * LEASE_S)]


def test_who_keeps_its_gpus_waits_for_nothing() -> None:
    """A lease end with a smaller claim waiting elsewhere costs the holder nothing."""
    jobs = [job("holder", 3, 10_000), job("other", 3, 10_000), job("pair", 4, 100, submit_s=50)]
    result = simulate("dally:timers=consolidated", racks([[3], [3]]), jobs)
    assert result.by_job["holder"].preemptions + result.by_job["other"].preemptions == 2
    one = simulate("dally:timers=consolidated", racks([[3], [4]]), [*jobs[:2], job("pair", 4, 100, 50)])
    assert sorted(record.preemptions for record in one.outcome.records) == [0, 0, 1]


def test_a_scattered_job_moves_together_when_its_lease_ends() -> None:
    """Somebody waits for a type it does not hold: its lease ends, and it is free to move."""
    jobs = [
        *(Job(name, 0, gpus, for_s, gpu_type="a") for name, gpus, for_s in [("x", 3, 1000), ("y", 3, 9999)]),
        Job("pair", 0, 2, 5000, gpu_type="a"),
        *(Job(name, at, 8, 9999, gpu_type="b") for name, at in [("filler", 10), ("waiting", 1200)]),
    ]
    result = simulate("dally:timers=no-wait", racks([[4, 8, 4]], ("a", "b")), jobs)
    assert starts(result, "pair") == [(0.0, "rack"), (3600.0, "machine")]
    assert result.by_job["pair"].end_s == pytest.approx(3600 + 8 + 1400)


def scheduler(topology: Topology, spec: str = "dally") -> Scheduler:
    state = ClusterState(topology, CostModel(topology))
    return Scheduler(state, parse_policy(spec).build(state))


def test_the_job_that_the_network_slowed_most_chooses_first() -> None:
    world = scheduler(racks([[4]]))
    for name, speed in (("fast", 1.0), ("slow", 0.5)):
        world.submit(job(name, 4, 10_000), 0)
        world.start(name, ((0, 4),), 0 if name == "fast" else 100, speed)
        world.preempt(name, 100 if name == "fast" else 200)
    state = world.state.jobs["slow"]
    assert state.network_sensitivity(200) == pytest.approx(0.5)
    decisions = world.decide(300).decisions
    assert [each.job_id for each in decisions if isinstance(each, Start)] == ["slow"]


def test_network_sensitivity_is_ideal_work_per_second_run() -> None:
    world = scheduler(racks([[4]]))
    world.submit(job("a", 4, 10_000), 0)
    state = world.start("a", ((0, 4),), 0, speed=0.25)
    assert state.network_sensitivity(0) == 0
    # work_done / (T_run / T_ideal) = (1000 / 10000) / (4000 / 10000)
    assert state.network_sensitivity(4000) == pytest.approx(0.25)


def test_a_restart_is_no_slowness_of_the_network() -> None:
    world = scheduler(racks([[4]]))
    world.submit(job("a", 4, 10_000), 0)
    world.start("a", ((0, 4),), 0, speed=1.0)
    world.preempt("a", 1000)
    state = world.start("a", ((0, 4),), 2000, speed=1.0)
    assert (state.run_s(2500), state.work_s(2500)) == (1500, 1490)
    assert state.network_sensitivity(2500) == 1


def test_every_preemption_names_who_took_the_gpus() -> None:
    world = scheduler(racks([[4]]))
    world.submit(job("old", 4, 90_000), 0)
    world.start("old", ((0, 4),), 0, speed=1.0)
    world.submit(job("new", 4, 90_000), 10)
    world.plan_applied(10)
    decisions = world.decide(LEASE_S).decisions
    preempted = [each for each in decisions if isinstance(each, Preempt)]
    assert [(each.job_id, each.by) for each in preempted] == [("old", ("new",))]
    assert "new had a better claim" in preempted[0].reason


def test_what_it_learnt_survives_a_restart() -> None:
    world, restarted = scheduler(racks([[4]])), scheduler(racks([[4]]))
    world.submit(job("a", 4, 10_000), 0)
    world.start("a", ((0, 4),), 9 * LEASE_S, speed=1.0)
    world.preempt("a", 9.5 * LEASE_S)
    learnt = json.loads(json.dumps(world.policy.snapshot()))
    assert learnt["histories"] == {"0/4": [[9 * LEASE_S, 9.0]]}
    assert learnt["assigned_s"] == {"a": 9 * LEASE_S}
    restarted.policy.restore(learnt)
    assert restarted.policy.snapshot() == learnt
