"""Fits the constants of steps to measured ones: least squares on relative error."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from math import copysign, exp, log, sqrt

from scipy.optimize import least_squares

from dally.errors import InputError
from dally.profiles.parallel.step_constants import USUAL, StepConstants
from dally.profiles.parallel.training_step import TrainingStep

_OUTLIER = 0.1
"""Relative error from which a row counts by less than its square."""

_PRIOR = 0.1
"""A constant that is e times its usual value counts as much as a row that is 10 % off: constants of which the
rows tell nothing stay as usual."""

_MOST_ROWS = 50
"""More rows count together as much as so many: what the model leaves out makes the errors of one table
alike."""


def fit_constants(
    measured: Sequence[tuple[TrainingStep, float]], usual: StepConstants = USUAL
) -> StepConstants:
    """Find the constants that fit measured steps best.

    Args:
        measured: Steps, each with its measured seconds.
        usual: Where to begin, and what holds as far as the steps tell nothing.

    Raises:
        InputError: There is no step, or a time is not positive.
    """
    if not measured:
        raise InputError("no measured step to fit the constants to, need at least one")
    for _, seconds in measured:
        if not 0 < seconds < float("inf"):
            raise InputError(f"a measured step took {seconds} s, must be a positive number")
    start = [log(value) for value in asdict(usual).values()]
    taken = [log(seconds) for _, seconds in measured]

    weight = min(1.0, sqrt(_MOST_ROWS / len(measured)))

    def residuals(logs: Sequence[float]) -> list[float]:
        constants = _constants(logs)
        off = (log(step.seconds(constants)) - at for (step, _), at in zip(measured, taken, strict=True))
        unusual = (_PRIOR * (value - first) for value, first in zip(logs, start, strict=True))
        return [*(weight * _softened(each) for each in off), *unusual]

    return _constants(least_squares(residuals, start).x)


def _softened(off: float) -> float:
    """A residual whose square grows only linearly from an outlier's size on (the soft L1 loss)."""
    return copysign(_OUTLIER * sqrt(2 * (sqrt(1 + (off / _OUTLIER) ** 2) - 1)), off)


def _constants(logs: Sequence[float]) -> StepConstants:
    names = (each.name for each in fields(StepConstants))
    values: Mapping[str, float] = {name: exp(value) for name, value in zip(names, logs, strict=True)}
    return StepConstants(**values)
