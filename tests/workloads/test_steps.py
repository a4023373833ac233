"""A rank's steps last as long as they shall, by a clock that only sleep moves."""

import pytest

from tests.workloads.clock import Clock
from workloads.group import Group
from workloads.settings import Backend, Settings, TrainingJob
from workloads.steps import Steps

PACES_S = (1.0, 2.0)
FAST_FLOPS, SLOW_FLOPS = 1e18, 1e3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of steps and of emulated passes."""
    clock = Clock()
    monkeypatch.setattr("workloads.steps.time", clock)
    monkeypatch.setattr("workloads.emulated.time", clock)
    return clock


def lasts_s(clock: Clock, group: Group, rank: int, flops: float, paces_s: tuple[float, ...] | None) -> float:
    """How long a step of one of two ranks lasts on a pretended GPU of this speed."""
    job = TrainingJob("ncf", 1, Settings(6), Backend.GLOO, emulated_flops=(flops,), pace_s=paces_s)
    steps = Steps(job, group, rank, 2)
    began_s = clock.now_s
    steps.train(0)
    return clock.now_s - began_s


@pytest.mark.parametrize("rank", [0, 1])
def test_a_step_lasts_as_long_as_the_pace_of_its_rank(clock: Clock, alone: Group, rank: int) -> None:
    took_s = lasts_s(clock, alone, rank, FAST_FLOPS, PACES_S)
    assert took_s == pytest.approx(PACES_S[rank] + clock.late_s)


def test_a_step_that_takes_longer_than_its_pace_is_not_held_back(clock: Clock, alone: Group) -> None:
    free_s = lasts_s(clock, alone, 0, SLOW_FLOPS, None)
    assert free_s > PACES_S[0]
    assert lasts_s(clock, alone, 0, SLOW_FLOPS, PACES_S) == pytest.approx(free_s)
