"""Workloads that publications describe: Dally's, rebuilt from its figures; Gavel's and Hadar's."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from statistics import NormalDist
from typing import TypeVar

from dally.jobs.job import Job
from dally.traces.synthetic import exponential, job_id, poisson_arrivals_s

Item = TypeVar("Item")

# The published durations of Dally's jobs are times on the jobs' own GPUs: median 14.4 ks, 95th percentile
# 203 ks, longest 762 ks. Durations independent of the GPU count would need 2.6 times the published GPU-hours,
# and work independent of it (ideal time = trace duration / G) 0.84 times. So the duration is log-normal
# work / G**0.806: its three parameters meet the median, the percentile and the 13,054 GPU-hours of the batch
# at once, and then also give 13,291 for the Poisson workload, whose published figure is 13,413.
_MU, _SIGMA, _SHRINK = 10.303, 1.401, 0.806
_LONGEST_S = 762_000.0

GAVEL_SIZES = ((1, 0.7), (2, 0.1), (4, 0.15), (8, 0.05))
"""GPU counts of Gavel's jobs and their shares."""

_GAVEL_MODELS: Mapping[str, int] = {"resnet-18": 5, "resnet-50": 4, "transformer": 5, "lm": 5}
"""Models that run on any number of GPUs, and how many of Gavel's 26 configurations are of each."""

GAVEL_SINGLE: Mapping[str, int] = {"recommendation": 5, "a3c": 1, "cyclegan": 1}
"""Likewise, models that run on one GPU only."""

_HADAR_CLASSES: Mapping[str, tuple[float, float, tuple[str, ...]]] = {
    "S": (0.0, 1.0, ("resnet-18",)),
    "M": (1.0, 10.0, ("cyclegan",)),
    "L": (10.0, 50.0, ("lm", "transformer")),
    "XL": (60.0, 100.0, ("resnet-50",)),
}
"""Hadar's classes of jobs: bounds of their GPU time, hours, and the models that they train."""

_HADAR_SHORTEST_S = 60


@dataclass(frozen=True, slots=True)
class PublishedMix:
    """The published figures of one workload.

    Attributes:
        stream: Names the random streams.
        sizes: Jobs by GPU count.
        models: Jobs by model.
        gpu_hours: Sum over the jobs of GPUs x hours.
        gap_s: Mean time between submissions, seconds; 0 submits all jobs at once.
    """

    stream: str
    sizes: Mapping[int, int]
    models: Mapping[str, int]
    gpu_hours: float
    gap_s: float


BATCH = PublishedMix(
    stream="author-batch",
    sizes={1: 270, 2: 13, 4: 52, 8: 109, 16: 42, 32: 11, 40: 1, 48: 1, 56: 1},
    models={
        "mobilenetv3": 125,
        "bert-large": 125,
        "resnet50": 125,
        "alexnet": 53,
        "resnet18": 38,
        "vgg11": 34,
    },
    gpu_hours=13_054,
    gap_s=0,
)

# The models add up to 411, and 411 gaps of 1453 s are the week: the workload is the 411 multi-GPU jobs alone.
# The published sizes add up to 410 (8: 190): the missing job gets the commonest size.
POISSON = PublishedMix(
    stream="author-poisson",
    sizes={2: 41, 4: 96, 8: 191, 16: 56, 32: 23, 40: 2, 48: 1, 56: 1},
    models={"mobilenetv3": 125, "bert-large": 125, "resnet50": 125, "alexnet": 29, "vgg11": 4, "resnet18": 3},
    gpu_hours=13_413,
    gap_s=1453,
)


def published_workload(name: str, mix: PublishedMix, seed: int) -> list[Job]:
    """Build a workload: counts exact, their pairing by the seed, GPU-hours scaled to the published sum.

    Args:
        name: Prefix of the job ids.
        mix: The published figures.
        seed: Decides which size, model, duration and moment meet in a job.
    """
    spread = [size for size, count in mix.sizes.items() for _ in range(count)]
    sizes = _shuffled(spread, Random(f"{seed}:{mix.stream}:gpus"))
    models = _shuffled(
        [model for model, count in mix.models.items() for _ in range(count)],
        Random(f"{seed}:{mix.stream}:models"),
    )
    # Evenly spaced quantiles of the work: a sample without the luck of the draw in its long tail.
    normal = NormalDist(_MU, _SIGMA)
    quantiles = [math.exp(normal.inv_cdf((at + 0.5) / len(sizes))) for at in range(len(sizes))]
    works = _shuffled(quantiles, Random(f"{seed}:{mix.stream}:durations"))
    durations_s = _scaled(
        [work / size**_SHRINK for work, size in zip(works, sizes, strict=True)], sizes, mix.gpu_hours * 3600.0
    )
    # Poisson arrivals, scaled to exactly the mean gap.
    random = Random(f"{seed}:{mix.stream}:gaps")
    gaps = [0.0] + [exponential(random, 1.0) for _ in range(len(sizes) - 1)]
    scale = mix.gap_s * (len(sizes) - 1) / sum(gaps)
    submits_s = map(round, accumulate(gap * scale for gap in gaps))
    return [
        Job(job_id(name, at), submit_s, size, duration_s, model=model)
        for at, (submit_s, size, duration_s, model) in enumerate(
            zip(submits_s, sizes, durations_s, models, strict=True)
        )
    ]


