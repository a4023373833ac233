"""Relative errors of predictions, summarised."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors |predicted / measured - 1| over a number of rows."""

    rows: int
    median: float
    mean: float
    worst: float


def summarise(errors: Sequence[float]) -> Errors:
    """Summarise absolute errors, at least one."""
    return Errors(len(errors), statistics.median(errors), statistics.mean(errors), max(errors))
