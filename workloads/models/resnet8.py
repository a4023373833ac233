"""ResNet-8 for small grey images: the net of He et al. 2016 for CIFAR-10, with one block in each stage."""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from workloads.models.digits import CLASSES, digits_task
from workloads.task import Task

_CHANNELS = (16, 16, 32, 64)


def make_task(name: str, size: int | None) -> Task:
    """Tell digits on grey images of `size` pixels on a side.

    Raises:
        InputError: The images are smaller than the model can take.
    """
    return digits_task(_build, size)


def _build() -> nn.Module:
    layers = nn.Sequential(_convolution(1, _CHANNELS[0]), nn.BatchNorm2d(_CHANNELS[0]), nn.ReLU(inplace=True))
    layers.extend(_ResidualBlock(inputs, outputs) for inputs, outputs in pairwise(_CHANNELS))
    return layers.extend((nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(_CHANNELS[-1], CLASSES)))


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
