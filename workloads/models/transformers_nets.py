"""Models that come with `transformers`, as plain modules: a tensor in, a tensor out.

ResNet-18 and ResNet-50 (He et al. 2016) are version 1.5: the 3 x 3 convolution of a block has the stride.
BERT-base, uncased (Devlin et al. 2019), is fine-tuned to tell two classes of texts apart.
"""

from functools import partial

from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ResNetConfig,
    ResNetForImageClassification,
)

from workloads.models.images import CLASSES, image_task
from workloads.task import Numbers, Task, texts

_TEXT_CLASSES = 2


def make_task(name: str, size: int | None) -> Task:
    """Classify images of `size` pixels on a side with ResNet, texts of `size` tokens with BERT."""
    if name != "bert-base":
        return image_task(partial(_resnet, name), size)
    config = BertConfig()
    return Task(
        build=_bert,
        inputs=texts(size, config.max_position_embeddings, config.vocab_size),
        targets=Numbers((), (_TEXT_CLASSES,)),
        loss=functional.cross_entropy,
    )


class Logits(nn.Module):
    """A module of `transformers`, of whose outputs only the logits are wanted."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits for a batch of inputs."""
        logits: Tensor = self.model(inputs).logits
        return logits


def _resnet(name: str) -> nn.Module:
    config = ResNetConfig()
    if name == "resnet18":
        config = ResNetConfig(layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512])
    config.num_labels = CLASSES
    return Logits(ResNetForImageClassification(config))


def _bert() -> nn.Module:
    config = BertConfig()
    config.num_labels = _TEXT_CLASSES
    return Logits(BertForSequenceClassification(config))
