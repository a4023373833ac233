"""Slurm's backfill: promises of whole machines to every job tested, in slots of time."""

from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.cluster.free import FreeGpus
from dally.jobs.job import Gang
from dally.policies.common.backfill import Release
from dally.policies.slurm.node_choice import best_fit
from dally.policies.slurm.planned_backfill import BackfillPlanner, JobToTest, NodeSpace, PlannedStart
from dally.testing.worlds import racks

TWO = racks([[2, 2]])
DAY_S = 86_400.0


def planner(left: list[int], releases: Sequence[Release], resolution_s: float = 60.0) -> BackfillPlanner:
    return BackfillPlanner(free(left), releases, 0.0, DAY_S, resolution_s)


def free(left: list[int]) -> FreeGpus:
    gpus = FreeGpus(TWO)
    gpus.take(tuple((machine, 2 - has) for machine, has in enumerate(left)))
    return gpus


def ask(gpus: int, limit_s: float) -> JobToTest:
    gang = Gang(gpus)
    return JobToTest(gang, limit_s, lambda left: best_fit(TWO, left, gang, TWO.top))


def test_a_job_that_fits_starts_now() -> None:
    assert planner([2, 2], []).test(ask(3, 600)) == PlannedStart(0.0, ((0, 2), (1, 1)))


def test_a_job_that_does_not_is_planned_for_the_end_of_a_running_one() -> None:
    plan = planner([0, 1], [(500.0, ((1, 1),)), (900.0, ((0, 2),))])
    assert plan.test(ask(2, 600)) == PlannedStart(500.0, ((1, 2),))
    assert plan.promises == 1


def test_whole_machines_are_promised_so_a_free_gpu_beside_is_not_had_for_longer() -> None:
    releases = [(600.0, ((1, 1),))]
    plan = planner([0, 1], releases)
    assert plan.test(ask(2, 600)) == PlannedStart(600.0, ((1, 2),))
    later = plan.test(ask(1, 660))
    assert later is None or later.start_s > 0
    assert planner([0, 1], releases).test(ask(1, 660)) == PlannedStart(0.0, ((1, 1),))


def test_a_job_whose_limit_ends_before_the_promise_starts_now() -> None:
    plan = planner([0, 1], [(600.0, ((1, 1),))])
    plan.test(ask(2, 600))
    assert plan.test(ask(1, 599)) == PlannedStart(0.0, ((1, 1),))


@pytest.mark.parametrize(
    ("resolution_s", "limit_s", "starts"),
    [(60.0, 599.0, True), (60.0, 600.0, False), (10.0, 629.0, True), (10.0, 630.0, False)],
)
def test_a_promise_begins_at_a_multiple_of_the_resolution(
    resolution_s: float, limit_s: float, starts: bool
) -> None:
    plan = planner([0, 1], [(630.0, ((1, 1),))], resolution_s)
    plan.test(ask(2, 600))
    assert (plan.test(ask(1, limit_s)) == PlannedStart(0.0, ((1, 1),))) is starts


def test_every_job_that_waits_is_promised_something_not_only_the_first() -> None:
    plan = planner([0, 1], [(600.0, ((1, 1),)), (1200.0, ((0, 2),))])
    assert plan.test(ask(2, 6000)) == PlannedStart(600.0, ((1, 2),))
    assert plan.test(ask(2, 6000)) == PlannedStart(1200.0, ((0, 2),))
    assert plan.promises == 2


def test_a_job_that_would_overlap_a_promise_is_planned_behind_it() -> None:
    plan = planner([0, 0], [(600.0, ((0, 2), (1, 2)))])
    assert plan.test(ask(4, 600)) == PlannedStart(600.0, ((0, 2), (1, 2)))
    second = plan.test(ask(4, 600))
    assert second is not None
    assert second.start_s == 1200.0


def test_without_promises_only_a_start_now_counts() -> None:
    plan = planner([0, 1], [(600.0, ((1, 1),))])
    assert plan.test(ask(2, 600), promises=False) is None
    assert plan.test(ask(1, 9000), promises=False) == PlannedStart(0.0, ((1, 1),))


def test_a_start_beyond_the_window_promises_nothing() -> None:
    plan = planner([0, 1], [(DAY_S + 600, ((1, 1),))])
    plan.test(ask(2, 600))
    assert plan.promises == 0
    assert plan.test(ask(1, 2 * DAY_S)) == PlannedStart(0.0, ((1, 1),))


def test_ends_that_are_close_are_taken_as_one() -> None:
    """As Slurm does, which tests a job after all ends of some 30 s at once, then of ever longer times."""
    ends: list[Release] = [(100.0, ((0, 2),)), (140.0, ((1, 1),)), (1000.0, ((1, 1),))]
    assert planner([0, 0], ends).test(ask(2, 600)) == PlannedStart(140.0, ((0, 2),))
    ends = [(100.0, ((0, 2),)), (160.0, ((1, 1),)), (1000.0, ((1, 1),))]
    assert planner([0, 0], ends).test(ask(2, 600)) == PlannedStart(100.0, ((0, 2),))


def test_who_has_been_started_holds_its_gpus_until_its_limit() -> None:
    plan = planner([2, 0], [(900.0, ((1, 2),))])
    plan.started(((0, 2),), 300.0)
    assert plan.test(ask(2, 600)) == PlannedStart(300.0, ((0, 2),))


def test_nobody_can_say_when_jobs_end_whose_end_is_not_known() -> None:
    assert planner([0, 0], [(float("inf"), ((0, 2),))]).test(ask(1, 60)) is None


PROMISES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(1, 20)), max_size=8)


@given(promised=PROMISES, begin=st.integers(0, 20), length=st.integers(1, 20))
def test_the_slots_of_time_say_who_is_promised_when(
    promised: list[tuple[int, int, int]], begin: int, length: int
) -> None:
    space = NodeSpace(0.0, 100.0)
    for machine, start, lasting in promised:
        space.promise(1 << machine, float(start), float(start + lasting))
    end = begin + length
    taken = {m for m, start, lasting in promised if start < end and start + lasting > begin}
    overlaps = partial(space.overlaps, begin_s=float(begin), end_s=float(end))
    assert {machine for machine in range(4) if overlaps(1 << machine)} == taken
    closed, later_s = space.window(float(begin), float(end) - 0.5)
    assert {machine for machine in range(4) if closed >> machine & 1} == taken
    assert later_s is None or later_s > begin


def test_gpus_of_a_job_that_is_past_its_limit_are_not_free_yet() -> None:
    plan = BackfillPlanner(free([0, 1]), [(40.0, ((0, 2),))], 100.0, DAY_S, 60.0)
    planned = plan.test(ask(2, 600))
    assert planned is not None
    assert planned.start_s > 100.0
