from dataclasses import replace
from itertools import pairwise
from math import ceil, exp, log
from statistics import fmean, pstdev

import pytest

from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge, Known
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.scheduling.beliefs import AGES_S, LIMITS_S, NEWCOMER_S, Beliefs, limit_s
from dally.scheduling.scheduler import Scheduler, beliefs_of
from dally.state import ClusterState, JobState
from dally.testing.worlds import racks

HOUR_S = 3600.0
DAY_S = 86_400.0


def believed(known: Known, job: Job, done_s: float = 0.0) -> tuple[float, float]:
    return beliefs_of(known).believe(JobState(job, 0, 0.0), done_s)


def jobs(count: int, duration_s: float = HOUR_S) -> list[Job]:
    return [Job(f"j{number}", 0.0, 1, duration_s) for number in range(count)]


@pytest.mark.parametrize("known", [Known(), Known(seed=7), Known(profile_error=0.3)])
def test_exact_is_the_duration_for_good(known: Known) -> None:
    assert believed(known, Job("j", 0, 1, 100.0), 250.0) == (100.0, float("inf"))


def test_an_error_is_log_normal_and_each_jobs_own() -> None:
    known = Known(error=0.5, seed=1)
    errors = [log(believed(known, job)[0] / job.duration_s) for job in jobs(2000)]
    assert fmean(errors) == pytest.approx(0.0, abs=0.05)
    assert pstdev(errors) == pytest.approx(0.5, abs=0.05)
    assert [log(believed(known, job)[0] / HOUR_S) for job in jobs(10)] == errors[:10]
    assert believed(replace(known, seed=2), jobs(1)[0])[0] != exp(errors[0]) * HOUR_S


def test_what_a_job_outlives_doubles() -> None:
    job = Job("j", 0, 1, 4000.0, time_limit_s=4000.0)
    known = Known(Knowledge.LIMITS)
    assert believed(known, job, 3999.0) == (4000.0, 4000.0)
    assert believed(known, job, 4000.0) == (8000.0, 8000.0)
    assert believed(known, job, 17_000.0) == (32_000.0, 32_000.0)


def test_a_limit_that_a_job_comes_with_counts() -> None:
    assert limit_s(Job("j", 0, 1, 100.0, time_limit_s=5000.0), seed=0) == 5000.0


def test_drawn_limits_are_those_that_users_write_and_no_shorter_than_the_job() -> None:
    drawn = [limit_s(job, seed=1) for job in jobs(2000)]
    assert set(drawn) <= set(LIMITS_S)
    assert min(drawn) >= HOUR_S
    assert drawn.count(30 * DAY_S) / 2000 == pytest.approx(0.05, abs=0.02)
    # Of an hour, .05 to 1: up to an hour nobody, to 2 h whoever is over one half accurate, 10 of 19 parts.
    assert drawn.count(2 * HOUR_S) / 2000 == pytest.approx(0.95 * 10 / 19, abs=0.03)


def test_a_job_longer_than_all_limits_has_its_own() -> None:
    assert limit_s(Job("j", 0, 1, 90 * DAY_S), seed=0) == 90 * DAY_S


def test_without_knowledge_a_job_is_taken_to_end_at_the_next_of_few_ages_whatever_it_takes() -> None:
    short, long = Job("short", 0, 1, 1.0), Job("long", 0, 1, 1e6)
    known = Known(Knowledge.NONE)
    for age_s, next_s in pairwise(AGES_S):
        assert believed(known, short, age_s) == (next_s, next_s)
        assert believed(known, long, age_s) == believed(known, short, age_s)
    assert believed(known, short, 1.0) == believed(known, short, 0.0)


@pytest.mark.parametrize("knowledge", Knowledge)
def test_a_belief_is_never_less_than_what_is_done(knowledge: Knowledge) -> None:
    for done_s in (0.0, 1.0, 100.0, 3600.0, 1e5, 1e7):
        expected_s, held_s = believed(Known(knowledge), Job("j", 0, 1, 1e8), done_s)
        assert expected_s >= done_s < held_s


