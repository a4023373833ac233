"""Which samples a step takes, in what order, and what is in them: made up, or from a file.

The order depends on the seed and the number of samples alone: every epoch is a permutation, epochs follow one
another without a gap, and each step takes the next global batch, of which each rank has a contiguous share.
So it is the same for every number of ranks, and after every restart.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.task import Numbers, Task

SYNTHETIC_SAMPLES = 1 << 16
"""In an epoch of samples that are made up."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


class Source(Protocol):
    """Where samples come from."""

    @property
    def count(self) -> int:
        """How many there are; their indices go from 0 to below this."""
        ...

    def draw(self, samples: Sequence[int]) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """Inputs and targets of the samples of these indices, along the first axis of each."""
        ...


class Synthetic:
    """Samples made up of random numbers, each a function of the seed and its index alone."""

    def __init__(self, task: Task, seed: int) -> None:
        self._task = task
        self._seed = seed
        self.count = SYNTHETIC_SAMPLES

    def draw(self, samples: Sequence[int]) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """Inputs and targets of the samples of these indices, along the first axis of each."""
        indices = np.asarray(samples, np.uint64)
        inputs = _make_up(self._task.inputs, indices, 2 * self._seed)
        return inputs, _make_up(self._task.targets, indices, 2 * self._seed + 1)


def take(start: int, count: int, samples: int, seed: int) -> list[int]:
    """The `count` samples from place `start` on of the endless order.

    Args:
        start: Samples taken before.
        count: How many.
        samples: In an epoch.
        seed: Of the order.
    """
    taken: list[int] = []
    while len(taken) < count:
        epoch, place = divmod(start + len(taken), samples)
        taken += _permute(epoch, samples, seed)[place : place + count - len(taken)].tolist()
    return taken


def share(batch: Sequence[int], rank: int, parts: Sequence[int]) -> Sequence[int]:
    """A rank's samples of a global batch, which is cut in contiguous parts of these sizes."""
    start = sum(parts[:rank])
    return batch[start : start + parts[rank]]


@lru_cache(maxsize=2)
def _permute(epoch: int, samples: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng((seed, epoch)).permutation(samples)


def _make_up(numbers: Numbers, indices: NDArray[np.uint64], stream: int) -> NDArray[np.generic]:
    """Random numbers, as `numbers` has them, for each sample; (samples, *shape)."""
    pixels = numbers.dtype == np.uint8
    words = -(-numbers.count // 8) if pixels else numbers.count  # 8 pixels are cut from each
    keys = _mix(indices + _mix(np.array([stream], np.uint64)))[:, None]
    random = _mix(keys + np.arange(1, words + 1, dtype=np.uint64) * _GOLDEN)
    if pixels:
        flat: NDArray[np.generic] = random.view(np.uint8)[:, : numbers.count]
    else:
        limits = np.asarray(numbers.limits, np.uint64)
        flat = (random.reshape(-1, len(limits)) % limits).astype(np.int64)
    return flat.reshape(len(indices), *numbers.shape)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014): every bit depends on every bit."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))
