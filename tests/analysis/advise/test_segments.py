"""A rule for segments is advised only where it is surely better than none."""

from collections.abc import Sequence

import numpy as np
import pytest

from analysis.advise.segments import RULES, RuleTimes, advised, jct_change
from analysis.advise.simulated import SimulatedTimes, SimulationTask
from analysis.advise.site import with_segments
from dally.jobs.job import Job
from dally.jobs.segment_rule import NO_SEGMENTS, STATIC_SEGMENTS, SegmentRule
from dally.profiles.costs import CostModel
from dally.testing.worlds import racks

JOBS = 40


def times(jct_s: Sequence[float]) -> SimulatedTimes:
    found = np.array(jct_s, dtype=float)
    return SimulatedTimes(SimulationTask("p"), found / 2, found / 2, found, 0, float(found.max()))


def ruled(*factors: float, noise: float = 0.0) -> list[RuleTimes]:
    """Rules under which all jobs take so many times as long as without, more or less by tenths of them."""
    swing = np.tile([-noise, noise], 5).repeat(JOBS // 10)
    base = times([100.0] * JOBS)
    return [
        RuleTimes(rule, base, times((100.0 * (factor + swing * (factor != 1))).tolist()))
        for rule, factor in zip(RULES, factors, strict=True)
    ]


def test_the_loosest_of_the_best_rules_is_advised() -> None:
    assert advised(ruled(1, 0.95, 0.9, 0.898, 1.2), "dally") == RULES[2]


@pytest.mark.parametrize(
    "rules",
    [ruled(1, 0.995, 1.1, 1.1, 1.1), ruled(1, 0.95, 1.1, 1.1, 1.1, noise=0.2)],
    ids=["within 1 %", "within the interval"],
)
def test_no_segments_are_advised_where_no_rule_is_surely_better(rules: list[RuleTimes]) -> None:
    assert advised(rules, "dally") == NO_SEGMENTS


def test_each_scheduler_has_its_own_advice() -> None:
    assert advised(ruled(1, 0.9, 1, 1, 1), "today") == NO_SEGMENTS


def test_a_change_counts_the_jobs_asked_for() -> None:
    base, other = times([100.0] * 20), times([100.0] * 10 + [300.0] * 10)
    assert jct_change(other, base).value == pytest.approx(2)
    assert jct_change(other, base, np.arange(20) >= 10).value == pytest.approx(3)


def segment(job: Job, rule: SegmentRule = STATIC_SEGMENTS) -> int | None:
    """What a rule sets on two racks of six machines with four GPUs."""
    return with_segments(job, rule, CostModel(racks([[4] * 6] * 2))).segment


def test_a_segment_shrinks_until_the_cluster_has_room() -> None:
    assert segment(Job("j", 0, 48, 10, gpus_per_machine=4)) == 3, "a rack of six holds one of four"
    assert segment(Job("j", 0, 16, 10, gpus_per_machine=4)) == 1


def test_rules_replace_what_jobs_asked_for() -> None:
    job = Job("j", 0, 16, 10, gpus_per_machine=4, segment=4)
    assert segment(job, NO_SEGMENTS) is None
    assert segment(Job("j", 0, 16, 10)) is None, "how many machines it has is not known"
