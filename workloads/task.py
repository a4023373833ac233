"""What every model offers to be trained: its module, its loss, and what its samples look like."""

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dally.errors import InputError
from workloads.registry import ModelRecipe


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the inputs, or the targets, of one sample are: whole numbers.

    Attributes:
        shape: Of one sample; empty for a single number.
        limits: Each number is at least 0 and below this; one for all, or one for each of the last axis.
        dtype: Of the array: uint8 for pixels, int64 for all else.
    """

    shape: tuple[int, ...]
    limits: tuple[int, ...]
    dtype: type[np.uint8] | type[np.int64] = np.int64

    @property
    def count(self) -> int:
        """How many numbers one sample has."""
        return math.prod(self.shape)

    def zeros(self, samples: int) -> NDArray[np.generic]:
        """So many samples, all zero; (samples, *shape)."""
        return np.zeros((samples, *self.shape), self.dtype)


@dataclass(frozen=True, slots=True)
class Task:
    """A model to train.

    Attributes:
        build: Makes the module, freshly initialised from torch's random numbers, on torch's default device.
        inputs: What the module takes, samples along the first axis; pixels as floats, see `as_input`.
        targets: What the loss takes.
        loss: (what the module gave, targets) -> mean loss over the samples, each of equal weight.
    """

    build: Callable[[], nn.Module]
    inputs: Numbers
    targets: Numbers
    loss: Callable[[Tensor, Tensor], Tensor]


def make_task(workload: ModelRecipe, size: int | None = None) -> Task:
    """The task of a workload.

    Args:
        workload: Which.
        size: Pixels on a side of an image, or tokens of a text; None for the workload's own.

    Raises:
        InputError: The samples of this model have one size only, or cannot be so small or large.
    """
    if size is not None:
        if workload.size is None:
            raise InputError(
                f"size is {size}, but samples of {workload.name} have one size only; leave it out"
            )
        workload = replace(workload, size=size)
    task = importlib.import_module(workload.module).make_task(workload.name, workload.size)
    assert isinstance(task, Task)
    return task


def as_input(numbers: Tensor) -> Tensor:
    """What a module takes: pixels (uint8) as floats from -1 to 1, all else as it is."""
    return numbers.float().div_(127.5).sub_(1.0) if numbers.dtype == torch.uint8 else numbers


def texts(tokens: int | None, longest: int, vocabulary: int) -> Numbers:
    """Texts of equal length.

    Raises:
        InputError: They are empty, or longer than the model can take.
    """
    if tokens is None or not 0 < tokens <= longest:
        raise InputError(f"size is {tokens} tokens, must be 1 to {longest}")
    return Numbers((tokens,), (vocabulary,))
