"""Slurm's own scheduling: the switch timer and where it counts from."""

import json
from random import Random

import pytest

from dally.costs import CostModel
from dally.cycle import Scheduler
from dally.policies.registry import parse_policy
from dally.state import ClusterState
from tests.dally.policies.events import job, levels, times, waits
from tests.worlds import racks, simulate

# One GPU is left in each of two racks: two GPUs are free, but not under one switch.
FRAGMENTED = [job("long0", 3, 3000), job("long1", 3, 3000)]


@pytest.mark.parametrize(
    ("knobs", "start_s"),
    [
        ("", 300.0),
        (":switch_wait_s=100", 120.0),
        (":switch_wait_s=100,bf_interval_s=0", 100.0),
        (":switch_wait_s=0", 0.0),
    ],
)
def test_a_job_waits_for_one_switch_until_the_timer_runs_out(knobs: str, start_s: float) -> None:
    result = simulate(f"slurm{knobs}", racks([[4], [4]]), [*FRAGMENTED, job("pair", 2, 500)])
    assert (times(result, "pair"), levels(result, "pair")) == ([start_s], ["network"])


def test_one_switch_that_comes_free_in_time_is_taken() -> None:
    jobs = [job("long0", 3, 3000), job("long1", 3, 200), job("pair", 2, 500)]
    result = simulate("slurm", racks([[4], [4]]), jobs)
    assert (times(result, "pair"), levels(result, "pair")) == ([200.0], ["machine"])
    assert waits(result, "pair") == [(0.0, 300.0)]


def test_a_gang_that_no_switch_can_hold_does_not_wait_for_one() -> None:
    result = simulate("slurm", racks([[4], [4]]), [job("wide", 6, 100)])
    assert (times(result, "wide"), levels(result, "wide")) == ([0.0], ["network"])


def test_the_timer_starts_when_the_job_is_first_looked_at() -> None:
    jobs = [*FRAGMENTED, job("wide", 8, 100), job("a", 2, 500), job("b", 2, 500)]
    result = simulate("slurm:depth=1", racks([[4], [4]]), jobs)
    assert waits(result, "a") == [(0.0, 300.0)]
    # a takes the two free GPUs at 300 s, so that b is the one behind the head from then on.
    assert times(result, "a") == [300.0]
    assert waits(result, "b") == [(0.0, None), (300.0, 600.0)]


@pytest.mark.parametrize(("duration_s", "start_s"), [(300.0, 0.0), (301.0, 800.0)])
def test_backfill_reserves_for_the_moment_when_the_timer_runs_out(duration_s: float, start_s: float) -> None:
    jobs = [*FRAGMENTED, job("pair", 2, 500), job("one", 1, duration_s)]
    result = simulate("slurm:bf_interval_s=0", racks([[4], [4]]), jobs)
    assert times(result, "pair") == [300.0]
    assert times(result, "one") == [start_s]


SMALL = [job("long", 3, 3000), job("wide", 4, 100, 1), job("small", 1, 500, 31), job("later", 1, 500, 65)]


def test_jobs_behind_the_head_wait_for_a_pass_of_backfill() -> None:
    result = simulate("slurm", racks([[4]]), SMALL)
    assert times(result, "small") == [60.0]
    assert times(result, "later") == [570.0], "small ended at 560 s; the next pass is at a multiple of 30 s"
    assert times(simulate("slurm:bf_interval_s=0", racks([[4]]), SMALL), "small") == [31.0]
    slow = simulate("slurm:bf_interval_s=120", racks([[4]]), SMALL)
    assert times(slow, "small") == [120.0]


def test_the_head_starts_as_soon_as_it_can() -> None:
    assert times(simulate("slurm", racks([[4]]), SMALL), "wide") == [3000.0]
    jobs = [job("a", 4, 101), job("b", 4, 102, 1), job("c", 4, 50, 2)]
    assert times(simulate("slurm", racks([[4]]), jobs), "c") == [203.0]


def test_passes_go_on_after_a_restart_of_the_controller() -> None:
    topology = racks([[4]])
    state = ClusterState(topology, CostModel(topology))
    policy = parse_policy("slurm").build(state)
    scheduler = Scheduler(state, policy)
    scheduler.submit(job("long", 3, 3000), 0.0)
    scheduler.start("long", ((0, 3),), 0.0, 1.0)
    scheduler.submit(job("wide", 4, 100), 1.0)
    scheduler.submit(job("small", 1, 500), 2.0)
    assert policy.decide(state, 2.0).wakeup_s == 30.0
    scheduler.settle(2.0)
    learnt = json.loads(json.dumps(policy.snapshot()))
    again = parse_policy("slurm").build(state)
    again.restore(learnt)
    for each in state.jobs.values():
        again.submitted(each, 2.0)
    again.resumed(state.jobs["long"], 2.0)
    late_s = 31.4
    assert [each.job_id for each in again.decide(state, late_s).decisions][:1] == ["small"]


def test_passes_that_follow_each_event_at_once_are_backfill_at_every_event() -> None:
    source = Random(1)
    jobs = [
        job(f"j{each}", source.choice((1, 2, 3, 6)), 97 + 10 * source.randrange(300), 31 * each)
        for each in range(40)
    ]
    often, always = (
        simulate(f"slurm:bf_interval_s={interval}", racks([[4], [4]]), jobs).by_job for interval in (0.001, 0)
    )
    assert {name: often[name].start_s for name in often} == {
        name: pytest.approx(record.start_s, abs=0.1) for name, record in always.items()
    }
