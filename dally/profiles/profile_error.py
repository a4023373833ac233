"""Wrong profiles: what is believed of iterations is off by factors that are drawn once and stay."""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import exp, inf
from random import Random

from dally.profiles.iteration import Prediction

BANDS = (0.0, 0.25, 1.0, 4.0, inf)
"""Between these, seconds of waiting for the network by second of compute, waiting has a factor of its own."""


@dataclass(frozen=True, slots=True)
class ProfileError:
    """How wrong the profiles are that schedulers go by.

    Wrong are two things of each model on each GPU type. Its compute time: so its relative speed on each type,
    and nothing where there is one type. And how long the network keeps it waiting: what each further bit of
    distance costs, by bands of waiting (`BANDS`), each with a factor of its own, so that near and far are
    wrong differently. So what is believed grows with what is true: on one GPU type no placement is believed
    slower than one that is farther apart and really slower, and the closest one stays the best.

    Factors drawn for each level of the tree would not keep that: half of the time the closer level would have
    the larger one. Bent into order, they would make far dearer than it is, however little is wrong.

    Attributes:
        sigma: Standard deviation of the logarithm of each factor; the median is 1.
        seed: Of the draws.
    """

    sigma: float
    seed: int

    def pace(self, model: str, gpu_type: str) -> float:
        """What the compute time of a model on a GPU type is believed to be, over what it is."""
        return _factors(self, model, gpu_type)[0]

    def believed(self, true: Prediction, model: str, gpu_type: str) -> Prediction:
        """What is believed of an iteration whose model runs on this GPU type."""
        pace, *factors = _factors(self, model, gpu_type)
        compute_s = true.iteration_s - true.exposed_s
        waiting = true.exposed_s / compute_s
        in_bands = (max(0.0, min(waiting, high) - low) for low, high in pairwise(BANDS))
        waits = sum(factor * part for factor, part in zip(factors, in_bands, strict=True))
        exposed_s = pace * compute_s * waits
        return replace(true, iteration_s=pace * compute_s + exposed_s, exposed_s=exposed_s)


@lru_cache(4096)
def _factors(error: ProfileError, model: str, gpu_type: str) -> tuple[float, ...]:
    """That of compute, then those of the bands."""
    draws = Random(f"{error.seed} profile {model} {gpu_type}")
    return tuple(exp(error.sigma * draws.gauss(0.0, 1.0)) for _ in BANDS)
