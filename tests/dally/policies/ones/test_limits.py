"""How many GPUs a job may have."""

from dataclasses import replace

import pytest

from dally.jobs.job import Job, JobKind
from dally.policies.ones.limits import SizeLimits, Sizes
from dally.profiles.costs import CostModel
from tests.worlds import racks

COSTS = CostModel(racks([[8, 8], [8, 8]]))
ELASTIC = Job("a", 0.0, 2, 100.0, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=30)


def test_an_elastic_job_has_up_to_four_times_what_it_asked_for() -> None:
    assert Sizes.of(ELASTIC, COSTS) == Sizes(1, 8, 1)
    assert Sizes.of(replace(ELASTIC, gpus=10), COSTS) == Sizes(1, 30, 1)


def test_sizes_are_multiples_of_the_share_on_each_machine() -> None:
    job = replace(ELASTIC, gpus=6, gpus_per_machine=3, min_gpus=2, max_gpus=11)
    assert Sizes.of(job, COSTS) == Sizes(3, 9, 3)


def test_other_jobs_have_one_size() -> None:
    assert Sizes.of(Job("a", 0.0, 3, 100.0), COSTS) == Sizes(3, 3, 1)
    assert Sizes.of(Job("a", 0.0, 3, 100.0, kind=JobKind.FORKED, max_copies=2), COSTS) == Sizes(3, 3, 3)


def test_what_was_reached_is_doubled_up_to_the_most() -> None:
    known = SizeLimits(0, 1, 1)
    seen = []
    for held in (1, 1, 4, 8, 8):
        known.grow(Sizes(1, 12, 1), held)
        seen.append((known.largest, known.limit))
    assert seen == [(2, 2), (2, 2), (4, 4), (8, 8), (12, 12)]


@pytest.mark.parametrize(("held", "limit"), [(8, 4), (6, 4), (1, 2)])
def test_who_ran_three_times_the_median_gets_half_as_many_rounded_up_to_even(held: int, limit: int) -> None:
    """2 * size / (3 + 1): 4, 3 and 0."""
    known = SizeLimits(0, 8, 8)
    known.shrink(Sizes(1, 16, 1), held, 30.0, 10.0, 1.0)
    assert known.limit == limit


def test_a_stopped_job_may_have_half_but_no_fewer_than_it_needs() -> None:
    known = SizeLimits(0, 8, 8)
    known.halve(Sizes(3, 8, 1))
    assert known.limit == 4
    known.halve(Sizes(3, 8, 1))
    assert known.limit == 3
