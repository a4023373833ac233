"""Hadar's prices: what a GPU costs in a round, from the utilities of those who want one.

The price of a GPU of type r on server h is Umin^r (Umax^r / Umin^r)^(taken / c): low on an empty server, as
high as the highest bid where nothing is left.
Source: Sultana et al., IPDPS 2024, and arXiv 2503.10918, reconstructed.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Wants:
    """What jobs want and what it is worth to them: a number for each job.

    Attributes:
        best: Utility if it ran at once at its best, from its arrival.
        worst: Utility if it ended at the horizon.
        gpus: GPUs of its gang.
        rounds: Rounds that it takes on the slowest type it accepts.
        types: Whether it accepts a GPU type; jobs by types.
    """

    best: Floats
    worst: Floats
    gpus: Floats
    rounds: Floats
    types: Flags


@dataclass(frozen=True, slots=True)
class PriceRange:
    """What a GPU costs on a server of which none is taken, and of which all are; a number for each type."""

    lowest: Floats
    highest: Floats

    @property
    def alpha(self) -> float:
        """The total utility is at least 1 / (2 alpha) of the best possible, says the paper."""
        return max(1.0, float(np.log(self.highest / self.lowest).max()))


def price_range(wants: Wants, gpus: int, floor: float = 0.0) -> PriceRange:
    """Prices between the least that any job would pay for a GPU and round and the most that one would.

    Umax^r = max U / W of those who accept r; Umin^r = min U(horizon) / (4 eta t_max W), with eta the longest
    job's share of all GPU rounds, eta = max t_max W / gpus, at least 1. A type that nobody accepts costs 1.

    Args:
        wants: The jobs; at least one.
        gpus: GPUs of the cluster.
        floor: The least price is at least this part of the greatest; ours, 0 is the formula's.
    """
    eta = max(1.0, float((wants.rounds * wants.gpus).max()) / gpus)
    least = wants.worst / (4 * eta * wants.rounds * wants.gpus)
    most = wants.best / wants.gpus
    wanted = wants.types.any(axis=0)
    lowest = np.where(wants.types, least[:, None], np.inf).min(axis=0)
    highest = np.where(wants.types, most[:, None], 0.0).max(axis=0)
    lowest = np.minimum(np.maximum(lowest, floor * highest), highest)
    return PriceRange(np.where(wanted, lowest, 1.0), np.where(wanted, highest, 1.0))
