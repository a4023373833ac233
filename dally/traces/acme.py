"""A workload like that of Kalos, a cluster of Shanghai AI Laboratory's Acme, where LLMs are developed.

Source: Hu et al., Characterization of Large Language Model Development in the Datacenter, NSDI 2024, and the
repository InternLM/AcmeTrace (CC BY 4.0; March to August 2023). Its figures hold the numbers that they draw:
jobs of each type in treemap_job_dist.pdf, their durations in cdf_job_duration_queue.pdf, quartiles of their
GPUs in box_gpu_num.pdf, GPUs of all jobs in cdf_job_gpunum.pdf. Which type has which of these GPUs is worked
out so that all of them hold. That durations do not depend on GPUs within a type is assumed: the types then
have their published shares of the GPU time. Those of Acme's other cluster, Seren, would not.
"""

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import exp2
from random import Random

from dally.jobs.job import Job
from dally.jobs.segment_rule import STATIC_SEGMENTS
from dally.traces.synthetic import draw_gaps, job_id, to_load
from dally.traces.training_recipes import RECIPES, TrainingRecipe
from dally.traces.workload import LazyJobs

_MACHINE_GPUS = 8
_MOST_GPUS = 1024
"""GPUs of the largest jobs."""

_SHORTEST_S, _LONGEST_S = 16, 625_740
"""The longest job is that of cluster_summary.csv."""

_GAP_S = 184 * 86_400 / 19_907
"""The six months of the trace over its GPU jobs, seconds."""

_CV = 3.0
"""Of the time between submissions the coefficient of variation, not published; other clusters: 2.7 to 4.1."""


@dataclass(frozen=True, slots=True)
class JobType:
    """One of Acme's types of jobs.

    Attributes:
        name: Its name; generated jobs have it as their group.
        gpus: Per cent of all jobs of the cluster that are of this type, by GPU count.
        durations: Per cent of its jobs that take at most 16, 32, 64, ... seconds.
        recipes: How it trains; none for jobs that do not.
    """

    name: str
    gpus: Mapping[int, float]
    durations: tuple[float, ...]
    recipes: tuple[TrainingRecipe, ...] = ()

    def duration_s(self, share: float) -> int:
        """The duration that this share of its jobs does not exceed; log-uniform between published ones."""
        per_cent = 100 * share
        upper = bisect_left(self.durations, per_cent)
        if upper == 0:
            return _SHORTEST_S
        low, high = self.durations[upper - 1], self.durations[upper]
        times = exp2(upper - 1 + (per_cent - low) / (high - low))
        return min(round(_SHORTEST_S * times), _LONGEST_S)


KALOS = (
    JobType(
        "evaluation",
        {1: 85.72, 2: 1.93, 8: 4.89, 16: 0.16, 64: 0.1},
        (1.5, 19.5, 39.9, 52.7, 71.8, 81.2, 87.0, 93.8, 98.1, 99.6, 99.8, 100.0),
    ),
    JobType(
        "pretraining",
        {96: 0.04, 128: 0.07, 256: 0.88, 504: 0.3, 512: 1.26, 1024: 0.67},
        (0.0, 4.2, 9.8, 14.4, 25.7, 43.8, 57.1, 65.4, 71.9, 76.9, 82.4, 87.8, 93.3, 96.7, 98.9, 99.8, 100.0),
        RECIPES,
    ),
    JobType(
        "debugging",
        {1: 0.33, 8: 0.2, 16: 0.1, 32: 0.27, 64: 0.41, 128: 0.24, 256: 0.33, 512: 0.47, 1024: 0.35},
        (1.3, 8.4, 17.3, 25.9, 38.7, 70.8, 88.8, 97.2, 99.1, 99.6, 99.8, 100.0),
        RECIPES,
    ),
    JobType(
        "other",
        {
            1: 0.23,
            2: 0.15,
            8: 0.47,
            16: 0.08,
            32: 0.12,
            64: 0.14,
            128: 0.03,
            256: 0.01,
            512: 0.01,
            1024: 0.02,
        },
        (
            2.0,
            20.4,
            29.2,
            35.2,
            46.4,
            64.8,
            75.2,
            79.2,
            84.0,
            85.2,
            87.6,
            90.0,
            92.8,
            95.6,
            98.8,
            98.9,
            100.0,
        ),
        RECIPES,
    ),
)


