"""The layers of a model: which parameters are used together, and how many operations each part takes.

Those of the workloads lie counted in tables (`scripts/count_layers.py` writes them): to build a model only to
count takes seconds, and each rank of an emulated job would spend them at every start.
"""

import json
from dataclasses import dataclass
from importlib import resources

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from workloads.registry import WORKLOADS, ModelRecipe
from workloads.task import Task, as_input, make_task

Counted = tuple[tuple[tuple[int, ...], ...], tuple["Layer", ...]]
"""Shapes of all parameters, and the layers in the order of the forward pass."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Parameters used together.

    Attributes:
        parameters: Their numbers among the model's, in the order in which their gradients come.
        flops: Floating-point operations of one sample's forward pass, from the end of the layer before.
    """

    parameters: tuple[int, ...]
    flops: int


def find_layers(workload: ModelRecipe, size: int | None = None) -> Counted:
    """Parameters and layers of a workload: from its table, or counted where the samples have another size.

    Raises:
        InputError: The size does not fit the model.
    """
    if workload != WORKLOADS.get(workload.name) or size not in (None, workload.size):
        return count_layers(make_task(workload, size))
    text = (resources.files("workloads") / "layer_tables" / f"{workload.name}.json").read_text("utf-8")
    return parse_layers(text)


def parse_layers(text: str) -> Counted:
    """Take back what `format_layers` gave."""
    table = json.loads(text)
    shapes = tuple(tuple(shape) for shape in table["shapes"])
    return shapes, tuple(Layer(tuple(own), flops) for own, flops in table["layers"])


def format_layers(counted: Counted) -> str:
    """Parameters and layers as a table: JSON, a line each."""
    shapes, layers = counted
    rows = ",\n".join(json.dumps([layer.parameters, layer.flops]) for layer in layers)
    return f'{{"shapes": {json.dumps(shapes)},\n"layers": [\n{rows}\n]}}\n'


def count_layers(task: Task) -> Counted:
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
    # Operations are counted up to the end of each layer; what comes after the last one is part of it.
    until = [*(flops for _, flops in ends[:-1]), counter.get_total_flops()]
    layers = (Layer(own, end - start) for (own, _), start, end in zip(ends, [0, *until], until, strict=False))
    return tuple(tuple(parameter.shape) for parameter in parameters), tuple(layers)
