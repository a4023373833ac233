"""Hadar's simulated jobs: a quarter each of four classes by GPU time, with the models of profile set `gavel`.

Each class has a model, of which the table of Gavel knows one GPU only for CycleGAN: so M jobs have one. A
job's GPU time, on GPUs as fast as its best placement, is uniform within its class; its GPU count is drawn
from Gavel's sizes, as that of Philly's jobs is not published with the classes.
Source: Sultana et al., Hadar, IPDPS 2024, arXiv 2503.10918; bounds and models as we know them, so a
reconstruction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from dally.jobs.job import Job
from dally.traces.synthetic import job_id, poisson_arrivals_s


@dataclass(frozen=True, slots=True)
class Class:
    """A class of jobs: bounds of their GPU time, hours, and the models that they train."""

    least_h: float
    most_h: float
    models: tuple[str, ...]


CLASSES: Mapping[str, Class] = {
    "S": Class(0.0, 1.0, ("resnet-18",)),
    "M": Class(1.0, 10.0, ("cyclegan",)),
    "L": Class(10.0, 50.0, ("lm", "transformer")),
    "XL": Class(60.0, 100.0, ("resnet-50",)),
}
SINGLE = frozenset({"cyclegan"})
"""Models that run on one GPU only."""

_SHORTEST_S = 60


def hadar_workload(
    name: str, jobs: int, gap_s: float, sizes: tuple[tuple[int, float], ...], seed: int
) -> list[Job]:
    """Draw a workload; job i is the same however many jobs follow it.

    Args:
        name: Prefix of the job ids and of the random streams.
        jobs: How many.
        gap_s: Mean time between submissions, seconds, of Poisson arrivals; 0 submits all at once.
        sizes: GPU counts and their shares.
        seed: Seed of all streams.
    """
    size, kind, gap = (Random(f"{seed}:{name}:{what}") for what in ("gpus", "classes", "gaps"))
    return [
        _job(job_id(name, at), submit_s, sizes, size, kind)
        for at, submit_s in enumerate(poisson_arrivals_s(jobs, gap_s, gap))
    ]


def _job(name: str, submit_s: int, sizes: tuple[tuple[int, float], ...], size: Random, kind: Random) -> Job:
    drawn = CLASSES[kind.choice([*CLASSES])]
    model = kind.choice(drawn.models)
    gpu_h = drawn.least_h + (drawn.most_h - drawn.least_h) * kind.random()
    counts, weights = zip(*sizes, strict=True)
    wanted = size.choices(counts, weights)[0]
    gpus = 1 if model in SINGLE else wanted
    return Job(name, submit_s, gpus, max(_SHORTEST_S, round(3600 * gpu_h / gpus)), model=model)
