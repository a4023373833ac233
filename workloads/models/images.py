"""What all classifiers of images share: ImageNet's samples and the loss."""

from collections.abc import Callable

import numpy as np
from torch import nn
from torch.nn import functional

from dally.errors import InputError
from workloads.task import Numbers, Task

CLASSES = 1000
"""Of ImageNet (ILSVRC 2012)."""

_SMALLEST = 64
"""Pixels on a side; AlexNet leaves nothing of smaller ones."""


def image_task(build: Callable[[], nn.Module], pixels: int | None) -> Task:
    """The task of classifying square RGB images.

    Args:
        build: Makes the module: float images (samples, 3, pixels, pixels) -> logits (samples, CLASSES).
        pixels: On a side.

    Raises:
        InputError: The images are smaller than the models can take.
    """
    if pixels is None or pixels < _SMALLEST:
        raise InputError(f"size is {pixels} pixels, must be {_SMALLEST} or more")
    return Task(
        build=build,
        inputs=Numbers((3, pixels, pixels), (256,), np.uint8),
        targets=Numbers((), (CLASSES,)),
        loss=functional.cross_entropy,
    )
