"""Holds two rules for gangs without a profile against what placements cost.

Both take each level farther apart than need be for as expensive as the next. One stops there; the other has
waiting grow with the machines, as the traffic of a ring with one member on each does. What gangs really lose
is measured, or predicted from profiles and plans that neither rule sees.
"""

import csv
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log
from pathlib import Path
from statistics import fmean

import click

from analysis.studies.common import StudyCommand, publish, write_option
from dally.cluster import load_cluster
from dally.cluster.idle_cluster import IdleCluster
from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Job
from dally.markdown import table
from dally.profiles.allreduce import ring_factor
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.profiles.imports.pollux import read_placements
from dally.traces import load_trace

ASSUMED = 1.25
"""What a live cluster takes each level farther apart to cost."""

NOTABLE = 1.1
"""Of two placements the one that takes so many times as long is the worse one."""

PLACEMENTS = 40
"""So many placements of each gang are tried."""

SIZES = (2, 4, 8, 16, 32)
SEED = 11


@dataclass(frozen=True, slots=True)
class PlacedGang:
    """A gang at one placement.

    Attributes:
        farther: Levels by which it is farther apart than need be.
        machines: Its machines.
        slowdown: Its step over that of the best placement.
    """

    farther: int
    machines: int
    slowdown: float


AssumptionRule = Callable[[PlacedGang], float]

RULES: dict[str, AssumptionRule] = {
    "levels alone": lambda placed: ASSUMED**placed.farther,
    "levels and machines": lambda placed: (
        1 + (ASSUMED**placed.farther - 1) * ring_factor(placed.machines) if placed.farther else 1.0
    ),
}


