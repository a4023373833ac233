"""VGG-11 and VGG-16 (Simonyan and Zisserman 2015, configurations A and D), without batch norm."""

from collections.abc import Iterator
from functools import partial

from torch import nn

from workloads.models.images import CLASSES, image_task
from workloads.task import Task

_CHANNELS = (64, 128, 256, 512, 512)
"""Of the convolutions before each pooling."""

_CONVOLUTIONS = {"vgg11": (1, 1, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3)}
"""How many there are before each pooling."""


def make_task(name: str, size: int | None) -> Task:
    """Classify images of `size` pixels on a side."""
    return image_task(partial(_build, name), size)


def _build(name: str) -> nn.Module:
    return nn.Sequential(
        *_features(name),
        nn.AdaptiveAvgPool2d(7),
        nn.Flatten(),
        *(nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)),
        *(nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)),
        nn.Linear(4096, CLASSES),
    )


def _features(name: str) -> Iterator[nn.Module]:
    before = 3
    for channels, convolutions in zip(_CHANNELS, _CONVOLUTIONS[name], strict=True):
        for _ in range(convolutions):
            convolution = nn.Conv2d(before, channels, 3, padding=1)
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out")
            yield from (convolution, nn.ReLU(inplace=True))
            before = channels
        yield nn.MaxPool2d(2)
