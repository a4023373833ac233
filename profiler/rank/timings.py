"""How often all ranks repeat a timing, and what the repetitions say."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dally.profiles.schema import Timing
from profiler.rank.clocks import Clock
from profiler.rank.exchange import RankExchange
from profiler.spec import MeasurementSpec

LEAST = 3
"""Fewest repetitions of any timing."""

WINDOW_S = 0.25
"""Seconds of iterations whose median is compared with those before, in a warm-up."""

_SETTLED = 0.05
_OUTLIER_SCORE = 3.5
_ENOUGH = 5
_NEAR = 0.02
_FEW = 0.1
_Sample = TypeVar("_Sample")


@dataclass(frozen=True, slots=True)
class Warmth:
    """What a warm-up told.

    Attributes:
        repetitions: How often all ranks are to repeat what is warm.
        settled: Whether its times had settled when the warm-up ended.
    """

    repetitions: int
    settled: bool


def warm_up(
    once: Callable[[], object],
    clock: Clock,
    exchange: RankExchange,
    spec: MeasurementSpec,
    least: int = 1,
    window_s: float = WINDOW_S,
) -> Warmth:
    """Do something until its times settle, and tell how often all ranks are to repeat it then.

    They have settled when the median of a window differs from that of the window before by 5 % or less: a
    GPU raises its clocks and libraries choose their kernels over seconds, not over a number of repetitions.
    After the specification's `warmup_s` the warm-up ends all the same.

    Rank 0's clock decides for all, since a rank that repeated a collective once more would wait for ever. It
    decides here, so that nothing is exchanged between the repetitions.

    Args:
        once: What is timed.
        clock: Of the device on which it is done.
        exchange: With the other ranks.
        spec: Its `warmup_s`, `repetitions` and `budget_s` count.
        least: Fewest times it is done before it counts as warm.
        window_s: Seconds of a window, of three repetitions or more.
    """

    def timed_s() -> float:
        start_s = time.perf_counter()
        once()
        clock.settle()
        return exchange.broadcast(time.perf_counter() - start_s)

    before_s: float | None = None
    spent_s, done = 0.0, 0
    while True:
        left_s = spec.warmup_s - spent_s
        window = [timed_s()]
        while (sum(window) < window_s or len(window) < LEAST) and sum(window) < left_s:
            window.append(timed_s())
        now_s = statistics.median(window)
        spent_s, done = spent_s + sum(window), done + len(window)
        settled = before_s is not None and abs(now_s - before_s) <= _SETTLED * before_s
        if done >= least and (settled or spent_s >= spec.warmup_s):
            return Warmth(affordable_repetitions(now_s, spec), settled)
        before_s = now_s


def affordable_repetitions(once_s: float, spec: MeasurementSpec) -> int:
    """How often something is repeated that takes so many seconds, by the limits of a specification."""
    affordable = spec.budget_s / once_s if once_s > 0 else spec.repetitions
    return max(LEAST, int(min(spec.repetitions, affordable)))


def keep_typical(samples: Sequence[_Sample], duration_s: Callable[[_Sample], float]) -> list[_Sample]:
    """The samples whose durations are no outliers.

    An outlier is one whose modified z-score, 0.6745 |x - median| / MAD with the median absolute deviation
    MAD, is above 3.5 (Iglewicz and Hoaglin, How to Detect and Handle Outliers, ASQC 1993). What lies within
    2 % of the median is none, and fewer than five samples have none: by chance some are nearly equal and MAD
    next to nothing.
    """
    if len(samples) < _ENOUGH:
        return list(samples)
    durations = [duration_s(sample) for sample in samples]
    middle = statistics.median(durations)
    deviation = statistics.median(abs(duration - middle) for duration in durations)
    limit = max(_OUTLIER_SCORE * deviation / 0.6745, _NEAR * middle)
    pairs = zip(samples, durations, strict=True)
    return [sample for sample, duration in pairs if abs(duration - middle) <= limit]


def summarise(durations_s: Sequence[float]) -> Timing:
    """Median, 10th and 90th percentile of at least two durations."""
    middle = statistics.median(durations_s)
    deciles = statistics.quantiles(durations_s, n=10, method="inclusive")
    # Rounding can put the percentiles of nearly equal durations on the wrong side of the median.
    return Timing(middle, min(deciles[0], middle), max(deciles[-1], middle), len(durations_s))


def outlier_flag(what: str, kept: int, made: int) -> tuple[str, ...]:
    """What to say about the outliers dropped, if they are more than one and more than a tenth."""
    dropped = made - kept
    few = dropped <= max(1, _FEW * made)
    return () if few else (f"{dropped} of {made} repetitions of {what} were outliers",)


def warmth_flag(what: str, settled: bool, spec: MeasurementSpec) -> tuple[str, ...]:
    """What to say of a timing that began before its times had settled."""
    return () if settled else (f"{what} had not settled after {spec.warmup_s:g} s of warm-up",)
