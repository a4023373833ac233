"""Dividing whole things by weights: a batch's samples between ranks, a job's batches between copies."""

from collections.abc import Sequence
from math import floor

from dally.errors import InputError


def split(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Divide so many things in proportion to weights, by largest remainder; of equals, the first has more.

    No part is further than one from `total * weight / sum(weights)`, and the parts sum up to `total`.

    Args:
        total: How many things.
        weights: Of each part, positive.
    """
    exact = [total * weight / sum(weights) for weight in weights]
    parts = [floor(part) for part in exact]
    by_remainder = sorted(range(len(parts)), key=lambda number: parts[number] - exact[number])
    for number in by_remainder[: total - sum(parts)]:
        parts[number] += 1
    return tuple(parts)


def local_batches(global_batch: int, ranks: int, weights: Sequence[float] | None) -> tuple[int, ...]:
    """Samples of each rank in a step.

    Args:
        global_batch: Of all ranks.
        ranks: How many.
        weights: Of each rank's part, its speed for one; None for even parts.

    Raises:
        InputError: There are not as many weights as ranks, or a rank would have no sample.
    """
    if weights is not None and len(weights) != ranks:
        raise InputError(f"shares are {len(weights)} and ranks {ranks}, must be as many")
    parts = split(global_batch, weights or [1.0] * ranks)
    if 0 in parts:
        raise InputError(
            f"global batch is {global_batch}, which leaves rank {parts.index(0)} of {ranks} no sample; "
            "it must be larger, or shares less unequal"
        )
    return parts
