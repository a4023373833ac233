"""The gradient noise scale: how large batches may be before their samples are worth less.

From the gradient of a step and that of a part of its samples: if |G_B|^2 is the squared norm of the gradient
of B samples, and |G_b|^2 that of b of them, then (B |G_B|^2 - b |G_b|^2) / (B - b) estimates that of the true
gradient and (|G_b|^2 - |G_B|^2) / (1/b - 1/B) the trace of a sample's covariance; the noise scale is the
second over the first. Both are averaged over steps before they are divided.
Source: McCandlish et al., An Empirical Model of Large-Batch Training, arXiv 1812.06162, appendix A.1.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

EVERY = 50
"""Steps between two measurements: each takes half a pass over a rank's samples, so a percent of the time."""

_KEPT = 0.9
"""Weight of what was before, with each measurement."""


class NoiseScale:
    """The noise scale of one training, from measurements now and then."""

    def __init__(self) -> None:
        self._gradient = self._noise = 0.0

    def add(self, large: float, samples: int, small: float, part: int) -> None:
        """Take in a measurement.

        Args:
            large: Squared norm of the gradient of a step.
            samples: Of the step.
            small: Squared norm of the gradient of a part of them.
            part: How many they are, fewer.
        """
        gradient = (samples * large - part * small) / (samples - part)
        noise = (small - large) / (1 / part - 1 / samples)
        self._gradient = _KEPT * self._gradient + (1 - _KEPT) * gradient
        self._noise = _KEPT * self._noise + (1 - _KEPT) * noise

    def plain(self) -> list[float]:
        """Both means, as plain data."""
        return [self._gradient, self._noise]

    def restore(self, means: Sequence[float]) -> None:
        """Take back what `plain` gave."""
        self._gradient, self._noise = means

    @property
    def samples(self) -> float | None:
        """The noise scale; None until it is known, and where noise hides the gradient."""
        return self._noise / self._gradient if self._gradient > 0 < self._noise else None


def squared_norm(gradients: Iterable[Tensor | None]) -> float:
    """The squared norm of all gradients together."""
    squares = [gradient.detach().float().pow(2).sum() for gradient in gradients if gradient is not None]
    return float(torch.stack(squares).sum()) if squares else 0.0
