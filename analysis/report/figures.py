"""The numbers behind the figures that compare runs: small, whatever the size of a run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.report.history import DOWN, PlacementTimer, RunHistory
from dally.runs.records import JobRecord
from dally.runs.summary import quantile

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TimeBins:
    """Equal spans of time from `begin_s` on, each `width_s` seconds long."""

    begin_s: float
    width_s: float
    count: int

    @classmethod
    def between(cls, begin_s: float, end_s: float, count: int) -> "TimeBins":
        """Divide the time between two moments; bins last a millisecond each if the moments are one."""
        return cls(begin_s, max(end_s - begin_s, 1e-3 * count) / count, count)

    @property
    def centres_s(self) -> list[float]:
        """The middle of each bin, seconds."""
        return [self.begin_s + (number + 0.5) * self.width_s for number in range(self.count)]

    def cut(self, begin_s: Floats, end_s: Floats) -> tuple[Numbers, Numbers, Floats]:
        """Cut spans of time at the bins' edges.

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

    def mean_count(self, spans: list[tuple[float, float]], weights: Any = None) -> Floats:
        """How many spans there were on average in each bin, each counted `weights` times."""
        begin, end = np.array(spans, dtype=float).reshape(-1, 2).T
        span, place, length_s = self.cut(begin, end)
        each = length_s if weights is None else length_s * np.asarray(weights, dtype=float)[span]
        return np.bincount(place, each, self.count) / self.width_s


POINTS = 400
"""Most points of one curve."""
LEAST_S = 1.0
"""Shorter times stand at the left end of a distribution's axis, seconds."""
PREEMPTIONS = (0, 1, 2, 3, 5, 10, 20, 50)
"""Jobs are counted by preemptions from each of these to below the next."""


def distribution(values: Iterable[float]) -> dict[str, list[float]]:
    """Share of values at or below a time: `s` in seconds, `share` in percent, thinned to `POINTS`."""
    ordered = np.sort(np.maximum(np.fromiter(values, dtype=float), LEAST_S))
    if not len(ordered):
        return {"s": [], "share": []}
    places = np.unique(np.linspace(0, len(ordered) - 1, min(POINTS, len(ordered))).round().astype(int))
    share = 100 * (places + 1) / len(ordered)
    return {
        "s": [LEAST_S, *(round(float(value), 2) for value in ordered[places])],
        "share": [0.0, *(round(float(value), 3) for value in share)],
    }


def usage(history: RunHistory, gpus: int, bins: TimeBins) -> dict[str, list[float]]:
    """Over time: share of GPUs held, percent, and jobs that waited."""
    held = [each for each in history.held if each.job != DOWN]
    busy = bins.mean_count([(each.begin_s, each.end_s) for each in held], [len(each.slots) for each in held])
    return {
        "held": [round(float(value), 2) for value in 100 * busy / gpus],
        "waiting": [round(float(value), 2) for value in bins.mean_count(history.waits)],
    }


def timers_over_time(
    timers: Sequence[PlacementTimer], levels: int, bins: TimeBins
) -> list[dict[str, list[float | None]]]:
    """For each level and bin, the median, least and most delay of the timers told, seconds; None if none."""
    delays_s: list[list[list[float]]] = [[[] for _ in range(bins.count)] for _ in range(levels)]
    for timer in timers:
        place = int((timer.began_s - bins.begin_s) / bins.width_s)
        delays_s[timer.level][min(max(place, 0), bins.count - 1)].append(timer.delay_s)
    return [
        {
            name: [round(quantile(sorted(each), share), 1) if each else None for each in by_bin]
            for name, share in (("median", 0.5), ("least", 0.0), ("most", 1.0))
        }
        for by_bin in delays_s
    ]


def preempted_jobs(records: Sequence[JobRecord]) -> list[int]:
    """How many jobs lost their GPUs so often, by the classes of `PREEMPTIONS`."""
    often = [record.preemptions for record in records]
    edges = [*PREEMPTIONS, np.inf]
    return [int(count) for count in np.histogram(often, bins=np.array(edges, dtype=float))[0]]


def preemption_classes() -> list[str]:
    """The names of the classes: 0, 1, 2, 3 to 4, 5 to 9 and so on."""
    pairs = pairwise(PREEMPTIONS)
    names = [str(low) if high == low + 1 else f"{low} to {high - 1}" for low, high in pairs]
    return [*names, f"{PREEMPTIONS[-1]} or more"]