def kalos_workload(
    name: str,
    seed: int,
    *,
    jobs: int = 1000,
    most_gpus: int = _MOST_GPUS,
    gap_s: float = _GAP_S,
    cv: float = _CV,
    load: float | None = None,
    cluster_gpus: int | None = None,
    machine_gpus: int = _MACHINE_GPUS,
    segments: str = "none",
) -> Sequence[Job]:
    """Draw a workload; job i is the same however many jobs follow it, unless `load` sets the pace.

    A job that trains on so many GPUs as recipes are known for has one, all equally often. Jobs of as many
    GPUs as a machine has, and more, ask for whole machines, as torchrun's usual command lines do.

    Args:
        name: Prefix of the job ids and of the random streams.
        seed: Of all streams.
        jobs: How many.
        most_gpus: GPUs of the largest jobs, 1024 in Kalos; jobs of several machines shrink alike.
        gap_s: Mean time between submissions, seconds.
        cv: Its coefficient of variation.
        load: GPU time asked for / GPU time the cluster has until the last submission; None leaves `gap_s`.
        cluster_gpus: The cluster's GPUs, for `load`.
        machine_gpus: GPUs of a machine, a divisor of 8.
        segments: `static`: jobs of several machines have the segments of `STATIC_SEGMENTS`; `none`: none.

    Raises:
        InputError: `load` is given without `cluster_gpus` or for one job, or the reverse.
    """
    kinds = [(kind, shrunk(gpus, most_gpus), share) for kind in KALOS for gpus, share in kind.gpus.items()]
    draws = {what: Random(f"{seed}:{name}:{what}") for what in ("types", "durations", "recipes", "gaps")}
    picks = array("q", draws["types"].choices(range(len(kinds)), [share for *_, share in kinds], k=jobs))
    durations_s = array("q", (kinds[pick][0].duration_s(draws["durations"].random()) for pick in picks))
    recipes = array("d", (draws["recipes"].random() for _ in picks))
    gaps_s = draw_gaps(jobs, gap_s, cv, draws["gaps"])
    work = sum(kinds[pick][1] * duration_s for pick, duration_s in zip(picks, durations_s, strict=True))
    submits_s = array("q", map(round, accumulate(to_load(gaps_s, work, load, cluster_gpus))))
    known = [[recipe for recipe in kind.recipes if recipe.fits(gpus)] for kind, gpus, _ in kinds]

    def job(at: int) -> Job:
        kind, gpus, _ = kinds[picks[at]]
        asked = partial(
            Job,
            job_id(name, at),
            submits_s[at],
            gpus,
            durations_s[at],
            group=kind.name,
            gpus_per_machine=machine_gpus if gpus >= machine_gpus else None,
            segment=STATIC_SEGMENTS.segment(gpus, machine_gpus) if segments == "static" else None,
        )
        if not (fitting := known[picks[at]]):
            return asked()
        recipe = fitting[int(recipes[at] * len(fitting))]
        return asked(model=recipe.model, plan=recipe.plan(gpus), batch=recipe.batch_on(gpus))

    return LazyJobs(jobs, job)


def shrunk(gpus: int, most_gpus: int) -> int:
    """The GPUs of a job of Kalos where the largest has so many, not 1024: fewer machines, at least one."""
    if gpus <= _MACHINE_GPUS or most_gpus == _MOST_GPUS:
        return gpus
    return max(1, round(gpus * most_gpus / _MOST_GPUS / _MACHINE_GPUS)) * _MACHINE_GPUS
