"""ResNet-18 and ResNet-50 (He et al. 2016), version 1.5: the 3 x 3 convolution of a block has the stride."""

from functools import partial

from torch import nn
from transformers import ResNetConfig, ResNetForImageClassification

from workloads.models.images import CLASSES, image_task
from workloads.models.logits import Logits
from workloads.task import Task


def make_task(name: str, size: int | None) -> Task:
    """Classify images of `size` pixels on a side."""
    return image_task(partial(_build, name), size)


def _build(name: str) -> nn.Module:
    config = ResNetConfig()
    if name == "resnet18":
        config = ResNetConfig(layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512])
    config.num_labels = CLASSES
    return Logits(ResNetForImageClassification(config))
