"""Spans of time, laid over equal bins."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bins:
    """Equal bins from `begin_s` on, each `width_s` seconds long."""

    begin_s: float
    width_s: float
    count: int

    @property
    def centres_s(self) -> list[float]:
        """The middle of each bin, seconds."""
        return [self.begin_s + (number + 0.5) * self.width_s for number in range(self.count)]

    def spread(self, begin_s: Floats, end_s: Floats) -> tuple[Numbers, Numbers, Floats]:
        """Cut spans at the bins' edges.

        Returns:
            For each piece: the place of its span, its bin, its length in seconds. What lies outside is
            left out.
        """
        edge = self.begin_s + self.width_s * self.count
        begin = (np.clip(begin_s, self.begin_s, edge) - self.begin_s) / self.width_s
        end = (np.clip(end_s, self.begin_s, edge) - self.begin_s) / self.width_s
        first = np.minimum(begin.astype(np.int64), self.count - 1)
        pieces = np.maximum(np.ceil(end).astype(np.int64) - first, 0)
        span = np.repeat(np.arange(len(first)), pieces)
        step = np.arange(len(span)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        place = first[span] + step
        length = np.minimum(end[span], place + 1) - np.maximum(begin[span], place)
        return span, place, np.maximum(length, 0.0) * self.width_s

    def mean(self, spans: list[tuple[float, float]], weights: Any = None) -> Floats:
        """How many spans there were on average in each bin, each counted `weights` times."""
        begin, end = np.array(spans, dtype=float).reshape(-1, 2).T
        span, place, length_s = self.spread(begin, end)
        each = length_s if weights is None else length_s * np.asarray(weights, dtype=float)[span]
        return np.bincount(place, each, self.count) / self.width_s


def over(begin_s: float, end_s: float, count: int) -> Bins:
    """So many bins between two moments; a second each if the moments are one."""
    return Bins(begin_s, max(end_s - begin_s, 1e-3 * count) / count, count)
