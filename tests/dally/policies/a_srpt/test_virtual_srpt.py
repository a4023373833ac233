"""The virtual machine by hand, and against a simulation in small steps."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.jobs.job import Job
from dally.policies.a_srpt.virtual_srpt import VirtualSrpt
from dally.state import JobState


def arrived(order: int, submit_s: float = 0.0) -> JobState:
    return JobState(Job(f"j{order}", submit_s, 1, 1.0), order, submit_s)


def machine_with(*left_s: float) -> tuple[VirtualSrpt, list[JobState]]:
    machine, jobs = VirtualSrpt(), [arrived(order) for order in range(len(left_s))]
    for job, each_s in zip(jobs, left_s, strict=True):
        machine.add(job, each_s)
    return machine, jobs


def test_the_shortest_ends_first_and_a_shorter_newcomer_preempts() -> None:
    """10 s of work at 0 s; at 6 s, with 4 s left, 3 s of work come and end at 9 s, the others at 13 s."""
    machine, [long] = machine_with(10.0)
    short = arrived(1)
    assert machine.next_end_s(0.0) == 10.0
    assert machine.left_s(long, 6.0) == 4.0
    assert machine.advance(6.0) == [long]
    machine.add(short, 3.0)
    assert machine.rank(short) < machine.rank(long)
    assert (machine.end_s(short, 8.9), machine.end_s(short, 9.0)) == (None, 9.0)
    assert machine.left_s(long, 10.0) == 3.0
    assert machine.next_end_s(9.0) == 13.0
    assert machine.advance(10.0) == [short, long]
    assert (machine.end_s(short, 10.0), machine.end_s(long, 10.0)) == (9.0, None)
    assert machine.rank(short) < machine.rank(long)


def test_a_newcomer_with_more_work_than_is_left_of_the_other_goes_after_it() -> None:
    """5 s come when 4 of 10 s are left."""
    machine, [first] = machine_with(10.0)
    second = arrived(1)
    machine.advance(6.0)
    machine.add(second, 5.0)
    assert machine.rank(first) < machine.rank(second)


def test_who_leaves_is_no_work_any_more_and_the_idle_machine_waits() -> None:
    machine, [gone] = machine_with(10.0)
    machine.advance(4.0)
    machine.remove(gone)
    assert machine.advance(50.0) == []
    assert machine.next_end_s(50.0) == inf
    machine.add(arrived(1), 2.0)
    assert machine.next_end_s(50.0) == 52.0


def test_what_is_left_survives_a_restart() -> None:
    machine, [done, pending] = machine_with(1.0, 5.0)
    machine.advance(2.0)
    learnt = machine.snapshot()
    assert learnt == {"left_us": {"j1": 4_000_000}, "ended_us": {"j0": 1_000_000}}
    again = VirtualSrpt()
    again.restore(learnt)
    assert again.snapshot() == learnt, "before the jobs are here again"
    again.advance(100.0)
    again.add(done, 1.0)
    again.add(pending, 5.0)
    assert again.snapshot() == learnt
    assert again.end_s(pending, 104.0) == 104.0


@settings(max_examples=30, deadline=None)
@given(
    work_s=st.lists(st.floats(0.01, 1e5), min_size=1, max_size=6),
    looks=st.lists(st.floats(0, 1e5), max_size=6),
)
def test_how_often_somebody_looks_changes_nothing(work_s: list[float], looks: list[float]) -> None:
    watched, _ = machine_with(*work_s)
    alone, _ = machine_with(*work_s)
    for look_s in sorted(looks):
        watched.advance(look_s)
    for machine in (watched, alone):
        machine.advance(1e5)
    assert watched.snapshot() == alone.snapshot()


@settings(max_examples=30, deadline=None)
@given(jobs=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10)), min_size=1, max_size=6))
def test_ends_are_those_of_a_simulation_second_by_second(jobs: list[tuple[int, int]]) -> None:
    machine, left, ends, moments = VirtualSrpt(), dict[int, int](), dict[int, int](), sorted(jobs)
    states = [arrived(order, submit_s) for order, (submit_s, _) in enumerate(moments)]
    for second in range(100):
        machine.advance(float(second))
        for state, (submit_s, work_s) in zip(states, moments, strict=True):
            if submit_s == second:
                machine.add(state, float(work_s))
                left[state.order] = work_s
        if left:
            first = min(left, key=lambda order: (left[order], order))
            left[first] -= 1
            if not left[first]:
                del left[first]
                ends[first] = second + 1
    assert [machine.end_s(state, 100.0) for state in states] == pytest.approx(
        [*map(ends.get, range(len(states)))]
    )
