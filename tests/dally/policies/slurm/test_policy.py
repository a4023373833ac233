"""Slurm's own scheduling: the switch timer and where it counts from."""

import json
from random import Random

import pytest

from dally.jobs.job import Job
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.testing.worlds import racks, simulate
from tests.dally.policies.events import job, levels, times, waits

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
    result = simulate("slurm:bf_max_job_test=1", racks([[4], [4]]), jobs)
    assert waits(result, "a") == [(0.0, 300.0)]
    # a takes the two free GPUs at 300 s, so that b is the one behind the head from then on.
    assert times(result, "a") == [300.0]
    assert waits(result, "b") == [(0.0, None), (300.0, 600.0)]


def test_backfill_plans_for_one_switch_not_for_the_end_of_the_timer() -> None:
    """As in Slurm: one takes a GPU that pair could have had when its timer ran out, and pair waits for it."""
    jobs = [*FRAGMENTED, job("pair", 2, 500), job("one", 1, 301)]
    result = simulate("slurm:bf_interval_s=0", racks([[4], [4]]), jobs)
    assert (times(result, "one"), times(result, "pair")) == ([0.0], [301.0])


@pytest.mark.parametrize(("limit_s", "start_s"), [(900.0, 30.0), (1000.0, 1950.0)])
def test_backfill_keeps_what_was_promised_to_those_behind_the_first(limit_s: float, start_s: float) -> None:
    jobs = [job("long", 3, 3000), job("other", 4, 1000), job("wide", 8, 100, 1), job("small", 1, limit_s, 2)]
    assert times(simulate("slurm", racks([[4], [4]]), jobs), "small") == [30.0], "it is over before 3000"
    jobs = [job("long", 3, 1000), job("other", 4, 3000), job("wide", 8, 900, 1), job("second", 4, 900, 2)]
    jobs.append(job("small", 1, limit_s, 3))
    first_only = simulate("slurm:bf_job_part_count_reserve=1", racks([[4], [4]]), jobs)
    assert times(first_only, "small") == [30.0], "wide can start at 3000 only"
    assert times(simulate("slurm", racks([[4], [4]]), jobs), "small") == [start_s], "second could at 1000"


def test_promises_are_counted_by_machines_as_slurm_counts_them_by_partition() -> None:
    """Else those of a busy partition would leave none to others, where large jobs were passed for ever."""
    there, here = frozenset({"r0m0"}), frozenset({"r0m1"})
    jobs = [
        *(Job(f"there{each}", 0.0, 4, 2000.0, machines=there) for each in range(3)),
        Job("ran", 0.0, 2, 1000.0, machines=here),
        Job("large", 1.0, 4, 900.0, machines=here),
        Job("small", 2.0, 2, 1500.0, machines=here),
    ]
    result = simulate("slurm:bf_job_part_count_reserve=1", racks([[4, 4]]), jobs)
    assert (times(result, "large"), times(result, "small")) == ([1050.0], [1980.0])


def test_builtin_scheduling_looks_at_nobody_behind_the_first() -> None:
    assert times(simulate("slurm:scheduler=builtin", racks([[4]]), SMALL), "small") == [3100.0]


def test_placement_tree_leaves_a_gang_waiting_that_placement_fit_would_start() -> None:
    """As seen on Slurm 22.05: a rack with one idle node is looked at before racks with two."""
    jobs = [job("one", 2, 3000), job("gang", 4, 100, 1)]
    topology = racks([[2, 2], [2, 2]])
    assert times(simulate("slurm", topology, jobs), "gang") == [1.0]
    tree = simulate("slurm:placement=tree", topology, jobs)
    assert (times(tree, "gang"), levels(tree, "gang")) == ([330.0], ["network"])


def test_a_start_may_let_another_job_start_in_the_next_pass_under_placement_tree() -> None:
    """As seen on Slurm 22.05: with one GPU less on the idle node, the idle rack comes first."""
    jobs = [job("one", 2, 3000), job("gang", 4, 100, 1), job("single", 1, 2000, 2)]
    result = simulate("slurm:placement=tree,bf_interval_s=5", racks([[2, 2], [2, 2]]), jobs)
    assert (times(result, "single"), times(result, "gang")) == ([5.0], [10.0])
    assert levels(result, "gang") == ["rack"]


def test_promises_begin_at_a_multiple_of_bf_resolution() -> None:
    """Wide is promised the machine for 630 s, so from 600 on, and small would be done at 595 or 605."""
    jobs = [job("long", 3, 630), job("wide", 4, 100, 1), job("small", 1, 565, 2)]
    assert times(simulate("slurm", racks([[4]]), jobs), "small") == [30.0]
    jobs[-1] = job("small", 1, 575, 2)
    assert times(simulate("slurm", racks([[4]]), jobs), "small") == [730.0]
    assert times(simulate("slurm:bf_resolution_s=10", racks([[4]]), jobs), "small") == [30.0]


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
    scheduler.plan_applied(2.0)
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
