"""Nets that tell digits on grey images, such as scikit-learn's: a small one with batch norms, and ResNet-8.

ResNet-8 is the net of He et al. 2016 for CIFAR-10, with one block in each stage.
"""

from itertools import pairwise

import numpy as np
from torch import Tensor, nn
from torch.nn import functional

from dally.errors import InputError
from workloads.task import Numbers, Task

CLASSES = 10
_CHANNELS = (1, 16, 32, 64)
_SMALLEST = 4
"""Pixels on a side, of which the layers leave one."""
_RESNET8_CHANNELS = (16, 16, 32, 64)


def make_task(name: str, size: int | None) -> Task:
    """Tell digits on grey images of `size` pixels on a side.

    Raises:
        InputError: The images are smaller than the model can take.
    """
    if size is None or size < _SMALLEST:
        raise InputError(f"size is {size} pixels, must be {_SMALLEST} or more")
    inputs = Numbers((1, size, size), (256,), np.uint8)
    build = _resnet8 if name == "resnet8" else _small_net
    return Task(build, inputs, Numbers((), (CLASSES,)), functional.cross_entropy)


def _small_net() -> nn.Module:
    layers = nn.Sequential()
    for inputs, outputs in pairwise(_CHANNELS):
        stride = 1 if inputs == 1 else 2
        layers.append(nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False))
        layers.extend((nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)))
    return layers.extend((nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(_CHANNELS[-1], CLASSES)))


def _resnet8() -> nn.Module:
    layers = nn.Sequential(
        _convolution(1, _RESNET8_CHANNELS[0]), nn.BatchNorm2d(_RESNET8_CHANNELS[0]), nn.ReLU(inplace=True)
    )
    layers.extend(_ResidualBlock(inputs, outputs) for inputs, outputs in pairwise(_RESNET8_CHANNELS))
    return layers.extend((nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(_RESNET8_CHANNELS[-1], CLASSES)))


class _ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut; where channels become more, the image becomes half as wide."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.first, self.first_norm = _convolution(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.second, self.second_norm = _convolution(outputs, outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride > 1:
            self.shortcut.extend((nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)))

    def forward(self, images: Tensor) -> Tensor:
        hidden = functional.relu(self.first_norm(self.first(images)))
        return functional.relu(self.second_norm(self.second(hidden)) + self.shortcut(images))


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
