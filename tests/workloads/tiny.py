"""A workload of a few numbers, for tests of what does not depend on the model."""

import torch
from torch import nn
from torch.nn import functional

from workloads.registry import ModelRecipe
from workloads.task import Numbers, Task

TINY = ModelRecipe("tiny", "Tiny", "tests.workloads.tiny", 12, 4, "sgd", 0.1, None)


def make_task(name: str, size: int | None) -> Task:
    def build() -> nn.Module:
        return _Tiny()

    return Task(build, Numbers((3,), (10,)), Numbers((), (3,)), functional.cross_entropy)


class _Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.layer(inputs.float())
        assert isinstance(outputs, torch.Tensor)
        return outputs
