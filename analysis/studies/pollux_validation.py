"""Checks the predictor on Pollux's measured placements, as a user has them, beside Pollux's formula."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from scipy.optimize import minimize

from dally.markdown import table
from dally.profiles.imports.pollux import (
    MODELS,
    Measurement,
    flat_shape,
    pollux_profile,
    read_placements,
    read_scalability,
)
from dally.profiles.iteration import predict


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


DEFAULT_RUN = ("1", "4", "11", "44", "1111", "4444")
"""Placements that `profile-models` measures unless told otherwise on nodes of four GPUs behind one switch
(`profiler.driver.plan.usual_spreads`)."""

TWELVE = ("1", "2", "4", "11", "22", "44", "111", "222", "444", "1111", "2222", "4444")
"""1, 2 and 4 GPUs on each of 1 to 4 nodes, as a run with `--shapes` can measure them. All others are held
out: the uneven ones and those of 3 GPUs a node."""

DIFFERENCES = (1.1, 1.2)
"""Two placements count as different if one takes so many times as long; noise alone reaches the first."""

Formula = Callable[[Measurement], float]
"""Predicted seconds per step of a placement and local batch."""


@dataclass(frozen=True, slots=True)
class MeasuredPoints:
    """What somebody has measured: placements at the middle local batch, and one GPU with more of them.

    Attributes:
        name: In words.
        placements: What was measured at the middle local batch.
        alone: One GPU's local batches of those in the table: `two`, the middle one and the one nearest to its
            half, or `all`.
    """

    name: str
    placements: Sequence[str]
    alone: str

    def rows(self, table: Sequence[Measurement]) -> list[Measurement]:
        """What of a table is known."""
        middle, half = middle_batch(table), half_batch(table)
        return [
            row
            for row in table
            if (row.local_batch == middle and row.placement in self.placements)
            or (row.nodes == (1,) and (self.alone == "all" or row.local_batch == half))
        ]


KNOWLEDGE = (
    MeasuredPoints("default run", DEFAULT_RUN, "two"),
    MeasuredPoints("run of 12 shapes", TWELVE, "two"),
    MeasuredPoints("import", TWELVE, "all"),
)
"""One profiling run, another with more shapes, and one import of the table: one profile for all batches."""


@dataclass(frozen=True, slots=True)
class ModelAccuracy:
    """How well a way to predict did on one model.

    Attributes:
        near: On the placements held out, on up to 4 nodes.
        far: On 6 to 16 nodes, of which nothing was known.
        near_order: Pairs of placements of as many GPUs, with the same local batch, put in the right order, by
            how much they differ at least.
        far_order: The same on 6 to 16 nodes.
    """

    near: Errors
    far: Errors
    near_order: Mapping[float, PairOrder]
    far_order: Mapping[float, PairOrder]


@dataclass(frozen=True, slots=True)
class Validation:
    """The errors on one model.

    Attributes:
        model: The model's id.
        ours: The predictor, by what it knows.
        pollux: Pollux's formula fitted to the same rows.
        pollux_all: Pollux's formula fitted to the twelve placements at all local batches.
        noise: Differences between measured placements that are permutations of each other.
        again: Share of the pairs that all these measurements would put in the order of another measurement,
            by how much they differ at least there.
    """

    model: str
    ours: Mapping[str, ModelAccuracy]
    pollux: Mapping[str, ModelAccuracy]
    pollux_all: ModelAccuracy
    noise: Errors
    again: Mapping[float, float]


def validate(traces: Path) -> tuple[Validation, ...]:
    """Validate on all models.

    Args:
        traces: Pollux's folder of traces, one folder for each model.

    Raises:
        InputError: A table cannot be read.
    """
    return tuple(_validate_model(model, traces / model) for model in MODELS)


def middle_batch(table: Iterable[Measurement]) -> int:
    """The middle one of the local batches that one GPU ran."""
    batches = _batches_alone(table)
    return batches[len(batches) // 2]


def half_batch(table: Iterable[Measurement]) -> int:
    """The local batch that one GPU ran which is nearest to half of the middle one."""
    batches = _batches_alone(table)
    middle = batches[len(batches) // 2]
    return min(batches, key=lambda batch: (batch >= middle, abs(batch - middle / 2)))


def _batches_alone(table: Iterable[Measurement]) -> list[int]:
    return sorted({row.local_batch for row in table if row.nodes == (1,)})


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
    table = read_placements(folder / "placements.csv")
    batches = _batches_alone(table)
    far = [row for row in read_scalability(folder / "scalability.csv") if row.local_batch in batches]

    def found(formula: Formula) -> ModelAccuracy:
        held_out = [row for row in table if row.placement not in TWELVE]
        near_order, far_order = (
            {least: _order(formula, rows, least) for least in DIFFERENCES} for rows in (table, far)
        )
        return ModelAccuracy(_errors(formula, held_out), _errors(formula, far), near_order, far_order)

    known = {each.name: each.rows(table) for each in KNOWLEDGE}
    everything = [row for row in table if row.placement in TWELVE]
    return Validation(
        model=model,
        ours={name: found(our_formula(model, rows, middle_batch(table))) for name, rows in known.items()},
        pollux={name: found(fit_pollux(rows)) for name, rows in known.items()},
        pollux_all=found(fit_pollux(everything)),
        noise=_noise(row for row in table if row.placement not in TWELVE),
        again={least: _again(table, least) for least in DIFFERENCES},
    )


def our_formula(model: str, rows: Sequence[Measurement], local_batch: int) -> Formula:
    """The predictor on one profile of these rows, at one local batch."""
    profile = pollux_profile(model, rows, local_batch, {row.placement for row in rows})
    known: dict[tuple[tuple[int, ...], int], float] = {}

    def step_s(row: Measurement) -> float:
        key = row.nodes, row.local_batch
        if key not in known:
            batch = row.local_batch / local_batch
            known[key] = predict(profile, flat_shape(row.nodes), batch=batch).iteration_s
        return known[key]

    return step_s


def _errors(formula: Formula, rows: Iterable[Measurement]) -> Errors:
    return summarise([formula(row) / row.step_s - 1 for row in rows])


Alike = list[Measurement]
"""Measurements of placements that are permutations of each other, with one local batch."""


def _order(formula: Formula, rows: Iterable[Measurement], least: float) -> PairOrder:
    """How many pairs differ by a factor of `least`, and how many of them the formula puts in order.

    The mean of permutations counts. A tie is a wrong order.
    """
    pairs = right = 0
    for one, other in _pairs(rows):
        (fast, first), (slow, second) = sorted((_mean_s(alike), formula(alike[0])) for alike in (one, other))
        if slow >= fast * least:
            pairs += 1
            right += first < second
    return PairOrder(pairs, right)


def _again(rows: Sequence[Measurement], least: float) -> float:
    """The share of pairs put in order by the measured means, if another measurement is the judge.

    Logarithms of step times are taken as normal, with the deviation of permutations from each other. The
    means stand for the truth, whose differences are smaller, so this is more than anybody can reach.
    """
    alike = [group for group in _alike(rows).values() if len(group) > 1]
    logs = [[math.log(row.step_s) for row in group] for group in alike]
    squares = math.fsum(statistics.pvariance(group) * len(group) for group in logs)
    deviation = math.sqrt(squares / sum(len(group) - 1 for group in alike))
    normal = statistics.NormalDist()
    right = wrong = 0.0
    for one, other in _pairs(rows):
        apart = abs(math.log(_mean_s(one) / _mean_s(other)))
        spread = deviation * math.sqrt(1 / len(one) + 1 / len(other))
        right += normal.cdf((apart - math.log(least)) / spread)
        wrong += normal.cdf((-apart - math.log(least)) / spread)
    return right / (right + wrong)


def _pairs(rows: Iterable[Measurement]) -> Iterator[tuple[Alike, Alike]]:
    """Pairs of placements of as many GPUs with the same batch; those that are permutations are one."""
    choices: dict[tuple[int, int], list[Alike]] = {}
    for (batch, *nodes), alike in _alike(rows).items():
        choices.setdefault((batch, sum(nodes)), []).append(alike)
    for same in choices.values():
        yield from combinations(same, 2)


def _alike(rows: Iterable[Measurement]) -> dict[tuple[int, ...], Alike]:
    """Measurements by their local batch and the GPUs of their nodes, in order of size."""
    groups: dict[tuple[int, ...], Alike] = {}
    for row in rows:
        groups.setdefault((row.local_batch, *sorted(row.nodes)), []).append(row)
    return groups


def _mean_s(alike: Alike) -> float:
    return statistics.mean(row.step_s for row in alike)


def _noise(rows: Iterable[Measurement]) -> Errors:
    """How far placements of the same GPUs, in another order of the nodes, are from their mean."""
    repeated = [alike for alike in _alike(rows).values() if len(alike) > 1]
    return summarise([row.step_s / _mean_s(alike) - 1 for alike in repeated for row in alike])


def errors_table(validations: Sequence[Validation], part: Callable[[ModelAccuracy], Errors]) -> str:
    """Mean errors and biases, ours beside Pollux's form on the same rows, by what is known."""

    def cell(errors: Errors) -> str:
        return f"{errors.mean:.1%} ({errors.bias:+.1%})"

    header = ["model", "rows"]
    for name in validations[0].ours:
        header += [name, "Pollux's form"]
    rows = []
    for item in validations:
        cells = [cell(part(found[name])) for name in item.ours for found in (item.ours, item.pollux)]
        everything = part(item.pollux_all)
        rows.append((item.model, str(everything.rows), *cells, cell(everything), f"{item.noise.mean:.1%}"))
    return table((*header, "Pollux's form, all batches", "noise"), rows)


def order_table(validations: Sequence[Validation]) -> str:
    """Shares of pairs of placements that are put in the right order, near and far, by what is known."""

    def shares(orders: Sequence[PairOrder]) -> tuple[str, ...]:
        parts = (f"{each.right / each.pairs:.0%}" if each.pairs else "-" for each in orders)
        return (str(orders[0].pairs), *parts)

    names = tuple(validations[0].ours)
    ways = (*names, "Pollux's form, all batches")
    header = ("model", "apart", "pairs", *ways, "measured again", "far: pairs", *ways)
    rows = []
    for item in validations:
        found = (*(item.ours[name] for name in names), item.pollux_all)
        for least, again in item.again.items():
            near, far = [each.near_order[least] for each in found], [each.far_order[least] for each in found]
            cells = (*shares(near), f"{again:.0%}", *shares(far))
            rows.append((item.model, f"{least - 1:.0%}", *cells))
    return table(header, rows)
