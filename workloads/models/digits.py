"""A small convolutional net with batch norms for grey images, such as scikit-learn's digits."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from torch import nn
from torch.nn import functional

from dally.errors import InputError
from workloads.task import Numbers, Task

CLASSES = 10
_CHANNELS = (1, 16, 32, 64)
_SMALLEST = 4
"""Pixels on a side, of which the layers leave one."""


def make_task(name: str, size: int | None) -> Task:
    """Tell digits on grey images of `size` pixels on a side.

    Raises:
        InputError: The images are smaller than the model can take.
    """
    return digits_task(_build, size)


def digits_task(build: Callable[[], nn.Module], size: int | None) -> Task:
    """The same for any net that tells digits.

    Args:
        build: Makes the net, which takes one channel and leaves one pixel of four or more on a side.
        size: Pixels on a side.

    Raises:
        InputError: The images are smaller than that.
    """
    if size is None or size < _SMALLEST:
        raise InputError(f"size is {size} pixels, must be {_SMALLEST} or more")
    inputs = Numbers((1, size, size), (256,), np.uint8)
    return Task(build, inputs, Numbers((), (CLASSES,)), functional.cross_entropy)


def _build() -> nn.Module:
    layers = nn.Sequential()
    for inputs, outputs in pairwise(_CHANNELS):
        stride = 1 if inputs == 1 else 2
        layers.append(nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False))
        layers.extend((nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)))
    return layers.extend((nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(_CHANNELS[-1], CLASSES)))
