"""Classifiers of ImageNet's images: AlexNet and VGG, and what all of them share.

AlexNet has one tower (Krizhevsky 2014); VGG-11 and VGG-16 are configurations A and D without batch norm
(Simonyan and Zisserman 2015).
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from torch import nn
from torch.nn import functional

from dally.errors import InputError
from workloads.task import Numbers, Task

CLASSES = 1000
"""Of ImageNet (ILSVRC 2012)."""

_SMALLEST = 64
"""Pixels on a side; AlexNet leaves nothing of smaller ones."""

_VGG_CHANNELS = (64, 128, 256, 512, 512)
"""Of the convolutions before each pooling."""

_VGG_CONVOLUTIONS = {"vgg11": (1, 1, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3)}
"""How many there are before each pooling."""


def make_task(name: str, size: int | None) -> Task:
    """Classify images of `size` pixels on a side."""
    return image_task(_alexnet if name == "alexnet" else partial(_vgg, name), size)


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


def _alexnet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        nn.AdaptiveAvgPool2d(6),
        nn.Flatten(),
        *(nn.Dropout(0.5), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True)),
        *(nn.Dropout(0.5), nn.Linear(4096, 4096), nn.ReLU(inplace=True)),
        nn.Linear(4096, CLASSES),
    )


def _vgg(name: str) -> nn.Module:
    features: list[nn.Module] = []
    before = 3
    for channels, convolutions in zip(_VGG_CHANNELS, _VGG_CONVOLUTIONS[name], strict=True):
        for _ in range(convolutions):
            convolution = nn.Conv2d(before, channels, 3, padding=1)
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out")
            features += (convolution, nn.ReLU(inplace=True))
            before = channels
        features.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *features,
        nn.AdaptiveAvgPool2d(7),
        nn.Flatten(),
        *(nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)),
        *(nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)),
        nn.Linear(4096, CLASSES),
    )
