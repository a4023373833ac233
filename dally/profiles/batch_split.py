"""A gang over several GPU types: its iteration from those of each type, by how they split the batch."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, fsum, inf

from dally.profiles.iteration import Prediction


def split_evenly(parts: Sequence[Prediction]) -> Prediction:
    """The iteration of a gang whose GPUs all have the same batch: the slowest one's pace."""
    return max(parts, key=lambda part: part.iteration_s)


def with_local_batch(part: Prediction, factor: float, fixed_s: float = 0.0, most: float = inf) -> Prediction:
    """The iteration of GPUs that have `factor` times the batch of the profile.

    Compute goes with the batch, the optimizer's step too; communication stays, and as much of it exposed, or
    more where compute gets so short that it can no longer hide the rest.

    Args:
        part: With the batch of the profile.
        factor: Batch over that of the profile.
        fixed_s: Of the compute, what does not go with the batch, seconds.
        most: The largest factor that a GPU holds; it computes more in so many parts, and adds them up.
    """
    compute_s = ceil(factor / most) * fixed_s + factor * (_compute_s(part) - fixed_s)
    iteration_s = max(compute_s + part.exposed_s, part.comm_s)
    return replace(part, iteration_s=iteration_s, exposed_s=iteration_s - compute_s)


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
