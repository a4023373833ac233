"""What a batch size is worth to training, by how much of it is done: gradient noise scale and goodput.

Source: Qiao et al., Pollux, OSDI 2021, section 3.1; McCandlish et al., arXiv 1812.06162.
"""

from bisect import bisect_right
from collections.abc import Sequence
from enum import StrEnum
from math import fsum, log2

from dally.profiles.schema import Learning

_PER_OCTAVE = 4
"""Batch sizes tried for each doubling."""


class Batching(StrEnum):
    """What becomes of the global batch of an elastic job when its GPUs change.

    FIXED: it stays. LINEAR: it goes with the GPUs, up to the largest (ONES). GOODPUT: it is whatever makes
    most progress there (Pollux).
    """

    FIXED = "fixed"
    LINEAR = "linear"
    GOODPUT = "goodput"


def phase(learning: Learning, done: float) -> int:
    """The phase in which a training is of which so much, 0 to 1, is done; one begins where another ends."""
    return min(bisect_right(learning.done, done), len(learning.done) - 1)


def efficiency(learning: Learning, batch: float, number: int) -> float:
    """What a sample of a batch is worth in a phase, 1 with the batch that it was tuned for.

    (phi + M0) / (phi + M), with phi the gradient noise scale and M the global batch, all in samples.
    """
    noise = learning.noise[number]
    return (noise + learning.batch) / (noise + batch)


def mean_efficiency(learning: Learning, batch: float) -> float:
    """Over a whole training with one batch: samples at their full worth over samples taken."""
    starts = (0.0, *learning.done)
    return 1 / fsum(
        (end - start) / efficiency(learning, batch, number)
        for number, (start, end) in enumerate(zip(starts, learning.done, strict=False))
    )


def batches(learning: Learning, batching: Batching, own: float, asked: int, gpus: int) -> Sequence[float]:
    """The global batches that a job may have on so many GPUs, samples.

    Args:
        learning: Of its model.
        batching: How its batch is found.
        own: That which it asked for.
        asked: GPUs that it asked for.
        gpus: GPUs that it has.
    """
    match batching:
        case Batching.FIXED:
            return (own,)
        case Batching.LINEAR:
            return (min(own / asked * gpus, max(own, learning.most_batch)),)
        case Batching.GOODPUT:
            steps = int(log2(learning.most_batch / learning.batch) * _PER_OCTAVE)
            grid = (learning.batch * 2 ** (step / _PER_OCTAVE) for step in range(steps + 1))
            return (*grid, float(learning.most_batch))
