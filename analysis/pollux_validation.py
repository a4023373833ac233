"""Checks the predictor on Pollux's measured placements, some of them held out, beside Pollux's formula."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.optimize import minimize

from analysis.relative_errors import Errors, summarise
from dally.profiles.imports.pollux import (
    MODELS,
    Measurement,
    pollux_profile,
    read_placements,
    read_scalability,
    t4_shape,
)
from dally.profiles.iteration import predict

TRAINING = ("1", "2", "4", "11", "22", "44", "111", "222", "444", "1111", "2222", "4444")
"""Placements the formulas are fitted on: 1, 2 and 4 GPUs on each of 1 to 4 nodes. That is what a profiling
run would measure; all uneven placements, and those of 3 GPUs a node, are held out."""

Formula = Callable[[Measurement], float]
"""Predicted seconds per step of a placement and local batch."""


@dataclass(frozen=True, slots=True)
class Validation:
    """The errors on one model.

    Attributes:
        model: The model's id.
        ours: The predictor on held-out placements.
        pollux: Pollux's formula on the same ones.
        noise: Differences between measured placements that are permutations of each other.
        far: The predictor on 6 to 16 nodes, of which no placement was fitted.
        pollux_far: Pollux's formula there.
    """

    model: str
    ours: Errors
    pollux: Errors
    noise: Errors
    far: Errors
    pollux_far: Errors


def validate(traces: Path) -> tuple[Validation, ...]:
    """Validate on all models.

    Args:
        traces: Pollux's folder of traces, one folder for each model.

    Raises:
        InputError: A table cannot be read.
    """
    return tuple(_validate_model(model, traces / model) for model in MODELS)


def pollux_formula(parameters: Sequence[float]) -> Formula:
    """Pollux's step time from alpha_c, beta_c, alpha_r, beta_r, alpha_n, beta_n (seconds) and gamma.

    Compute alpha_c + beta_c * batch and synchronisation, alpha + beta * (GPUs - 2) with the r pair on one
    node and the n pair on several, join as (T^gamma + S^gamma)^(1/gamma). Source: Qiao et al., Pollux, OSDI
    2021, section 3.2.
    """
    alpha_c, beta_c, alpha_r, beta_r, alpha_n, beta_n, gamma = parameters

    def step_s(row: Measurement) -> float:
        gpus = sum(row.nodes)
        compute_s = alpha_c + beta_c * row.local_batch
        if gpus == 1:
            return compute_s
        alpha, beta = (alpha_r, beta_r) if len(row.nodes) == 1 else (alpha_n, beta_n)
        sync_s = alpha + beta * (gpus - 2)
        high, low = max(compute_s, sync_s), min(compute_s, sync_s)
        return float(high * (1 + (low / high) ** gamma) ** (1 / gamma))

    return step_s


def fit_pollux(rows: Sequence[Measurement]) -> Formula:
    """Pollux's formula fitted to rows by least squares of log errors, as it is there; gamma in 1 to 10."""
    largest = max(row.local_batch for row in rows)

    def cost(logs: list[float]) -> float:
        formula = pollux_formula(_parameters(logs))
        return sum(math.log(formula(row) / row.step_s) ** 2 for row in rows)

    middle = math.log(statistics.median(row.step_s for row in rows))
    batch = middle - math.log(largest)
    starts = (
        [middle - 1, batch, middle - 2, middle - 4, sync, sync - 2, 0.0] for sync in (middle, middle - 2)
    )
    best = min((_refined(cost, start) for start in starts), key=cost)
    return pollux_formula(_parameters(best))


def _refined(cost: Callable[[list[float]], float], start: list[float]) -> list[float]:
    """Minimise by Nelder and Mead, thrice from where the last time ended, as a simplex may collapse early."""
    for _ in range(3):
        edges = [[value + (place == axis) for place, value in enumerate(start)] for axis in range(len(start))]
        options = {"initial_simplex": [start, *edges], "maxiter": 600, "xatol": 1e-8, "fatol": 1e-12}
        start = minimize(cost, start, method="Nelder-Mead", options=options).x.tolist()
    return start


def _parameters(logs: Sequence[float]) -> list[float]:
    """Six positive numbers from their logarithms, and gamma of 1 to 10 through a logistic curve."""
    gamma = 1 + 9 / (1 + math.exp(-max(-50.0, min(50.0, logs[-1]))))
    return [*(math.exp(max(-50.0, min(50.0, value))) for value in logs[:-1]), gamma]


def _validate_model(model: str, folder: Path) -> Validation:
    rows = read_placements(folder / "placements.csv")
    far = read_scalability(folder / "scalability.csv")
    training = [row for row in rows if row.placement in TRAINING]
    held_out = [row for row in rows if row.placement not in TRAINING]
    ours, pollux = _our_formula(model, training), fit_pollux(training)
    batches = {row.local_batch for row in training if row.nodes == (1,)}
    far = tuple(row for row in far if row.local_batch in batches)
    return Validation(
        model=model,
        ours=_errors(ours, held_out),
        pollux=_errors(pollux, held_out),
        noise=_noise(held_out),
        far=_errors(ours, far),
        pollux_far=_errors(pollux, far),
    )


def _our_formula(model: str, training: Sequence[Measurement]) -> Formula:
    """The predictor on one profile for each local batch, of the training placements."""
    batches = sorted({row.local_batch for row in training})
    profiles = {batch: pollux_profile(model, training, batch, TRAINING) for batch in batches}
    return lambda row: predict(profiles[row.local_batch], t4_shape(row.nodes)).iteration_s


def _errors(formula: Formula, rows: Iterable[Measurement]) -> Errors:
    return summarise([abs(formula(row) / row.step_s - 1) for row in rows])


def _noise(rows: Iterable[Measurement]) -> Errors:
    """How far placements of the same GPUs, in another order of the nodes, are from their mean."""
    groups: dict[tuple[object, ...], list[float]] = {}
    for row in rows:
        groups.setdefault((row.local_batch, *sorted(row.nodes)), []).append(row.step_s)
    repeated = [group for group in groups.values() if len(group) > 1]
    return summarise([abs(value / statistics.mean(group) - 1) for group in repeated for value in group])
