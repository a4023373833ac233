"""States of a small model with batch norm, for tests of what becomes of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer

MOMENTUM = partial(SGD, lr=0.1, momentum=0.9)


def trained(steps: int, make: Callable[..., Optimizer] = MOMENTUM) -> dict[str, Any]:
    """What `Trainer.state` would give after so many steps; of the same parameters at first."""
    torch.manual_seed(0)
    first = nn.Linear(2, 3)
    module = nn.Sequential(first, nn.BatchNorm1d(3))
    made = make(module.parameters())
    torch.manual_seed(steps)
    for _ in range(steps):
        loss = module(torch.rand(4, 2)).square().sum() + first.weight.sum()
        loss.backward()
        made.step()
        made.zero_grad()
    return {"model": module.state_dict(), "optimizer": made.state_dict()}
