"""The two workloads of Dally's publication, rebuilt from their published figures.

The published durations are times on the jobs' own GPUs: median 14.4 ks, 95th percentile 203 ks, longest
762 ks. Durations independent of the GPU count would need 2.6 times the published GPU-hours, and work
independent of it (ideal time = trace duration / G) 0.84 times. So the duration is log-normal work / G**0.806:
its three parameters meet the median, the percentile and the 13,054 GPU-hours of the batch at once, and then
also give 13,291 for the Poisson workload, whose published figure is 13,413.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
from typing import TypeVar

from dally.jobs.job import Job
from dally.traces.synthetic import exponential, job_id

_MU, _SIGMA, _SHRINK = 10.303, 1.401, 0.806
_LONGEST_S = 762_000.0

Item = TypeVar("Item")


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
    sizes = _shuffled(_spread(mix.sizes), Random(f"{seed}:{mix.stream}:gpus"))
    models = _shuffled(_spread(mix.models), Random(f"{seed}:{mix.stream}:models"))
    works = _shuffled(_work_quantiles(len(sizes)), Random(f"{seed}:{mix.stream}:durations"))
    durations_s = _scaled(
        [work / size**_SHRINK for work, size in zip(works, sizes, strict=True)], sizes, mix.gpu_hours * 3600.0
    )
    submits_s = _submissions(len(sizes), mix.gap_s, Random(f"{seed}:{mix.stream}:gaps"))
    return [
        Job(job_id(name, at), submit_s, size, duration_s, model=model)
        for at, (submit_s, size, duration_s, model) in enumerate(
            zip(submits_s, sizes, durations_s, models, strict=True)
        )
    ]


def _spread(counts: Mapping[Item, int]) -> list[Item]:
    """Each item as often as it is counted."""
    return [item for item, count in counts.items() for _ in range(count)]


def _shuffled(items: list[Item], rng: Random) -> list[Item]:
    """The items in random order, by `random()` alone, which Python keeps stable."""
    return sorted(items, key=lambda _: rng.random())


def _work_quantiles(count: int) -> list[float]:
    """Evenly spaced quantiles of the work: a sample without the luck of the draw in its long tail."""
    normal = NormalDist(_MU, _SIGMA)
    return [math.exp(normal.inv_cdf((at + 0.5) / count)) for at in range(count)]


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


def _submissions(count: int, gap_s: float, rng: Random) -> list[int]:
    """Poisson arrivals stretched to exactly the mean gap; all 0 for no gap."""
    gaps = [0.0] + [exponential(rng, 1.0) for _ in range(count - 1)]
    stretch = gap_s * (count - 1) / sum(gaps)
    total, submits_s = 0.0, []
    for gap in gaps:
        total += gap * stretch
        submits_s.append(round(total))
    return submits_s
