"""The predicted slowdown of intervals is that of the links as they were shared, weighted by time."""

import pytest

from dally.jobs.job import Job
from dally.profiles.contention import SharedLinks
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from testbed.fidelity.slowdowns import HeldSpan, predict_slowdowns
from tests.testbed.fidelity.live_folders import TWO_RACKS

COSTS = CostModel(TWO_RACKS, load_profiles("realistic"))
JOBS = [Job(name, 0.0, 2, 100.0, model="vgg11") for name in ("a", "b")]
ACROSS = [((0, 1), (2, 1)), ((1, 1), (3, 1))]
"""Two gangs, each on a node of both racks."""


def span(which: int, training_s: float, end_s: float) -> HeldSpan:
    return HeldSpan(JOBS[which], ACROSS[which], training_s - 5.0, training_s, end_s, training_s)


def together() -> float:
    """The slowdown of each of the two while both train."""
    links = SharedLinks(COSTS)
    for job, allocation in zip(JOBS, ACROSS, strict=True):
        links.start(job, allocation)
    return dict(links.changes())["a"].slowdown


def test_an_interval_alone_has_the_slowdown_of_its_placement() -> None:
    (slowdown,) = predict_slowdowns([span(0, 10.0, 60.0)], COSTS, contention=True)
    assert slowdown.shared == pytest.approx(slowdown.alone)
    assert slowdown.alone == COSTS.cost(JOBS[0], ACROSS[0]).slowdown


def test_steps_are_slower_only_while_another_trains_on_the_same_links() -> None:
    first, second = predict_slowdowns([span(0, 10.0, 110.0), span(1, 60.0, 160.0)], COSTS, contention=True)
    assert together() > 1.2 * first.alone
    steps = 50.0 / first.alone + 50.0 / together()
    assert first.shared == pytest.approx(100.0 / steps)
    assert second.shared == pytest.approx(first.shared)


def test_a_neighbour_that_starts_up_sends_nothing() -> None:
    first, _ = predict_slowdowns([span(0, 10.0, 110.0), span(1, 110.0, 160.0)], COSTS, contention=True)
    assert first.shared == pytest.approx(first.alone)


def test_an_interval_without_a_step_slows_nobody_and_has_the_slowdown_of_its_placement() -> None:
    first, second = predict_slowdowns([span(0, 10.0, 110.0), span(1, 60.0, 60.0)], COSTS, contention=True)
    assert first.shared == pytest.approx(first.alone)
    assert second.shared == second.alone


def test_without_contention_nobody_slows_another() -> None:
    for slowdown in predict_slowdowns([span(0, 10.0, 110.0), span(1, 10.0, 110.0)], COSTS, contention=False):
        assert slowdown.shared == slowdown.alone
