"""BERT-base, uncased (Devlin et al. 2019), fine-tuned to tell two classes of texts apart."""

from torch import nn
from torch.nn import functional
from transformers import BertConfig, BertForSequenceClassification

from workloads.models.logits import Logits
from workloads.models.texts import texts
from workloads.task import Numbers, Task

_CLASSES = 2


def make_task(name: str, size: int | None) -> Task:
    """Classify texts of `size` tokens."""
    config = BertConfig()
    return Task(
        build=_build,
        inputs=texts(size, config.max_position_embeddings, config.vocab_size),
        targets=Numbers((), (_CLASSES,)),
        loss=functional.cross_entropy,
    )


def _build() -> nn.Module:
    config = BertConfig()
    config.num_labels = _CLASSES
    return Logits(BertForSequenceClassification(config))
