"""How often all ranks repeat a timing, and what the repetitions say."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from dally.profiles.schema import Timing
from profiler.orders import Order
from profiler.rank.clocks import Clock
from profiler.rank.exchange import Exchange

LEAST = 3
"""Fewest repetitions of any timing."""

_OUTLIER_SCORE = 3.5
_ENOUGH = 5
_NEAR = 0.02
_FEW = 0.1
_Sample = TypeVar("_Sample")


def warm_up(
    once: Callable[[], object], clock: Clock, exchange: Exchange, order: Order, least: int = 1
) -> int:
    """Do something until it is warm, and tell how often all ranks are to repeat it then.

    Rank 0's clock decides for all, since a rank that repeated a collective once more would wait for ever. It
    decides here, so that nothing is exchanged between the repetitions. What takes longer than the budget is
    not warmed up further.

    Args:
        once: What is timed.
        clock: Of the device on which it is done.
        exchange: With the other ranks.
        order: Its `warmup`, `repetitions` and `budget_s` count.
        least: Fewest times it is done before it counts as warm.
    """
    spent_s = once_s = 0.0
    for done in range(max(least, order.warmup)):
        if done >= least and spent_s >= order.budget_s:
            break
        start_s = time.perf_counter()
        once()
        clock.settle()
        once_s = exchange.decide(time.perf_counter() - start_s)
        spent_s += once_s
    return affordable_repetitions(once_s, order)


def affordable_repetitions(once_s: float, order: Order) -> int:
    """How often an order has something repeated that takes so many seconds."""
    affordable = order.budget_s / once_s if once_s > 0 else order.repetitions
    return max(LEAST, int(min(order.repetitions, affordable)))


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
