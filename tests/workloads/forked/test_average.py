"""The average of copies: parameters, statistics and moments by weight, counts added up."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import Adam, Optimizer

from tests.workloads.forked.states import MOMENTUM, trained
from workloads.forked.average import average
from workloads.forked.slot import CopyResult
from workloads.forked.tracker import consolidate


def test_everything_is_averaged_by_weight_and_counts_are_added() -> None:
    before, one, more = trained(0), trained(1), trained(3)
    averaged = average([one, more], [0.25, 0.75], before)
    for name in ("0.weight", "1.weight", "1.running_mean", "1.running_var"):
        wanted = 0.25 * one["model"][name] + 0.75 * more["model"][name]
        assert torch.allclose(averaged["model"][name], wanted)
        assert not torch.equal(one["model"][name], more["model"][name])
    assert averaged["model"]["1.num_batches_tracked"] == 4
    first = averaged["optimizer"]["state"][0]["momentum_buffer"]
    parts = [state["optimizer"]["state"][0]["momentum_buffer"] for state in (one, more)]
    assert torch.allclose(first, 0.25 * parts[0] + 0.75 * parts[1])
    assert averaged["optimizer"]["param_groups"] == one["optimizer"]["param_groups"]


@pytest.mark.parametrize("make", [MOMENTUM, Adam])
def test_a_copy_alone_is_its_own_average_to_the_bit(make: Callable[..., Optimizer]) -> None:
    alone = trained(3, make)
    averaged = average([alone], [1.0], trained(0, make))
    assert averaged["model"].keys() == alone["model"].keys()
    for name, tensor in alone["model"].items():
        assert torch.equal(averaged["model"][name], tensor)
    for number, moments in alone["optimizer"]["state"].items():
        for name, tensor in moments.items():
            assert torch.equal(averaged["optimizer"]["state"][number][name], tensor)


def test_copies_weigh_as_much_as_they_have_done_and_those_without_a_step_nothing() -> None:
    before, one, more = trained(0), trained(1), trained(3)
    results = [
        (CopyResult(0, ((0, 1),), 1.0, 0.5, False), one),
        (CopyResult(1, (), 0.0, 0.0, False), {}),
        (CopyResult(2, ((1, 4),), 1.0, 0.5, False), {**more, "result": {}}),
    ]
    state = consolidate(results, {**before, "slot": {}})
    assert state.keys() == {"model", "optimizer"}
    wanted = average([one, more], [0.25, 0.75], before)
    assert torch.equal(state["model"]["0.weight"], wanted["model"]["0.weight"])
    assert torch.equal(consolidate(results[1:2], before)["model"]["0.weight"], before["model"]["0.weight"])


def test_an_average_trains_on() -> None:
    first = nn.Linear(2, 3)
    module = nn.Sequential(first, nn.BatchNorm1d(3))
    optimizer = MOMENTUM(module.parameters())
    state = average([trained(1), trained(3)], [0.5, 0.5], trained(0))
    module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    before = first.weight.detach().clone()
    module(torch.rand(4, 2)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(before, first.weight)
