"""What ONES knows of jobs: whose limits double when, who may be stopped, and what a step is told of them."""

from dataclasses import replace

import numpy as np
import pytest

from dally.jobs.job import Job, JobKind
from dally.policies.ones.job_arrays import JobArrays
from dally.policies.ones.job_registry import JobRegistry, SizeLimits, SizeRange
from dally.profiles.costs import CostModel
from dally.state import ClusterState, JobState
from dally.testing.worlds import racks

ELASTIC = Job("a", 0.0, 4, 1000.0, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=16)
"""Ten epochs of 100 s on its four GPUs."""


def running(known: JobRegistry, job: Job = ELASTIC) -> tuple[ClusterState, JobState]:
    """The job alone on all that it asked for, since 0 s."""
    topology = racks([[8]])
    state = ClusterState(topology, CostModel(topology))
    waiting = state.submit(job, 0.0)
    known.add(waiting, "asked")
    started = state.start("a", ((0, 4),), 0.0, 0.0, 1.0)
    known.start(started, 0.0)
    return state, started


def registry() -> JobRegistry:
    return JobRegistry(CostModel(racks([[8]])))


def arrays_of(known: JobRegistry, job: JobState, now: float) -> JobArrays:
    return known.arrays([job], 8, now, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("rule", "doubled"),
    [("none", [True, True, True]), ("life", [False, True, True]), ("stretch", [False, True, False])],
)
def test_a_limit_doubles_at_once_or_after_two_epochs_in_all_or_since_the_last_change(
    rule: str, doubled: list[bool]
) -> None:
    """After one epoch, after two, and one epoch after a change that came then."""
    seen = []
    for now, changed in ((100.0, False), (200.0, False), (300.0, True)):
        known = registry()
        _, job = running(known)
        if changed:
            known.start(job, 200.0)
        known.grow([job], now, rule)
        seen.append(arrays_of(known, job, now).most.tolist() == [8])
    assert seen == doubled


def test_the_arrays_say_what_a_job_holds_and_whether_two_epochs_are_done() -> None:
    known = registry()
    _, job = running(known)
    young, old = arrays_of(known, job, 150.0), arrays_of(known, job, 200.0)
    assert (young.held.tolist(), young.new.tolist(), young.old.tolist()) == ([4], [False], [False])
    assert (old.old.tolist(), young.left_s.tolist()) == ([True], [0.0])
    assert old.left_s[0] > 0


def test_a_job_finished_an_epoch_once_one_ended_since_its_last_change() -> None:
    known = registry()
    _, job = running(known)
    assert [known.finished_epoch(job, now) for now in (99.0, 100.0)] == [False, True]
    assert known.next_epoch_s([job], 150.0) == pytest.approx(200.0)
    known.start(job, 150.0)
    assert [known.finished_epoch(job, now) for now in (199.0, 200.0)] == [False, True]


def test_who_ended_is_forgotten() -> None:
    known = registry()
    _, job = running(known, replace(ELASTIC, duration_s=100.0))
    known.end(job)
    assert known.snapshot()["jobs"] == {}


COSTS = CostModel(racks([[8, 8], [8, 8]]))
SMALL = Job("a", 0.0, 2, 100.0, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=30)


def test_an_elastic_job_has_up_to_four_times_what_it_asked_for() -> None:
    assert SizeRange.of(SMALL, COSTS) == SizeRange(1, 8, 1)
    assert SizeRange.of(replace(SMALL, gpus=10), COSTS) == SizeRange(1, 30, 1)


def test_sizes_are_multiples_of_the_share_on_each_machine() -> None:
    job = replace(SMALL, gpus=6, gpus_per_machine=3, min_gpus=2, max_gpus=11)
    assert SizeRange.of(job, COSTS) == SizeRange(3, 9, 3)


def test_other_jobs_have_one_size() -> None:
    assert SizeRange.of(Job("a", 0.0, 3, 100.0), COSTS) == SizeRange(3, 3, 1)
    assert SizeRange.of(Job("a", 0.0, 3, 100.0, kind=JobKind.FORKED, max_copies=2), COSTS) == SizeRange(
        3, 3, 3
    )


def test_what_was_reached_is_doubled_up_to_the_most() -> None:
    known = SizeLimits(0, 1, 1)
    seen = []
    for held in (1, 1, 4, 8, 8):
        known.grow(SizeRange(1, 12, 1), held)
        seen.append((known.largest, known.limit))
    assert seen == [(2, 2), (2, 2), (4, 4), (8, 8), (12, 12)]


@pytest.mark.parametrize(("held", "limit"), [(8, 4), (6, 4), (1, 2)])
def test_a_job_that_ran_three_times_the_median_gets_half_as_many(held: int, limit: int) -> None:
    """2 * size / (3 + 1): 4, 3 and 0."""
    known = SizeLimits(0, 8, 8)
    known.shrink(SizeRange(1, 16, 1), held, 30.0, 10.0, 1.0)
    assert known.limit == limit


def test_a_stopped_job_may_have_half_but_no_fewer_than_it_needs() -> None:
    known = SizeLimits(0, 8, 8)
    known.halve(SizeRange(3, 8, 1))
    assert known.limit == 4
    known.halve(SizeRange(3, 8, 1))
    assert known.limit == 3
