"""The numbers behind the figures that compare runs: small, whatever the size of a run."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from analysis.report.bins import Bins
from analysis.report.history import DOWN, RunHistory, Timer
from dally.runs.records import JobRecord
from dally.runs.summary import quantile

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


def usage(history: RunHistory, gpus: int, bins: Bins) -> dict[str, list[float]]:
    """Over time: share of GPUs held, percent, and jobs that waited."""
    held = [each for each in history.held if each.job != DOWN]
    busy = bins.mean([(each.begin_s, each.end_s) for each in held], [len(each.slots) for each in held])
    return {
        "held": [round(float(value), 2) for value in 100 * busy / gpus],
        "waiting": [round(float(value), 2) for value in bins.mean(history.waits)],
    }


def timers_over_time(timers: Sequence[Timer], levels: int, bins: Bins) -> list[dict[str, list[float | None]]]:
    """For each level and bin, the median, least and most delay of the timers told, seconds; None if none."""
    return [_band([timer for timer in timers if timer.level == level], bins) for level in range(levels)]


def _band(timers: Sequence[Timer], bins: Bins) -> dict[str, list[float | None]]:
    told: defaultdict[int, list[float]] = defaultdict(list)
    for timer in timers:
        place = int((timer.began_s - bins.begin_s) / bins.width_s)
        told[min(max(place, 0), bins.count - 1)].append(timer.delay_s)
    delays = [sorted(told[place]) for place in range(bins.count)]
    return {
        name: [round(quantile(each, share), 1) if each else None for each in delays]
        for name, share in (("median", 0.5), ("least", 0.0), ("most", 1.0))
    }


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