def _shuffled(items: list[Item], rng: Random) -> list[Item]:
    """The items in random order, by `random()` alone, which Python keeps stable."""
    return sorted(items, key=lambda _: rng.random())


def _scaled(times_s: list[float], sizes: list[int], gpu_s: float) -> list[int]:
    """Durations times the factor that makes the GPU-seconds right, none over the longest; whole seconds."""

    def durations_s(factor: float) -> list[int]:
        return [max(1, round(min(_LONGEST_S, factor * time_s))) for time_s in times_s]

    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2.0
        used = sum(size * time_s for size, time_s in zip(sizes, durations_s(middle), strict=True))
        low, high = (middle, high) if used < gpu_s else (low, middle)
    return durations_s(low)


def gavel_workload(
    name: str, jobs: int, gap_s: float, sizes: tuple[tuple[int, float], ...], seed: int
) -> list[Job]:
    """Draw a workload as Gavel does; job i is the same however many jobs follow it.

    A length is 60 * 10^U(1.5, 3) s for four jobs of five and 60 * 10^U(3, 4) s for the fifth, a mean of
    16.8 h. There it is the time on V100s; here, as for every job, that at the best placement the cluster
    offers. Source: the generator of stanford-futuredata/gavel, c4fa40097339.

    Args:
        name: Prefix of the job ids and of the random streams.
        jobs: How many.
        gap_s: Mean time between submissions, seconds, of Poisson arrivals; 0 submits all at once.
        sizes: GPU counts and their shares.
        seed: Seed of all streams.
    """
    size, length, model, gap = (Random(f"{seed}:{name}:{what}") for what in ("gpus", "s", "models", "gaps"))
    drawn = []
    for at, submit_s in enumerate(poisson_arrivals_s(jobs, gap_s, gap)):
        gpus = _draw(dict(sizes), size)
        low, high = (1.5, 3.0) if length.random() < 0.8 else (3.0, 4.0)
        duration_s = round(60 * 10 ** (low + (high - low) * length.random()))
        trained = _draw({**_GAVEL_MODELS, **GAVEL_SINGLE} if gpus == 1 else _GAVEL_MODELS, model)
        drawn.append(Job(job_id(name, at), submit_s, gpus, duration_s, model=trained))
    return drawn


def _draw(weights: Mapping[Item, float], rng: Random) -> Item:
    return rng.choices([*weights], [*weights.values()])[0]


def hadar_workload(
    name: str, jobs: int, gap_s: float, sizes: tuple[tuple[int, float], ...], seed: int
) -> list[Job]:
    """Draw Hadar's simulated jobs; job i is the same however many jobs follow it.

    They are a quarter each of four classes by GPU time, with a model of profile set `gavel` for each. Of
    CycleGAN that set knows one GPU only, so its jobs have one. A job's GPU time, on GPUs as fast as its best
    placement, is uniform within its class; its GPU count is drawn from Gavel's sizes, as that of Philly's
    jobs is not published with the classes. Source: Sultana et al., Hadar, IPDPS 2024, arXiv 2503.10918;
    bounds and models as we know them, so a reconstruction.

    Args:
        name: Prefix of the job ids and of the random streams.
        jobs: How many.
        gap_s: Mean time between submissions, seconds, of Poisson arrivals; 0 submits all at once.
        sizes: GPU counts and their shares.
        seed: Seed of all streams.
    """
    size, kind, gap = (Random(f"{seed}:{name}:{what}") for what in ("gpus", "classes", "gaps"))
    drawn = []
    for at, submit_s in enumerate(poisson_arrivals_s(jobs, gap_s, gap)):
        least_h, most_h, models = _HADAR_CLASSES[kind.choice([*_HADAR_CLASSES])]
        model = kind.choice(models)
        gpu_h = least_h + (most_h - least_h) * kind.random()
        gpus = _draw(dict(sizes), size)
        if model in GAVEL_SINGLE:
            gpus = 1
        duration_s = max(_HADAR_SHORTEST_S, round(3600 * gpu_h / gpus))
        drawn.append(Job(job_id(name, at), submit_s, gpus, duration_s, model=model))
    return drawn
