"""A rank's steps last as long as they shall, by a clock that only sleep moves."""

from pathlib import Path

import numpy as np
import pytest

from tests.workloads.step_clock import StepClock
from workloads.group import Group
from workloads.layers import find_layers
from workloads.registry import WORKLOADS
from workloads.settings import Backend, Settings, TrainingJob
from workloads.steps import Steps

PACES_S = (1.0, 2.0)
FAST_FLOPS, SLOW_FLOPS = 1e18, 1e3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StepClock:
    """The clock of steps and of emulated passes."""
    clock = StepClock()
    monkeypatch.setattr("workloads.steps.time", clock)
    monkeypatch.setattr("workloads.emulated.time", clock)
    monkeypatch.setattr("workloads.training.time", clock)
    return clock


def lasts_s(
    clock: StepClock, group: Group, rank: int, flops: float, paces_s: tuple[float, ...] | None
) -> float:
    """How long a step of one of two ranks lasts on a pretended GPU of this speed."""
    job = TrainingJob("ncf", 1, Settings(6), Backend.GLOO, emulated_flops=(flops,), pace_s=paces_s)
    steps = Steps(job, group, rank, 2)
    began_s = clock.now_s
    steps.train(0)
    return clock.now_s - began_s


@pytest.mark.parametrize("rank", [0, 1])
def test_a_step_lasts_as_long_as_the_pace_of_its_rank(clock: StepClock, alone: Group, rank: int) -> None:
    took_s = lasts_s(clock, alone, rank, FAST_FLOPS, PACES_S)
    assert took_s == pytest.approx(PACES_S[rank] + clock.late_s)


def test_a_step_that_takes_longer_than_its_pace_is_not_held_back(clock: StepClock, alone: Group) -> None:
    free_s = lasts_s(clock, alone, 0, SLOW_FLOPS, None)
    assert free_s > PACES_S[0]
    assert lasts_s(clock, alone, 0, SLOW_FLOPS, PACES_S) == pytest.approx(free_s)


def test_on_real_samples_a_pretended_gpu_computes_and_takes_its_time_for_each(
    clock: StepClock, alone: Group, tmp_path: Path
) -> None:
    """Twice as many samples take twice as long, and the parameters change."""
    images = np.random.default_rng(0).integers(0, 255, (8, 1, 8, 8)).astype(np.uint8)
    np.savez(tmp_path / "data.npz", inputs=images, targets=np.arange(8))
    took_s = []
    for batch in (4, 8):
        job = TrainingJob(
            "digits", 1, Settings(batch), Backend.GLOO, emulated_flops=(1e6,), data=tmp_path / "data.npz"
        )
        steps, began_s = Steps(job, alone, 0, 1), clock.now_s
        before = [each.clone() for each in steps.trainer.module.parameters()]
        steps.train(0)
        took_s.append(clock.now_s - began_s)
        changed = zip(before, steps.trainer.module.parameters(), strict=True)
        assert any(not old.equal(new) for old, new in changed)
        assert steps.identity["emulation"] is False
    _, layers = find_layers(WORKLOADS["digits"])
    per_sample_s = (3 * sum(layer.flops for layer in layers) - layers[0].flops) / 1e6
    assert took_s == pytest.approx([4 * per_sample_s, 8 * per_sample_s], abs=3 * clock.late_s)
