"""Which samples a step takes, in what order, and what is in them: made up, or from a file.

The order depends on the seed and the number of samples alone: every epoch is a permutation, epochs follow one
another without a gap, and each step takes the next global batch, of which each rank has a contiguous share.
So it is the same for every number of ranks, and after every restart.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from workloads.task import Numbers, Task

SYNTHETIC_SAMPLES = 1 << 16
"""In an epoch of samples that are made up."""

_POOL_BYTES = 1 << 22
"""Places in the pool at which an image may begin."""

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
    """Samples made up of random numbers, each a function of the seed and its index alone.

    A GPU takes thousands of images a second, and would wait for as many random numbers: the pixels of an
    image are cut from a pool of them, at a random place.
    """

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
    keys = _mix(indices + _mix(np.array([stream], np.uint64)))
    if numbers.dtype == np.uint8:
        places = keys % np.uint64(_POOL_BYTES)
        flat: NDArray[np.generic] = sliding_window_view(_pool(numbers.count, stream), numbers.count)[places]
    else:
        random = _mix(keys[:, None] + np.arange(1, numbers.count + 1, dtype=np.uint64) * _GOLDEN)
        limits = np.asarray(numbers.limits, np.uint64)
        flat = (random.reshape(-1, len(limits)) % limits).astype(np.int64)
    return flat.reshape(len(indices), *numbers.shape)


@lru_cache(maxsize=2)
def _pool(longest: int, stream: int) -> NDArray[np.uint8]:
    """Random bytes, of which `longest` follow each of the first `_POOL_BYTES`."""
    return np.random.default_rng(stream).integers(0, 256, _POOL_BYTES + longest, np.uint8)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014): every bit depends on every bit."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))
