"""A step of the evolution with its jobs, and candidates as plain data."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from dally.policies.ones.evolution import Generation
from dally.policies.ones.roll import Ints
from dally.state import JobState


@dataclass(frozen=True, slots=True)
class EvolutionStep:
    """One step of the evolution: whom it was about, and what came of it."""

    now: float
    running: Sequence[JobState]
    waiting: Sequence[JobState]
    generation: Generation

    def sizes(self, jobs: Sequence[JobState], begin: int = 0) -> list[tuple[JobState, int]]:
        """The GPUs of jobs, those of the roll from a row on, in the best candidate."""
        counts = self.generation.counts[0, begin : begin + len(jobs)].tolist()
        return list(zip(jobs, counts, strict=True))


def runs(row: Sequence[int]) -> list[list[int]]:
    """Equal genes side by side, as number and how many."""
    return [[number, len(list(same))] for number, same in groupby(row)]


def unrolled(candidates: Sequence[Sequence[Sequence[int]]]) -> Ints:
    """(candidates, GPUs) the genes of candidates that are written as `runs`."""
    return np.array([np.repeat(*np.array(candidate).T) for candidate in candidates])


def gpus_told(number: int) -> str:
    """So many GPUs, in words."""
    return f"{number} GPU{'s' if number > 1 else ''}"
