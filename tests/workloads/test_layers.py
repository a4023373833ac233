"""The tables of layers are what counting gives."""

import pytest

from workloads.layers import count_layers, find_layers, format_layers, parse_layers
from workloads.registry import WORKLOADS
from workloads.task import make_task


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_table_of_a_workload_is_what_counting_gives(name: str) -> None:
    counted = count_layers(make_task(WORKLOADS[name]))
    assert find_layers(WORKLOADS[name]) == counted
    assert parse_layers(format_layers(counted)) == counted


def test_another_size_is_counted() -> None:
    shapes, layers = find_layers(WORKLOADS["resnet18"], 64)
    usual_shapes, usual = find_layers(WORKLOADS["resnet18"])
    assert shapes == usual_shapes
    assert sum(layer.flops for layer in layers) < sum(layer.flops for layer in usual) / 10
