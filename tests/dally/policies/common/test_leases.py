"""Leases end only when somebody wants them."""

from math import floor, inf
from random import Random

import pytest

from dally.jobs.job import Job
from dally.policies.common.leases import LeaseBook
from dally.state import JobState


def running(order: int, ready_s: float) -> JobState:
    job = JobState(Job(f"j{order}", 0, 1, 1e6), order, origin_s=0)
    job.since_s, job.ready_s = ready_s - 10, ready_s
    return job


def book(*ready_s: float) -> tuple[LeaseBook, list[JobState]]:
    leases = LeaseBook(100)
    jobs = [running(order, ready) for order, ready in enumerate(ready_s)]
    for job in jobs:
        leases.started(job)
    return leases, jobs


def test_a_lease_begins_with_the_work_not_with_the_restart() -> None:
    leases, jobs = book(10.0)
    assert jobs[0].since_s == 0
    assert leases.next_end_s(0) == 110


def test_a_lease_that_nobody_waits_for_never_ends() -> None:
    leases, _ = book(0.0)
    leases.settle(0, wanted=False)
    assert leases.expired(100) == []
    assert leases.expired(1000) == []


def test_a_wanted_lease_ends_once_and_is_renewed() -> None:
    leases, jobs = book(0.0)
    leases.settle(50, wanted=True)
    assert leases.expired(99) == []
    assert leases.expired(100) == jobs
    leases.settle(100, wanted=True)
    assert leases.expired(150) == []
    assert leases.expired(200) == jobs


def test_leases_that_passed_while_nobody_waited_count_as_renewed() -> None:
    leases, jobs = book(0.0)
    leases.settle(0, wanted=False)
    leases.settle(250, wanted=True)
    assert leases.expired(299) == []
    assert leases.expired(300) == jobs


def test_a_late_look_still_sees_the_lease_that_ended_meanwhile() -> None:
    leases, jobs = book(0.0)
    leases.settle(50, wanted=True)
    assert leases.expired(100.4) == jobs
    assert leases.began_s(jobs[0], 100.4) == 0


@pytest.mark.parametrize(("now", "end"), [(0, 100), (99, 100), (100, 130), (130, 200), (10_000, 10_030)])
def test_the_next_end_of_any_lease(now: float, end: float) -> None:
    leases, _ = book(0.0, 30.0)
    assert leases.next_end_s(now) == end


def test_the_next_end_is_the_first_of_all_whatever_was_renewed_started_and_stopped() -> None:
    random = Random(1)
    leases, jobs = book()
    now = 0.0
    for order in range(400):
        now += random.choice([0.0, 0.001, 100.0, random.expovariate(0.02)])
        if len(jobs) > 20:
            leases.stopped(jobs.pop(random.randrange(len(jobs))))
        jobs.append(running(order, now + random.choice([0.0, random.uniform(0, 50)])))
        leases.started(jobs[-1])
        if random.random() < 0.3:
            leases.settle(now, wanted=random.random() < 0.5)
        ends_s = [leases.began_s(job, now) + 100 for job in jobs]
        coming_s = [end_s + 100 * max(0, floor((now - end_s) / 100) + 1) for end_s in ends_s]
        assert leases.next_end_s(now) == pytest.approx(min(coming_s))


def test_no_lease_no_end() -> None:
    leases, jobs = book(0.0)
    leases.stopped(jobs[0])
    assert leases.next_end_s(0) == inf


def test_the_current_lease_began_a_term_before_its_end() -> None:
    leases, jobs = book(5.0)
    assert leases.began_s(jobs[0], 50) == 5
    assert leases.began_s(jobs[0], 350) == 305
