"""A gang over several GPU types: its iteration from those of each type, by how they split the batch."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from math import fsum

from dally.profiles.iteration import Prediction


class Split(StrEnum):
    """How a gang over several GPU types splits its batch: evenly, or in proportion to each GPU's speed."""

    EVEN = "even"
    PROPORTIONAL = "proportional"


def split_evenly(parts: Sequence[Prediction]) -> Prediction:
    """The iteration of a gang whose GPUs all have the same batch: the slowest one's pace."""
    return max(parts, key=lambda part: part.iteration_s)


def split_by_speed(parts: Sequence[Prediction], gpus: Sequence[int]) -> Prediction:
    """The iteration of a gang whose GPUs have batches in proportion to their speed.

    With c the compute time of one GPU's even batch, its type's share of the whole batch goes by GPUs / c, and
    all W GPUs are done after W / sum(1/c). Their backward passes last equally long then, between the fastest
    type's and the slowest's, so as much communication stays exposed as lies between theirs: linear by the
    same shares. Assumed is that compute time grows with the batch in proportion, the optimizer's step too,
    and that a batch can be cut anywhere.

    Args:
        parts: What each type's profile says of the whole gang's shape.
        gpus: GPUs of each type.

    Returns:
        The means by share of the batch, as sum(share * c) is W / sum(1/c).
    """
    speeds = [count / _compute_s(part) for part, count in zip(parts, gpus, strict=True)]
    shares = [speed / fsum(speeds) for speed in speeds]
    weighted = [*zip(parts, shares, strict=True)]
    return replace(
        split_evenly(parts),
        iteration_s=fsum(share * part.iteration_s for part, share in weighted),
        exposed_s=fsum(share * part.exposed_s for part, share in weighted),
        comm_s=fsum(share * part.comm_s for part, share in weighted),
        extrapolated=any(part.extrapolated for part in parts),
        note="; ".join(dict.fromkeys(part.note for part in parts if part.note)),
    )


def _compute_s(part: Prediction) -> float:
    return part.iteration_s - part.exposed_s
