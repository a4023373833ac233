from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.jobs.job import Job
from dally.policies.srsf_delay.starvation_guard import StarvationGuard
from dally.state import JobState

OVERDUE_S = {"a": 100.0, "b": 3000.0}
SURE_S = {"a": 512.0, "b": 128.0}


def waiting(name: str, order: int, gpus: int, origin_s: float) -> JobState:
    return JobState(Job(name, origin_s, gpus, 1000.0), order, origin_s)


def guard(share: float = 0.25) -> StarvationGuard:
    return StarvationGuard(8, share)


def add(to: StarvationGuard, job: JobState) -> None:
    to.add(job, OVERDUE_S[job.job_id], SURE_S[job.job_id])


@pytest.mark.parametrize(("jobs", "turn_s"), [(4, 2058.0), (2, 1034.0), (1, 522.0)])
def test_a_turn_comes_when_a_part_of_an_equal_share_makes_up_for_it(jobs: int, turn_s: float) -> None:
    """It takes 2 x 512 GPU-seconds; a quarter of 8 GPUs, shared by so many jobs, gives them in that time."""
    waits, job = guard(), waiting("a", 0, 2, 10.0)
    add(waits, job)
    assert waits.next_turn_s(jobs, 0.0) == 100.0  # to be asked for again once it has waited long
    for sorted_before in (False, True):
        if sorted_before:
            waits.settle(100.0)
        assert waits.next_turn_s(jobs, 100.0) == turn_s
        assert (waits.due(jobs, turn_s - 1), waits.due(jobs, turn_s)) == (None, job)


def test_whoever_starts_now_has_no_turn_to_come() -> None:
    waits, job = guard(), waiting("a", 0, 2, 10.0)
    add(waits, job)
    assert waits.next_turn_s(1, 500.0, started={0}) == inf
    waits.remove(job)
    assert (waits.next_turn_s(1, 500.0), waits.due(1, 1e9)) == (inf, None)


def test_the_turn_that_comes_first_goes_first_whoever_has_waited_longer() -> None:
    waits = guard()
    long, brief = waiting("a", 0, 8, 0.0), waiting("b", 1, 1, 500.0)
    add(waits, long)
    add(waits, brief)
    assert waits.due(4, 2900.0) is None  # b has not waited long yet
    assert waits.due(4, 3000.0) is brief


@given(
    waits=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 500), st.booleans()), min_size=1, max_size=8),
    jobs=st.integers(1, 20),
    now=st.integers(0, 20_000),
)
def test_when_they_are_sorted_changes_nothing(
    waits: list[tuple[int, int, bool]], jobs: int, now: int
) -> None:
    early, late = guard(), guard()
    for order, (gpus, origin_s, settles) in enumerate(waits):
        for each in (early, late):
            add(each, waiting("ab"[order % 2], order, gpus, float(origin_s)))
        if settles:
            early.settle(float(now))
    found = [each.due(jobs, float(now)) for each in (early, late)]
    assert [job and job.order for job in found] == [found[0] and found[0].order] * 2
    assert early.next_turn_s(jobs, float(now)) == late.next_turn_s(jobs, float(now))