class WatchedScheduler:
    """A scheduler under `sjf` with a job of its own that runs from 0 on."""

    def __init__(self, known: Known, *waiting: Job) -> None:
        topology = racks([[1]])
        self.state = ClusterState(topology, CostModel(topology), known)
        self.scheduler = Scheduler(self.state, parse_policy("srtf").build(self.state))
        self.scheduler.submit(Job("j", 0, 1, 1e6), 0.0)
        self.scheduler.start("j", ((0, 1),), 0.0, 0.5)
        for job in waiting:
            self.scheduler.submit(job, 0.0)

    @property
    def beliefs(self) -> Beliefs:
        return self.scheduler.beliefs


def test_a_belief_that_a_job_outlives_is_revised_at_the_next_minute_at_the_latest() -> None:
    watched = WatchedScheduler(Known(Knowledge.NONE), Job("waits", 0, 1, 10.0))
    job = watched.state.jobs["j"]
    ready_s = job.ready_s
    plan = watched.scheduler.decide(ready_s)
    due_s = watched.beliefs.next_due_s()
    assert due_s == pytest.approx(ready_s + AGES_S[1] / 0.5)
    assert plan.wakeup_s == 60 * ceil(due_s / 60)
    watched.scheduler.decide(due_s - 1)
    assert job.expected_s == NEWCOMER_S
    watched.scheduler.decide(plan.wakeup_s)
    assert job.expected_s == AGES_S[2] == 5 * NEWCOMER_S


def test_beliefs_are_revised_at_whole_minutes_whoever_asks_in_between() -> None:
    """A controller asks at other moments than a simulation does."""
    topology = racks([[1]])
    state = ClusterState(topology, CostModel(topology), Known(Knowledge.NONE))
    scheduler = Scheduler(state, parse_policy("fifo").build(state))
    scheduler.submit(Job("j", 0, 1, 1e6), 10.0)
    job = scheduler.start("j", ((0, 1),), 10.0, 1.0)
    over_s = job.worked_s(AGES_S[1])
    scheduler.decide(over_s + 1.0)
    assert job.expected_s == AGES_S[1]
    scheduler.decide(60 * ceil(over_s / 60))
    assert job.expected_s == AGES_S[2]


def test_nobody_is_woken_for_a_belief_while_nobody_waits() -> None:
    watched = WatchedScheduler(Known(Knowledge.NONE))
    assert watched.scheduler.decide(0.0).wakeup_s == float("inf")
    watched.scheduler.decide(1e6)
    assert watched.state.jobs["j"].expected_s > 1e6 * 0.5


def test_another_pace_brings_the_revision_forward() -> None:
    watched = WatchedScheduler(Known(Knowledge.NONE))
    before_s = watched.beliefs.next_due_s()
    watched.scheduler.repace("j", watched.state.jobs["j"].ready_s, 1.0)
    assert watched.beliefs.next_due_s() < before_s


def test_who_does_not_run_has_no_revision_to_come() -> None:
    watched = WatchedScheduler(Known(Knowledge.NONE))
    watched.scheduler.preempt("j", 1000.0)
    assert watched.beliefs.next_due_s() == float("inf")
    watched.scheduler.withdraw("j", 1001.0)


def test_a_belief_that_a_job_outlives_while_it_writes_its_checkpoint_is_revised_as_it_stops() -> None:
    watched = WatchedScheduler(Known(Knowledge.NONE))
    job = watched.state.jobs["j"]
    watched.scheduler.preempt("j", job.worked_s(job.held_s) + 1.0)
    assert job.expected_s == job.held_s == AGES_S[2]


def test_a_job_that_a_plan_starts_is_looked_at_again_when_what_is_believed_of_it_is_over() -> None:
    topology = racks([[1]])
    state = ClusterState(topology, CostModel(topology), Known(Knowledge.NONE))
    scheduler = Scheduler(state, parse_policy("fifo").build(state))
    for name in ("starts", "waits"):
        scheduler.submit(Job(name, 0, 1, 1e6), 0.0)
    assert scheduler.decide(0.0).wakeup_s == AGES_S[1] == 60 * 60, "a whole minute, and no later"
