"""Emulated compute: the true parameters of a model, whose forward and backward passes only last as long.

A pretended GPU does so many floating-point operations per second. Each layer's part of the forward pass lasts
its operations over that, and twice as long in the backward pass, which needs as many for the gradients of its
inputs as for those of its weights. Gradients of true size and order, all zero, go through real DDP.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from workloads.layers import Layer, find_layers
from workloads.registry import ModelRecipe
from workloads.task import Numbers, Task

_INPUTS = Numbers((), (1 << 20,))
"""One number for each sample; the loss is their mean, so that it tells which samples were taken."""


def emulate(workload: ModelRecipe, size: int | None, flops: float) -> Task:
    """A workload's task on a pretended GPU.

    Args:
        workload: What to train.
        size: Pixels on a side of an image, or tokens of a text; None for the workload's own.
        flops: Floating-point operations per second of the GPU.

    Raises:
        InputError: The size does not fit the model.
    """
    shapes, layers = find_layers(workload, size)
    return Task(
        build=lambda: _Emulated(shapes, layers, flops),
        inputs=_INPUTS,
        targets=_INPUTS,
        loss=lambda outputs, _: outputs.mean() / _INPUTS.limits[0],
    )


def computing_s(workload: ModelRecipe, size: int | None, flops: float) -> float:
    """What a sample takes on such a GPU, seconds, for a job that computes for real at its pace.

    Args: as of `emulate`.

    Raises:
        InputError: The size does not fit the model.
    """
    _, layers = find_layers(workload, size)
    # forward once, backward twice; no gradient is needed of the model's own inputs
    return sum(layer.flops * (3 if number else 2) for number, layer in enumerate(layers)) / flops


class _Emulated(nn.Module):
    """All parameters of a model; sleeps for its layers."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], layers: Sequence[Layer], flops: float) -> None:
        super().__init__()
        self.all = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes)
        self._layers = layers
        self._flops = flops

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs as floats, after the time that the model would have taken for so many."""
        outputs, forward, backward = inputs.float(), _Schedule(), _Schedule()
        for number, layer in enumerate(self._layers):
            lasts_s = layer.flops * len(inputs) / self._flops
            forward.spend(lasts_s)
            factor = 2 if number else 1  # no gradient is needed of the model's own inputs
            own = [self.all[item] for item in layer.parameters]
            outputs = _sleep(outputs, backward, factor * lasts_s, *own)
        return outputs


class _Schedule:
    """Spends time by sleeping until absolute moments, so that delays of single sleeps do not add up."""

    def __init__(self) -> None:
        self._due_s: float | None = None

    def spend(self, seconds: float) -> None:
        """Return this long after the moment at which the last call should have returned."""
        now_s = time.perf_counter()
        self._due_s = (now_s if self._due_s is None else self._due_s) + seconds
        if self._due_s > now_s:
            time.sleep(self._due_s - now_s)


class _Slept(Function):
    """Passes its first input on; its backward takes time and gives each parameter a gradient of zeros."""

    @staticmethod
    def forward(
        ctx: Any, outputs: Tensor, schedule: _Schedule, lasts_s: float, *parameters: Tensor
    ) -> Tensor:
        """Remember what backward needs."""
        ctx.schedule, ctx.lasts_s = schedule, lasts_s
        ctx.shapes = [parameter.shape for parameter in parameters]
        return outputs.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Sleep; zeros are expanded, not written: a GPU's gradients would not cost this CPU any time."""
        ctx.schedule.spend(ctx.lasts_s)
        zero = torch.zeros((), device=gradients[0].device)
        return gradients[0], None, None, *(zero.expand(shape) for shape in ctx.shapes)


_sleep: Callable[..., Tensor] = _Slept.apply