def random_placements(topology: Topology, gpus: int, rng: random.Random) -> list[Allocation]:
    """Placements of so many GPUs in domains of all levels, on few machines or many, each once."""
    found: set[Allocation] = set()
    for _ in range(5 * PLACEMENTS):
        domain = rng.choice(rng.choice(topology.level_domains)).index
        members = [number for number, above in enumerate(topology.ancestors) if domain in above]
        rng.shuffle(members)
        most, left, gang = rng.choice((1, 2, 4, 8)), gpus, {}
        for member in members:
            if left:
                gang[member] = min(topology.machines[member].gpus, left, most)
                left -= gang[member]
        if not left:
            found.add(tuple(sorted(gang.items())))
    return sorted(found)[:: max(1, len(found) // PLACEMENTS)]


def predicted(
    cluster: str, profiles: str | None, jobs: Sequence[Job], seed: int
) -> Iterator[list[PlacedGang]]:
    """Gangs at random placements, as profiles and plans predict them."""
    topology = load_cluster(cluster)
    costs = CostModel(topology, load_profiles(profiles) if profiles else None)
    idle, rng = IdleCluster(topology), random.Random(seed)
    for job in jobs:
        best = idle.best_level(job.gang)
        yield [
            PlacedGang(topology.level_of(place) - best, len(place), costs.cost(job, place).slowdown)
            for place in random_placements(topology, job.gpus, rng)
        ]


def measured_by_pollux(folder: Path, models: Sequence[str]) -> Iterator[list[PlacedGang]]:
    """Measured gangs of up to the four GPUs of a node, at the placements of each."""
    for model in models:
        rows: dict[tuple[int, int], list[tuple[int, float]]] = {}
        for row in read_placements(folder / model / "placements.csv"):
            if 1 < sum(row.nodes) <= 4:
                key = sum(row.nodes), row.local_batch
                rows.setdefault(key, []).append((len(row.nodes), row.step_s))
        yield from _gangs(rows.values())


def measured_by_deepshare(file: Path) -> Iterator[list[PlacedGang]]:
    """Measured gangs, each on two nodes or more: they tell of machines alone."""
    rows: dict[tuple[str, str], list[tuple[int, float]]] = {}
    with file.open(encoding="utf-8") as lines:
        for name, rate in list(csv.reader(lines))[1:]:
            model, gpus, nodes = name.split(",")
            rows.setdefault((model, gpus), []).append((int(nodes), 1 / float(rate)))
    return _gangs(rows.values())


def _gangs(measured: Iterable[Sequence[tuple[int, float]]]) -> Iterator[list[PlacedGang]]:
    """Gangs out of the machines and seconds of each, on machines of one network."""
    for found in measured:
        best_s = min(step_s for _, step_s in found)
        yield [PlacedGang(int(nodes > 1), nodes, step_s / best_s) for nodes, step_s in found]


def scores(gangs: Sequence[Sequence[PlacedGang]]) -> Iterator[str]:
    """How many placements and pairs there are; of each rule its mean error, and which pairs it has right.

    Errors are those of gangs that were also placed as close as can be, where they are farther apart. A pair
    that a rule takes for alike is half right.
    """
    apart = [
        placed
        for gang in gangs
        if any(not placed.farther for placed in gang)
        for placed in gang
        if placed.farther
    ]
    pairs = [
        (one, other) if one.slowdown > other.slowdown else (other, one)
        for gang in gangs
        for one, other in combinations(gang, 2)
        if abs(log(one.slowdown / other.slowdown)) > log(NOTABLE)
    ]
    yield from (f"{len(apart):,}", f"{len(pairs):,}")
    for rule in RULES.values():
        off = [abs(log(rule(placed) / placed.slowdown)) for placed in apart]
        yield f"{exp(fmean(off)) - 1:.0%}" if off else ""
        right = [(rule(slow) > rule(fast)) + (rule(slow) == rule(fast)) / 2 for slow, fast in pairs]
        yield f"{fmean(right):.0%}" if right else ""


def _with_plans(seed: int) -> list[Job]:
    """Jobs of a generated workload that name a plan, one of each size and plan."""
    jobs = load_trace("kalos-like:jobs=400,most_gpus=64,load=1,cluster_gpus=512", seed=seed).jobs
    return list({(job.model, job.gpus, job.plan): job for job in jobs if job.plan is not None}.values())


def _sets(throughputs: Path) -> Iterator[tuple[str, list[list[PlacedGang]]]]:
    """Sets of gangs by what they are."""
    pollux = throughputs / "pollux" / "traces"
    for pair in (("bert", "cifar10"), ("deepspeech2", "imagenet")):
        yield f"measured, Pollux: {' and '.join(pair)}", list(measured_by_pollux(pollux, pair))
    deepshare = throughputs / "deepshare" / "isolated_thp.csv"
    yield "measured, DeepShare: six models", list(measured_by_deepshare(deepshare))
    models = ("alexnet", "bert-large", "mobilenetv3", "resnet18", "resnet50", "vgg11")
    usual = [Job(f"{model}-{gpus}", 0, gpus, 1, model=model) for model in models for gpus in SIZES]
    for name in ("ethernet-64", "infiniband-64"):
        cluster = f"docs/studies/clusters/{name}.toml"
        yield f"predicted, profiles `realistic`, {name}", list(predicted(cluster, "realistic", usual, SEED))
    for name in ("ethernet-512", "infiniband-512"):
        yield f"predicted, plans, {name}", list(predicted(name, None, _with_plans(SEED), SEED))


@click.command(cls=StudyCommand)
@click.argument("throughputs", type=click.Path(path_type=Path))
@write_option
def main(throughputs: Path, page: Path | None) -> None:
    """Hold two rules for gangs without a profile against costs; THROUGHPUTS has measured tables."""
    rows = []
    for name, gangs in _sets(throughputs):
        rows.append([name, *scores(gangs)])
        click.echo(" | ".join(rows[-1]), err=True)
    heads = [f"{rule}: {what}" for rule in RULES for what in ("error", "in order")]
    publish([("unknown-gangs", table(("steps", "placements apart", "pairs", *heads), rows))], page)


if __name__ == "__main__":
    main()
