"""The workloads: what each is called, how large it is and which module builds it; needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from dally.errors import InputError


@dataclass(frozen=True, slots=True)
class ModelRecipe:
    """A model and how it is usually trained.

    Attributes:
        name: Its id, what a job's `model` says.
        title: Its name for people.
        module: The module that builds it; has `make_task(name, size)`, see `workloads.task`.
        params: Number of trained parameters.
        local_batch: Samples per rank and iteration.
        optimizer: "sgd", "adam" or "adamw".
        learning_rate: Of the optimizer.
        size: Pixels on a side of an image, or tokens of a text; None where samples have one size only.
    """

    name: str
    title: str
    module: str
    params: int
    local_batch: int
    optimizer: str
    learning_rate: float
    size: int | None

    @property
    def grad_bytes(self) -> int:
        """Gradients reduced per iteration, bytes: one of 4 bytes for every parameter, in bf16 too."""
        return 4 * self.params


_ALL = (
    ModelRecipe(
        "resnet18", "ResNet-18", "workloads.models.transformers_nets", 11_689_512, 128, "sgd", 0.05, 224
    ),
    ModelRecipe(
        "resnet50", "ResNet-50", "workloads.models.transformers_nets", 25_557_032, 128, "sgd", 0.05, 224
    ),
    ModelRecipe("vgg11", "VGG-11", "workloads.models.images", 132_863_336, 64, "sgd", 0.01, 224),
    ModelRecipe("vgg16", "VGG-16", "workloads.models.images", 138_357_544, 64, "sgd", 0.01, 224),
    ModelRecipe("alexnet", "AlexNet", "workloads.models.images", 61_100_840, 256, "sgd", 0.01, 224),
    ModelRecipe(
        "mobilenetv3", "MobileNetV3-Small", "workloads.models.mobilenetv3", 2_542_856, 256, "sgd", 0.05, 224
    ),
    ModelRecipe(
        "bert-base", "BERT-base", "workloads.models.transformers_nets", 109_483_778, 32, "adamw", 5e-5, 128
    ),
    ModelRecipe("gpt2", "GPT-2 small", "workloads.models.gpt2", 124_439_808, 8, "adamw", 2.5e-4, 1024),
    ModelRecipe("digits", "Small CNN for digits", "workloads.models.digits", 24_058, 32, "sgd", 0.05, 8),
    ModelRecipe(
        "resnet8", "ResNet-8 for grey images", "workloads.models.digits", 77_754, 32, "sgd", 0.05, 16
    ),
    ModelRecipe("chargpt", "GPT of characters", "workloads.models.gpt2", 124_672, 16, "adamw", 3e-3, 64),
    ModelRecipe(
        "ncf", "NCF on MovieLens-20M", "workloads.models.ncf", 31_832_577, 65_536, "adam", 1e-3, None
    ),
)

WORKLOADS: Mapping[str, ModelRecipe] = {workload.name: workload for workload in _ALL}
"""All workloads, by name."""


def find_workload(name: str) -> ModelRecipe:
    """The workload of this name.

    Raises:
        InputError: There is none; the message lists the valid names.
    """
    if name not in WORKLOADS:
        raise InputError(f"unknown model {name}; valid: {', '.join(WORKLOADS)}")
    return WORKLOADS[name]
