"""The guess of progress: its gradient, and that it learns from finished jobs."""

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import gamma

from dally.policies.ones.beta import BetaNetwork, ProgressPredictor, fit, loss
from dally.policies.ones.progress import EPOCHS_DONE, FEATURES, Training

TEN = Training(epochs=10, epoch_size=360.0, reported_at=(), metric=())
TWENTY = Training(epochs=20, epoch_size=50_000.0, reported_at=(10.0, 20.0), metric=(0.4, 0.8))


def table(*trainings: Training) -> tuple[np.ndarray, np.ndarray]:
    rows = [row for training in trainings for row in training.history()]
    return np.array([inputs for inputs, _ in rows]), np.array([part for _, part in rows])


def test_the_gradient_is_that_of_the_loss() -> None:
    inputs, parts = table(TEN, TWENTY)
    net = BetaNetwork.drawn(FEATURES, np.random.default_rng(2))

    def value(weights: np.ndarray) -> float:
        return loss(BetaNetwork.unpacked(weights), inputs, inputs[:, EPOCHS_DONE], parts)[0]

    def slope(weights: np.ndarray) -> np.ndarray:
        return loss(BetaNetwork.unpacked(weights), inputs, inputs[:, EPOCHS_DONE], parts)[1]

    assert check_grad(value, slope, net.packed()) < 1e-4


def test_the_loss_is_the_density_of_the_beta_distribution() -> None:
    inputs, parts = table(TEN)
    net, alpha = BetaNetwork.drawn(FEATURES, np.random.default_rng(2)), inputs[:, EPOCHS_DONE]
    beta = net.beta(inputs)
    density = (
        gamma(alpha + beta) / gamma(alpha) / gamma(beta) * parts ** (alpha - 1) * (1 - parts) ** (beta - 1)
    )
    expected = -np.log(density).mean()
    assert loss(net, inputs, alpha, parts)[0] == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(4))
def test_it_learns_how_long_jobs_train(seed: int) -> None:
    """After jobs of ten epochs, one that has done five is expected to be about half done."""
    predictor = ProgressPredictor(FEATURES, EPOCHS_DONE, seed)
    for _ in range(5):
        predictor.learn(TEN.history())
    inputs = np.array([TEN.features(0.5)])
    assert 5 / (5 + predictor.net.beta(inputs)[0]) == pytest.approx(0.5, abs=0.1)
    draws = predictor.sample(np.repeat(inputs, 400, axis=0), np.random.default_rng(0))
    assert draws.mean() == pytest.approx(0.5, abs=0.1)


def test_a_net_without_a_gradient_is_reversed() -> None:
    inputs, parts = table(TEN)
    drawn = BetaNetwork.drawn(FEATURES, np.random.default_rng(0))
    dead = BetaNetwork(drawn.first, -drawn.second) if (drawn.beta(inputs) > 1).any() else drawn
    dead = BetaNetwork(np.abs(dead.first), -np.abs(dead.second))
    assert (dead.beta(inputs) == 1).all()
    assert (fit(dead, inputs, inputs[:, EPOCHS_DONE], parts).beta(inputs) > 1).any()


def test_what_it_has_learnt_can_be_taken_back() -> None:
    predictor, other = (ProgressPredictor(FEATURES, EPOCHS_DONE, seed) for seed in (0, 1))
    predictor.learn(TEN.history())
    other.restore(predictor.snapshot())
    assert other.snapshot() == predictor.snapshot()
    inputs = np.array([TEN.features(0.3)])
    assert other.net.beta(inputs) == predictor.net.beta(inputs)


def test_jobs_of_a_single_epoch_teach_nothing() -> None:
    predictor = ProgressPredictor(FEATURES, EPOCHS_DONE, 0)
    before = predictor.snapshot()
    predictor.learn(Training(1, 100.0, (), ()).history())
    assert predictor.snapshot() == before
