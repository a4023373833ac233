"""One step of the evolution of candidate schedules."""

from dataclasses import dataclass

import numpy as np

from dally.policies.ones.operators import counted, crossover, lay_out, middles, mutate, pad, score, trim
from dally.policies.ones.roll import Floats, Ints, Roll

IDLE = -1
"""The number of no job, in candidates that are kept from step to step."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How strongly candidates vary.

    Attributes:
        candidates: Kept from step to step: K.
        exchanged: Probability that a GPU's genes are exchanged in a crossover: xi.
        removed: Probability that a mutation removes a job: theta.
        evolves: False: nothing varies, what is gets padded.
        in_turns: As in `pad`.
        of_all: As in `score`.
    """

    candidates: int
    exchanged: float
    removed: float
    evolves: bool = True
    in_turns: bool = True
    of_all: bool = True


@dataclass(frozen=True, slots=True)
class Generation:
    """The candidates that survive a step, best first.

    Attributes:
        genes: (candidates, GPUs), one row if nothing varies: the number of each GPU's job, or `IDLE`.
        counts: (candidates, jobs) the GPUs of each job of the roll.
        scores: (candidates,) GPU-seconds left.
    """

    genes: Ints
    counts: Ints
    scores: Floats


def evolve(genes: Ints, roll: Roll, rates: Rates, rng: np.random.Generator) -> Generation:
    """The best of what is, the last candidates refreshed, their children and their mutants, all padded.

    Args:
        genes: (candidates, GPUs) the last ones, as in `Generation`; jobs that are gone leave GPUs idle.
        roll: The jobs.
        rates: How strongly candidates vary.
        rng: Of its draws.
    """
    gpus, jobs = genes.shape[1], len(roll)
    pool = _varied(genes, roll, rates, rng) if rates.evolves else _present(roll, gpus)
    counts = counted(pool, jobs)
    middle = middles(pool, counts)
    counts = pad(trim(counts, middle, roll), roll, rates.in_turns)
    scores = score(counts, roll, rates.of_all)
    best = np.argsort(scores, kind="stable")[: rates.candidates]
    survivors = lay_out(counts[best], middle[best], gpus)
    return Generation(np.append(roll.numbers, IDLE)[survivors], counts[best], scores[best])


def _varied(genes: Ints, roll: Roll, rates: Rates, rng: np.random.Generator) -> Ints:
    """(1 + 3 candidates, GPUs) what is, the last candidates refreshed, their children and their mutants."""
    refreshed = _refresh(_rows(genes, roll.numbers), roll)
    children = crossover(refreshed, rates.exchanged, rng)
    mutants = mutate(refreshed, roll, rates.removed, rng)
    return np.vstack((_present(roll, genes.shape[1]), refreshed, children, mutants))


def first(rates: Rates, gpus: int) -> Ints:
    """(candidates, gpus) candidates in which all GPUs are idle."""
    return np.full((rates.candidates, gpus), IDLE)


def _present(roll: Roll, gpus: int) -> Ints:
    """(1, gpus) the candidate in which all keep what they have."""
    names, held = np.arange(len(roll) + 1), np.append(roll.held, gpus - roll.held.sum())
    return np.repeat(names, held)[None]


def _refresh(genes: Ints, roll: Roll) -> Ints:
    """Candidates without GPUs beyond the jobs' limits."""
    counts = counted(genes, len(roll))
    middle = middles(genes, counts)
    return lay_out(trim(counts, middle, roll), middle, genes.shape[1])


def _rows(genes: Ints, numbers: Ints) -> Ints:
    """Genes by rows of the roll instead of numbers of jobs; those of jobs not in it are idle."""
    order = np.argsort(numbers)
    places = np.searchsorted(numbers, genes, sorter=order).clip(max=len(numbers) - 1)
    rows = order[places]
    return np.where(numbers[rows] == genes, rows, len(numbers))
