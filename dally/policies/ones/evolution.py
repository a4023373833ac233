"""One step of the evolution of candidate schedules."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from dally.policies.common.arrays import Floats, Ints
from dally.policies.ones.job_arrays import JobArrays
from dally.policies.ones.knobs import OnesKnobs
from dally.policies.ones.operators import count_gpus, crossover, lay_out, middles, mutate, pad, score, trim
from dally.state import JobState

IDLE = -1
"""The number of no job, in candidates that are kept from step to step."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The candidates that survive a step, best first.

    Attributes:
        genes: (candidates, GPUs), one row if nothing varies: the number of each GPU's job, or `IDLE`.
        counts: (candidates, jobs) the GPUs of each job.
        scores: (candidates,) GPU-seconds left.
    """

    genes: Ints
    counts: Ints
    scores: Floats


@dataclass(frozen=True, slots=True)
class EvolutionStep:
    """One step of the evolution: the jobs that took part, running ones first, and what came of it."""

    now: float
    running: Sequence[JobState]
    waiting: Sequence[JobState]
    generation: Generation


def evolve(genes: Ints, jobs: JobArrays, knobs: OnesKnobs, rng: np.random.Generator) -> Generation:
    """The best of what is, the last candidates refreshed, their children and their mutants, all padded.

    Inside, genes are rows of the arrays instead of numbers of jobs; the number of jobs where a GPU is idle.

    Args:
        genes: (candidates, GPUs) the last ones, as in `Generation`; jobs that are gone leave GPUs idle.
        jobs: The jobs.
        knobs: How strongly candidates vary.
        rng: Of its draws.
    """
    gpus, idle = genes.shape[1], len(jobs)
    # A job that finished no epoch takes no part in a step, so candidates forget it. Without what is as a
    # candidate it could be stopped later only because it was forgotten.
    pool = np.repeat(np.arange(idle + 1), np.append(jobs.held, gpus - jobs.held.sum()))[None]
    if knobs.search == "evolution":
        order = np.argsort(jobs.numbers)
        places = np.searchsorted(jobs.numbers, genes, sorter=order).clip(max=idle - 1)
        rows = np.where(jobs.numbers[order[places]] == genes, order[places], idle)
        counts = count_gpus(rows, idle)
        middle = middles(rows, counts)
        refreshed = lay_out(trim(counts, middle, jobs), middle, gpus)
        children = crossover(refreshed, knobs.exchange, rng)
        mutants = mutate(refreshed, jobs, knobs.remove, rng)
        pool = np.vstack((pool, refreshed, children, mutants))
    counts = count_gpus(pool, idle)
    middle = middles(pool, counts)
    counts = pad(trim(counts, middle, jobs), jobs, knobs.padding == "turns")
    scores = score(counts, jobs, knobs.counted == "all")
    best = np.argsort(scores, kind="stable")[: knobs.candidates]
    survivors = lay_out(counts[best], middle[best], gpus)
    return Generation(np.append(jobs.numbers, IDLE)[survivors], counts[best], scores[best])


def run_lengths(genes: Ints) -> list[list[list[int]]]:
    """Candidates as plain data: equal genes side by side, as number and how many."""
    return [[[number, len(list(same))] for number, same in groupby(row)] for row in genes.tolist()]


def from_run_lengths(candidates: Sequence[Sequence[Sequence[int]]]) -> Ints:
    """(candidates, GPUs) the genes that `run_lengths` wrote."""
    return np.array([np.repeat(*np.array(candidate).T) for candidate in candidates])
