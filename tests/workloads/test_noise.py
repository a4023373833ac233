"""The gradient noise scale: of numbers drawn with a known one, and in a training that it does not change."""

import numpy as np
import pytest
import torch

from tests.workloads.tiny import TINY
from workloads.elastic.batch_rules import Tuning
from workloads.group import Group
from workloads.noise import EVERY, NoiseScale
from workloads.settings import Settings
from workloads.training import Trainer


def test_it_is_found_in_gradients_that_are_drawn_with_a_known_one() -> None:
    """A gradient of 1 in 50 directions, noise of variance 4 in each of a sample's: scale 200 / 50 = 4."""
    draws, noise = np.random.default_rng(0), NoiseScale()
    for _ in range(200):
        samples = 1 + 2 * draws.standard_normal((32, 50))
        large, small = (float((part.mean(axis=0) ** 2).sum()) for part in (samples, samples[:16]))
        noise.add(large, 32, small, 16)
    assert noise.samples == pytest.approx(4, rel=0.2)


def test_nothing_is_known_before_or_where_noise_hides_the_gradient() -> None:
    noise = NoiseScale()
    assert noise.samples is None
    noise.add(1.0, 32, 2.1, 16)
    assert noise.samples is None


def test_a_training_is_the_same_with_and_without(alone: Group) -> None:
    plain, measured = (Trainer(TINY, Settings(8), alone) for _ in range(2))
    measured.noise = NoiseScale()
    for step in range(2 * EVERY + 1):
        losses = [trainer.train(step, range(step, step + 8)) for trainer in (plain, measured)]
        assert torch.equal(*losses)
    assert measured.noise.samples is None or measured.noise.samples > 0
    assert measured.noise._noise != 0


def test_a_checkpoint_keeps_what_was_measured(alone: Group) -> None:
    before, after = (Trainer(TINY, Settings(8), alone) for _ in range(2))
    before.noise, before.tuning = NoiseScale(), Tuning()
    before.noise.add(1.0, 32, 1.5, 16)
    before.tuning.note(2, 8, 0.5)
    after.noise, after.tuning = NoiseScale(), Tuning()
    after.restore(before.state())
    assert after.noise.samples == before.noise.samples is not None
    assert after.tuning.plain() == before.tuning.plain() != []
    plain = Trainer(TINY, Settings(8), alone)
    after.restore(plain.state())
    assert after.noise.samples == before.noise.samples, "a checkpoint of before has none"
