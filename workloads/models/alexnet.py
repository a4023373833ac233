"""AlexNet with one tower (Krizhevsky 2014)."""

from torch import nn

from workloads.models.images import CLASSES, image_task
from workloads.task import Task


def make_task(name: str, size: int | None) -> Task:
    """Classify images of `size` pixels on a side."""
    return image_task(_build, size)


def _build() -> nn.Module:
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
