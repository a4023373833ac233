"""MobileNetV3-Small (Howard et al. 2019, table 2)."""

from collections.abc import Iterator

from torch import Tensor, nn

from workloads.models.images import CLASSES, image_task
from workloads.task import Task

_BLOCKS = (
    (3, 16, 16, 8, nn.ReLU, 2),
    (3, 72, 24, 0, nn.ReLU, 2),
    (3, 88, 24, 0, nn.ReLU, 1),
    (5, 96, 40, 24, nn.Hardswish, 2),
    (5, 240, 40, 64, nn.Hardswish, 1),
    (5, 240, 40, 64, nn.Hardswish, 1),
    (5, 120, 48, 32, nn.Hardswish, 1),
    (5, 144, 48, 40, nn.Hardswish, 1),
    (5, 288, 96, 72, nn.Hardswish, 2),
    (5, 576, 96, 144, nn.Hardswish, 1),
    (5, 576, 96, 144, nn.Hardswish, 1),
)
"""Kernel, expanded and output channels, squeezed ones (0: none), non-linearity and stride of each block."""


def make_task(name: str, size: int | None) -> Task:
    """Classify images of `size` pixels on a side."""
    return image_task(_build, size)


def _build() -> nn.Module:
    return nn.Sequential(
        *_convolution(3, 16, 3, nn.Hardswish, stride=2),
        *_blocks(),
        *_convolution(96, 576, 1, nn.Hardswish),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        *(nn.Linear(576, 1024), nn.Hardswish(inplace=True), nn.Dropout(0.2)),
        nn.Linear(1024, CLASSES),
    )


def _blocks() -> Iterator[nn.Module]:
    inputs = 16
    for kernel, expanded, outputs, squeezed, activation, stride in _BLOCKS:
        layers = [
            *(_convolution(inputs, expanded, 1, activation) if expanded != inputs else ()),
            *_convolution(expanded, expanded, kernel, activation, stride, groups=expanded),
            *((_Squeeze(expanded, squeezed),) if squeezed else ()),
            *_convolution(expanded, outputs, 1, None),
        ]
        yield _Residual(*layers) if stride == 1 and inputs == outputs else nn.Sequential(*layers)
        inputs = outputs


def _convolution(
    inputs: int,
    outputs: int,
    kernel: int,
    activation: type[nn.ReLU] | type[nn.Hardswish] | None,
    stride: int = 1,
    groups: int = 1,
) -> Iterator[nn.Module]:
    """A convolution, its batch norm and its non-linearity."""
    yield nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    yield nn.BatchNorm2d(outputs, eps=0.001, momentum=0.01)
    if activation:
        yield activation(inplace=True)


class _Residual(nn.Module):
    """Layers whose output is added to their input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(inputs)
        return inputs + outputs


class _Squeeze(nn.Module):
    """Scales each channel by what the means of all channels say (squeeze and excitation, Hu et al. 2018)."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            *(nn.Conv2d(channels, squeezed, 1), nn.ReLU(inplace=True)),
            *(nn.Conv2d(squeezed, channels, 1), nn.Hardsigmoid(inplace=True)),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        scale: Tensor = self.scale(inputs)
        return inputs * scale
