"""Relative errors of predictions, summarised, and how often they order two measurements right."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors |predicted / measured - 1| over a number of rows; the bias is their signed mean."""

    rows: int
    mean: float
    worst: float
    bias: float


@dataclass(frozen=True, slots=True)
class PairOrder:
    """Pairs of measurements that differ notably, and how many of them are predicted in the right order."""

    pairs: int
    right: int


def summarise(errors: Sequence[float]) -> Errors:
    """Summarise errors with their signs, negative where the prediction is too small; at least one."""
    sizes = [abs(error) for error in errors]
    return Errors(len(sizes), statistics.mean(sizes), max(sizes), statistics.mean(errors))
