"""How close JPS comes to the best placement and how long it takes: `python -m analysis.studies.jps`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import perf_counter

import click
import numpy as np

from analysis.studies.jps_optimum import bound_s, optimum_s
from dally.markdown import replace_section, table
from dally.policies.jps.categories import count_categories
from dally.policies.jps.instance import Floats, Instance
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
"""Of so many instances one is drawn beyond that size: bounds and many draws take minutes."""

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
    drawn = [measured.profiles[at] for at in rng.integers(len(measured.profiles), size=jobs)]
    iteration_s = np.array([profile.compute.total_s for profile in drawn])
    grad_bytes = np.array([profile.model.grad_bytes or 0 for profile in drawn], dtype=np.float64)
    left_s = np.exp(rng.uniform(np.log(SHORTEST_S), np.log(LONGEST_S), size=jobs))
    ratios = np.array([_ratios(typed, model) for model in typed.models])
    per_kind, rest = divmod(workers, len(KINDS))
    return Instance(
        speeds=ratios[rng.integers(len(ratios), size=jobs)],
        workers=np.array([per_kind + (kind < rest) for kind in range(len(KINDS))]),
        work=BATCHES * left_s,
        comm_s=left_s / iteration_s * 2 * 8 * grad_bytes / LINK_BPS,
        least=np.ones(jobs, dtype=np.int64),
        most=np.full(jobs, workers - jobs + 1),
    )


def _ratios(typed: ProfileSet, model: str) -> Floats:
    """Speeds of one GPU of each kind, of a V100 1."""
    seconds = [profile.compute.total_s for kind in KINDS if (profile := typed.find(model, kind))]
    return seconds[-1] / np.array(seconds)


def run_trials(jobs: int, workers: int, seeds: Sequence[int], instances: int) -> dict[str, list[Trial]]:
    """Every method that is feasible on random instances of a size, `instances` of each seed."""
    measured, typed = load_profiles("realistic"), load_profiles("gavel")
    trials: dict[str, list[Trial]] = {}
    for seed in seeds:
        rng = np.random.default_rng([seed, jobs, workers])
        for _ in range(instances):
            instance = draw_instance(jobs, workers, rng, measured, typed)
            for name, trial in _try_all(instance, rng).items():
                trials.setdefault(name, []).append(trial)
    return trials


def _try_all(instance: Instance, rng: np.random.Generator) -> dict[str, Trial]:
    found: dict[str, tuple[FoundPlacement, float]] = {}
    for name, method in METHODS.items():
        if name == "all categories" and count_categories(instance) > MOST_ENUMERATED:
            continue
        begun_s = perf_counter()
        found[name] = method(instance, rng), perf_counter() - begun_s
    best_s = _best_s(instance, min(each.mean_s for each, _ in found.values()))
    return {
        name: Trial(each.mean_s / best_s - 1, each.fairness, taken_s, each.markets)
        for name, (each, taken_s) in found.items()
    }


def _best_s(instance: Instance, reached_s: float) -> float:
    if int(instance.workers.sum()) <= MOST_EXACT:
        return optimum_s(instance)
    return bound_s(instance, reached_s, BOUND_STEPS)


def study_table(seeds: Sequence[int], instances: int, sizes: Sequence[tuple[int, int]]) -> str:
    """Markdown: a row for each size and method."""
    rows: list[list[str]] = []
    for jobs, workers in sizes:
        drawn = instances if workers <= MOST_EXACT else -(-instances // LARGE)
        for name, trials in run_trials(jobs, workers, seeds, drawn).items():
            rows.append([f"{jobs}, {workers}", name, *_cells(trials)])
            click.echo("  ".join(rows[-1]), err=True)
    header = ["S, K", "method", "above the best, mean", "worst", "Jain", "markets", "ms, mean", "ms, worst"]
    return table(header, rows)


def _cells(trials: Sequence[Trial]) -> list[str]:
    def mean(name: str) -> float:
        return fmean(getattr(trial, name) for trial in trials)

    return [
        f"{mean('excess'):.2%}",
        f"{max(trial.excess for trial in trials):.2%}",
        f"{mean('fairness'):.3f}",
        f"{mean('markets'):.0f}",
        f"{1000 * mean('taken_s'):.1f}",
        f"{1000 * max(trial.taken_s for trial in trials):.1f}",
    ]


@click.command()
@click.option("--seeds", default="1,2,3", show_default=True, help="Seeds, separated by commas.")
@click.option("--instances", default=10, show_default=True, help="Instances of each seed and size.")
@click.option("--most-workers", default=200, show_default=True, help="Leave larger sizes out.")
@click.option(
    "--write", type=click.Path(path_type=Path), help="Put the table into this document's section jps."
)
def main(seeds: str, instances: int, most_workers: int, write: Path | None) -> None:
    """How close JPS comes to the best placement of random instances, and how long it takes."""
    sizes = [size for size in SIZES if size[1] <= most_workers]
    body = study_table([int(seed) for seed in seeds.split(",")], instances, sizes)
    if write is None:
        click.echo(body)
    else:
        write.write_text(replace_section(write.read_text(encoding="utf-8"), "jps", body), encoding="utf-8")


if __name__ == "__main__":
    main()
