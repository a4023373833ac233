"""What ONES knows of jobs: whose limits double when, who may be stopped, and what a step is told of them."""

from dataclasses import replace

import numpy as np
import pytest

from dally.jobs.job import Job, JobKind
from dally.policies.ones.register import Register
from dally.policies.ones.roll import Roll
from dally.profiles.costs import CostModel
from dally.state import ClusterState, JobState
from tests.worlds import racks

ELASTIC = Job("a", 0.0, 4, 1000.0, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=16)
"""Ten epochs of 100 s on its four GPUs."""


def running(register: Register, job: Job = ELASTIC) -> tuple[ClusterState, JobState]:
    """The job alone on all that it asked for, since 0 s."""
    topology = racks([[8]])
    state = ClusterState(topology, CostModel(topology))
    waiting = state.submit(job, 0.0)
    register.enter(waiting, "asked")
    started = state.start("a", ((0, 4),), 0.0, 0.0, 1.0)
    register.start(started, 0.0)
    return state, started


def register() -> Register:
    return Register(CostModel(racks([[8]])), 0)


def roll_of(known: Register, job: JobState, now: float) -> Roll:
    return known.roll([job], 8, now, np.random.default_rng(0))


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
        known = register()
        _, job = running(known)
        if changed:
            known.start(job, 200.0)
        known.scale([job], now, rule)
        seen.append(roll_of(known, job, now).most.tolist() == [8])
    assert seen == doubled


def test_a_roll_says_what_a_job_holds_and_whether_two_epochs_are_done() -> None:
    known = register()
    _, job = running(known)
    young, old = roll_of(known, job, 150.0), roll_of(known, job, 200.0)
    assert (young.held.tolist(), young.new.tolist(), young.old.tolist()) == ([4], [False], [False])
    assert (old.old.tolist(), young.left_s.tolist()) == ([True], [0.0])
    assert old.left_s[0] > 0


def test_a_job_is_rested_once_an_epoch_ended_since_its_last_change() -> None:
    known = register()
    _, job = running(known)
    assert [known.rested(job, now) for now in (99.0, 100.0)] == [False, True]
    assert known.next_epoch_s([job], 150.0) == pytest.approx(200.0)
    known.start(job, 150.0)
    assert [known.rested(job, now) for now in (199.0, 200.0)] == [False, True]


def test_who_ended_is_forgotten() -> None:
    known = register()
    _, job = running(known, replace(ELASTIC, duration_s=100.0))
    known.end(job)
    assert known.snapshot()["jobs"] == {}
