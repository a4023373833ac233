"""Emulated compute: the true parameters of a model, whose forward and backward passes only last as long.

A pretended GPU does so many floating-point operations per second. Each layer's part of the forward pass lasts
its operations over that, and twice as long in the backward pass, which needs as many for the gradients of its
inputs as for those of its weights. Gradients of true size and order, all zero, go through real DDP.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.utils.flop_counter import FlopCounterMode

from workloads.task import Numbers, Task, as_input

_INPUTS = Numbers((), (1 << 20,))
"""One number for each sample; the loss is their mean, so that it tells which samples were taken."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Parameters used together.

    Attributes:
        parameters: Their numbers among the model's, in the order in which their gradients come.
        flops: Floating-point operations of one sample's forward pass, from the end of the layer before.
    """

    parameters: tuple[int, ...]
    flops: int


def emulate(task: Task, flops: float) -> Task:
    """The same task on a pretended GPU.

    Args:
        task: What to train.
        flops: Floating-point operations per second of the GPU.
    """

    def build() -> nn.Module:
        return _Emulated(*count_layers(task), flops)

    return Task(build=build, inputs=_INPUTS, targets=_INPUTS, loss=_take_mean)


def count_layers(task: Task) -> tuple[tuple[torch.Size, ...], tuple[Layer, ...]]:
    """Shapes of all parameters, and the layers in the order of the forward pass; computes nothing."""
    with torch.device("meta"):
        module = task.build().eval()  # in training, a batch norm refuses a single number
    inputs = as_input(torch.from_numpy(task.inputs.zeros(1)).to("meta"))
    parameters = list(module.parameters())
    left = {parameter: number for number, parameter in enumerate(parameters)}
    ends: list[tuple[tuple[int, ...], int]] = []
    counter = FlopCounterMode(display=False)

    def note_end(layer: nn.Module, *_: object) -> None:
        own = [left.pop(item) for item in layer.parameters(recurse=False) if item in left]
        if isinstance(layer, nn.Linear):
            own.reverse()  # its bias is added last, so its gradient comes first
        if own:
            ends.append((tuple(own), counter.get_total_flops()))

    for layer in module.modules():
        layer.register_forward_hook(note_end)
    with counter, torch.no_grad():
        module(inputs)
    assert not left, "a parameter that no module's forward pass uses"
    return tuple(parameter.shape for parameter in parameters), _layers(ends, counter.get_total_flops())


def _layers(ends: Sequence[tuple[tuple[int, ...], int]], total: int) -> tuple[Layer, ...]:
    """Layers out of the operations counted up to each one's end; what comes after the last is part of it."""
    until = [*(flops for _, flops in ends[:-1]), total]
    starts = [0, *until]
    return tuple(Layer(own, end - start) for (own, _), start, end in zip(ends, starts, until, strict=False))


class _Emulated(nn.Module):
    """All parameters of a model; sleeps for its layers."""

    def __init__(self, shapes: Sequence[torch.Size], layers: Sequence[Layer], flops: float) -> None:
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


def _take_mean(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.mean() / _INPUTS.limits[0]
