"""How close JPS comes to the best placement and how long it takes: `python -m analysis.studies.jps`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from time import perf_counter

import click
import numpy as np

from analysis.studies.common import StudyCommand, publish, seeds_option, write_option
from dally.markdown import table
from dally.policies.common.arrays import Floats, Ints
from dally.policies.jps.categories import count_categories
from dally.policies.jps.instance import Instance
from dally.policies.jps.market import price_ascent
from dally.policies.jps.search import FoundPlacement, Search
from dally.profiles.files import ProfileSet, load_profiles

KINDS = ("k80", "p100", "v100")
SIZES = ((3, 9), (4, 12), (4, 18), (5, 20), (5, 30), (8, 60), (10, 100), (20, 200))
BATCHES = 8
"""The global batch of a job, in batches of one GPU."""
LINK_BPS = 25e9
SHORTEST_S, LONGEST_S = 600.0, 36_000.0
"""Compute left on eight V100, drawn log-uniformly."""
MOST_ENUMERATED = 4_000
"""Categories up to which all are matched."""
MOST_EXACT = 100
"""Workers up to which the optimum is calculated; beyond, the Lagrange dual bounds it."""
BOUND_STEPS = 100
LARGE = 4
"""Beyond that size only one of so many instances is drawn, as bounds and many draws take minutes."""

Method = Callable[[Instance, np.random.Generator], FoundPlacement]

METHODS: dict[str, Method] = {
    "all categories": lambda instance, rng: Search(instance).enumerated(),
    "30 drawn": lambda instance, rng: Search(instance).sampled(rng, 30, alpha=0.0),
    "300 drawn": lambda instance, rng: Search(instance).sampled(rng, 300, alpha=0.0),
    "300 drawn, alpha 0.5": lambda instance, rng: Search(instance).sampled(rng, 300, alpha=0.5),
    "300 drawn, beta 0.5": lambda instance, rng: Search(instance, beta=0.5).sampled(rng, 300, alpha=0.0),
    "guided, 2 markets": lambda instance, rng: Search(instance).guided(2),
    "guided, 30 markets": lambda instance, rng: Search(instance).guided(30),
    "guided, beta 0.5": lambda instance, rng: Search(instance, beta=0.5).guided(30),
    "guided, price ascent": lambda instance, rng: Search(instance, assign=price_ascent).guided(30),
}


# What no placement can beat


def optimum_s(instance: Instance) -> float:
    """The least mean running time of all placements, whatever their category, seconds.

    By dynamic programming over the jobs and the workers of each kind that are left: every way to hand out
    every worker is counted, none by itself. Time grows with the square of the product of the workers of each
    kind, plus one: three kinds of 20 take seconds, twelve kinds of one do too.
    """
    shape = tuple(int(count) + 1 for count in instance.workers)
    after = np.full(shape, np.inf)
    after[tuple(0 for _ in shape)] = 0.0
    for job in reversed(range(len(instance.work))):
        before = np.full(shape, np.inf)
        for given, time_s in zip(_all_gangs(instance), _times_s(instance, job), strict=True):
            if np.isfinite(time_s):
                used = tuple(slice(count, None) for count in given)
                rest = tuple(slice(None, size - count) for count, size in zip(given, shape, strict=True))
                np.minimum(before[used], after[rest] + time_s, out=before[used])
        after = before
    return float(after[tuple(size - 1 for size in shape)]) / len(instance.work)


def bound_s(instance: Instance, reached_s: float, steps: int = 300) -> float:
    """A mean running time that no placement can beat, seconds.

    The Lagrange dual: each job alone takes the workers that are best at given prices of the kinds, and the
    price of all workers is taken off. Any prices give a bound; Polyak's subgradient steps improve them.

    Args:
        instance: What is placed.
        reached_s: The mean of a placement that is known, seconds.
        steps: How often the prices change.
    """
    gangs = np.array(_all_gangs(instance))
    times = np.array([_times_s(instance, job) for job in range(len(instance.work))])
    prices, best = np.zeros(len(instance.workers)), -np.inf
    target, pace = reached_s * len(instance.work), 1.0
    for _ in range(steps):
        chosen = (times + gangs @ prices).argmin(axis=1)
        used = gangs[chosen].sum(axis=0)
        slope = used - instance.workers
        dual = float(times[np.arange(len(times)), chosen].sum() + prices @ slope)
        pace = pace if dual > best else pace * 0.95
        best = max(best, dual)
        if not slope.any():
            break
        prices = prices + pace * (target - dual) / float(slope @ slope) * slope
    return best / len(instance.work)


def _all_gangs(instance: Instance) -> list[tuple[int, ...]]:
    """Each number of workers of each kind."""
    return list(product(*(range(int(count) + 1) for count in instance.workers)))


def _times_s(instance: Instance, job: int) -> Floats:
    """How long a job runs on each gang, seconds; inf where it must not."""
    gangs: Ints = np.array(_all_gangs(instance))
    sizes = gangs.sum(axis=1)
    allowed = (sizes >= instance.least[job]) & (sizes <= instance.most[job])
    refused = (gangs[:, instance.speeds[job] <= 0] > 0).any(axis=1)
    speed = np.where(allowed & ~refused, gangs @ instance.speeds[job], np.nan)
    times = instance.work[job] / speed + instance.comm_s[job] * (1 - 1 / np.maximum(sizes, 1))
    return np.asarray(np.where(allowed & ~refused, times, np.inf))


# The methods beside it


@dataclass(frozen=True, slots=True)
class Trial:
    """One method on one instance: its mean time over the best one, fairness, seconds taken and markets."""

    excess: float
    fairness: float
    taken_s: float
    markets: int


def draw_instance(
    jobs: int, workers: int, rng: np.random.Generator, measured: ProfileSet, typed: ProfileSet
) -> Instance:
    """Jobs of real models on a third each of K80, P100 and V100.

    Compute and gradients of a job are those of a model of `measured` on a V100, the ratios of the speeds of
    the kinds those of one of Gavel's models, drawn independently.
    """

    def speeds_by_kind(model: str) -> Floats:
        """Speeds of one GPU of each kind, of a V100 1."""
        seconds = [profile.compute.total_s for kind in KINDS if (profile := typed.find(model, kind))]
        return seconds[-1] / np.array(seconds)

    drawn = [measured.profiles[at] for at in rng.integers(len(measured.profiles), size=jobs)]
    iteration_s = np.array([profile.compute.total_s for profile in drawn])
    grad_bytes = np.array([profile.model.grad_bytes or 0 for profile in drawn], dtype=np.float64)
    left_s = np.exp(rng.uniform(np.log(SHORTEST_S), np.log(LONGEST_S), size=jobs))
    ratios = np.array([speeds_by_kind(model) for model in typed.models])
    per_kind, rest = divmod(workers, len(KINDS))
    return Instance(
        speeds=ratios[rng.integers(len(ratios), size=jobs)],
        workers=np.array([per_kind + (kind < rest) for kind in range(len(KINDS))]),
        work=BATCHES * left_s,
        comm_s=left_s / iteration_s * 2 * 8 * grad_bytes / LINK_BPS,
        least=np.ones(jobs, dtype=np.int64),
        most=np.full(jobs, workers - jobs + 1),
    )


def _try_all(instance: Instance, rng: np.random.Generator) -> dict[str, Trial]:
    """Every feasible method on one instance, held against the optimum or its bound."""
    found: dict[str, tuple[FoundPlacement, float]] = {}
    for name, method in METHODS.items():
        if name != "all categories" or count_categories(instance) <= MOST_ENUMERATED:
            begun_s = perf_counter()
            found[name] = method(instance, rng), perf_counter() - begun_s
    if int(instance.workers.sum()) <= MOST_EXACT:
        best_s = optimum_s(instance)
    else:
        best_s = bound_s(instance, min(each.mean_s for each, _ in found.values()), BOUND_STEPS)
    return {
        name: Trial(each.mean_s / best_s - 1, each.fairness, taken_s, each.markets)
        for name, (each, taken_s) in found.items()
    }


def study_table(seeds: Sequence[int], instances: int, sizes: Sequence[tuple[int, int]]) -> str:
    """Markdown: a row for each size and method that is feasible, of `instances` with each seed."""
    measured, typed, rows = load_profiles("realistic"), load_profiles("gavel"), list[list[str]]()
    for jobs, workers in sizes:
        drawn = instances if workers <= MOST_EXACT else -(-instances // LARGE)
        found: dict[str, list[Trial]] = {}
        for seed in seeds:
            rng = np.random.default_rng([seed, jobs, workers])
            for _ in range(drawn):
                instance = draw_instance(jobs, workers, rng, measured, typed)
                for name, trial in _try_all(instance, rng).items():
                    found.setdefault(name, []).append(trial)
        for name, trials in found.items():
            rows.append(
                [
                    f"{jobs}, {workers}",
                    name,
                    f"{fmean(each.excess for each in trials):.2%}",
                    f"{max(each.excess for each in trials):.2%}",
                    f"{fmean(each.fairness for each in trials):.3f}",
                    f"{fmean(each.markets for each in trials):.0f}",
                    f"{1000 * fmean(each.taken_s for each in trials):.1f}",
                    f"{1000 * max(each.taken_s for each in trials):.1f}",
                ]
            )
            click.echo("  ".join(rows[-1]), err=True)
    header = ["S, K", "method", "above the best, mean", "worst", "Jain", "markets", "ms, mean", "ms, worst"]
    return table(header, rows)


@click.command(cls=StudyCommand)
@seeds_option
@click.option("--instances", default=10, show_default=True, help="Instances of each seed and size.")
@click.option("--most-workers", default=200, show_default=True, help="Leave larger sizes out.")
@write_option
def main(seeds: Sequence[int], instances: int, most_workers: int, page: Path | None) -> None:
    """How close JPS comes to the best placement of random instances, and how long it takes."""
    sizes = [size for size in SIZES if size[1] <= most_workers]
    publish([("jps", study_table(seeds, instances, sizes))], page)


if __name__ == "__main__":
    main()
