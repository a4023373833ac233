"""Gavel's generated workloads: its gang sizes, lengths and arrivals, with the models of profile set `gavel`.

A length is 60 * 10^U(1.5, 3) s for four jobs of five and 60 * 10^U(3, 4) s for the fifth, a mean of 16.8 h.
There it is the time on V100s; here, as for every job, that at the best placement the cluster offers. Models
are drawn by how many of Gavel's 26 configurations are of each; three of the seven only ever run on one GPU.
Source: the generator of stanford-futuredata/gavel, c4fa40097339.
"""

from collections.abc import Mapping
from random import Random
from typing import TypeVar

from dally.jobs.job import Job
from dally.traces.synthetic import job_id, poisson_arrivals_s

Item = TypeVar("Item")

SIZES = ((1, 0.7), (2, 0.1), (4, 0.15), (8, 0.05))
"""GPU counts and their shares."""

MODELS: Mapping[str, int] = {"resnet-18": 5, "resnet-50": 4, "transformer": 5, "lm": 5}
"""Models that run on any number of GPUs, and how many configurations of each there are."""

SINGLE: Mapping[str, int] = {"recommendation": 5, "a3c": 1, "cyclegan": 1}
"""Models that run on one GPU only."""


def gavel_workload(
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
    size, length, model, gap = (Random(f"{seed}:{name}:{what}") for what in ("gpus", "s", "models", "gaps"))
    return [
        _job(job_id(name, at), submit_s, _draw(dict(sizes), size), length, model)
        for at, submit_s in enumerate(poisson_arrivals_s(jobs, gap_s, gap))
    ]


def _job(name: str, submit_s: int, gpus: int, length: Random, model: Random) -> Job:
    decades = (1.5, 3.0) if length.random() < 0.8 else (3.0, 4.0)
    exponent = decades[0] + (decades[1] - decades[0]) * length.random()
    of = _draw({**MODELS, **SINGLE} if gpus == 1 else MODELS, model)
    return Job(name, submit_s, gpus, round(60 * 10**exponent), model=of)


def _draw(weights: Mapping[Item, float], rng: Random) -> Item:
    return rng.choices([*weights], [*weights.values()])[0]
