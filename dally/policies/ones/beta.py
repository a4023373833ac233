"""How much of its work a job has done, guessed as a Beta distribution that finished jobs teach.

Source: Bian et al., ONES, SC 2021: rho ~ Beta(alpha, beta), alpha = Y / D, beta = 1 + ReLU(w2 tanh(W1 x)).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, digamma

from dally.policies.common.arrays import Floats

HIDDEN = 64
MOST_ROWS = 400
"""Rows of finished jobs that are kept to learn from."""
LEAST_PART = 1e-6
STEPS = 60
"""Evaluations of each fit, as many as the publication's epochs."""


@dataclass(frozen=True, slots=True)
class BetaNetwork:
    """beta = 1 + ReLU(w2 tanh(W1 x)).

    Attributes:
        first: (HIDDEN, features) W1.
        second: (HIDDEN,) w2.
    """

    first: Floats
    second: Floats

    @classmethod
    def drawn(cls, features: int, rng: np.random.Generator) -> "BetaNetwork":
        """A network that has learnt nothing."""
        return cls(
            rng.normal(size=(HIDDEN, features)) / np.sqrt(features), rng.normal(size=HIDDEN) / np.sqrt(HIDDEN)
        )

    @classmethod
    def unpacked(cls, weights: Floats) -> "BetaNetwork":
        """The network of weights in one row, as `packed` gives them."""
        return cls(weights[HIDDEN:].reshape(HIDDEN, -1), weights[:HIDDEN])

    def packed(self) -> Floats:
        """(HIDDEN * (1 + features),) its weights: w2, then W1 row by row."""
        return np.concatenate((self.second, self.first.ravel()))

    def beta(self, inputs: Floats) -> Floats:
        """(rows,) beta for inputs (rows, features)."""
        return 1 + np.maximum(0.0, np.tanh(inputs @ self.first.T) @ self.second)


def loss(net: BetaNetwork, inputs: Floats, alpha: Floats, parts: Floats) -> tuple[float, Floats]:
    """Mean of -log Beta(parts; alpha, beta) over rows, and its gradient by the packed weights.

    Args:
        net: That gives beta.
        inputs: (rows, features).
        alpha: (rows,) above 0.
        parts: (rows,) what was really done then, between 0 and 1.
    """
    hidden = np.tanh(np.einsum("rf,hf->rh", inputs, net.first))
    out = np.einsum("rh,h->r", hidden, net.second)
    beta = 1 + np.maximum(0.0, out)
    log_rest = np.log1p(-parts)
    losses = betaln(alpha, beta) - (alpha - 1) * np.log(parts) - (beta - 1) * log_rest
    by_out = np.where(out > 0, digamma(beta) - digamma(alpha + beta) - log_rest, 0.0) / len(parts)
    by_hidden = by_out[:, None] * net.second * (1 - hidden**2)
    return float(losses.mean()), np.concatenate(
        (np.einsum("rh,r->h", hidden, by_out), np.einsum("rh,rf->hf", by_hidden, inputs).ravel())
    )


def fit(net: BetaNetwork, inputs: Floats, alpha: Floats, parts: Floats) -> BetaNetwork:
    """The network after a truncated Newton search of `STEPS` evaluations on the mean loss.

    A network whose ReLU is 0 on all rows has no gradient: it begins with w2 reversed. Neither the search nor
    `loss` goes through BLAS, whose threads make such small products ten times as slow.
    """
    if not (net.beta(inputs) > 1).any():
        net = BetaNetwork(net.first, -net.second)

    def value(weights: Floats) -> tuple[float, Floats]:
        return loss(BetaNetwork.unpacked(weights), inputs, alpha, parts)

    return BetaNetwork.unpacked(
        minimize(value, net.packed(), jac=True, method="TNC", options={"maxfun": STEPS}).x
    )


class ProgressPredictor:
    """The network, and the rows of finished jobs that it learns from.

    Args:
        features: Numbers in a row of inputs.
        alpha: Which of them is the alpha of the distribution.
        seed: Of the first weights.
    """

    def __init__(self, features: int, alpha: int, seed: int) -> None:
        self.net = BetaNetwork.drawn(features, np.random.default_rng([seed]))
        self._alpha = alpha
        self._rows: list[list[float]] = []

    def learn(self, history: Sequence[tuple[list[float], float]]) -> None:
        """Take the rows of a finished job, inputs and part done, and fit the network to the newest rows."""
        self._rows = [*self._rows, *([*inputs, part] for inputs, part in history)][-MOST_ROWS:]
        if self._rows:
            inputs, parts = np.split(np.array(self._rows), [-1], axis=1)
            self.net = fit(self.net, inputs, inputs[:, self._alpha], parts[:, 0])

    def sample(self, inputs: Floats, rng: np.random.Generator) -> Floats:
        """(rows,) a draw of the part done for each row of inputs (rows, features), above 0."""
        parts: Floats = rng.beta(inputs[:, self._alpha], self.net.beta(inputs))
        return np.maximum(parts, LEAST_PART)

    def snapshot(self) -> dict[str, Any]:
        """What it has learnt, as plain data."""
        return {"weights": self.net.packed().tolist(), "rows": self._rows}

    def restore(self, learnt: dict[str, Any]) -> None:
        """Take back what `snapshot` gave."""
        self.net, self._rows = BetaNetwork.unpacked(np.array(learnt["weights"])), learnt["rows"]
