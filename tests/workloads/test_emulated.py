"""Emulated compute lasts as long as it should, and its gradients go the way of real ones."""

import time

import pytest
import torch
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future

from dally.profiles.imports.realistic import LAYERS
from tests.workloads.step_clock import StepClock
from workloads.group import Group
from workloads.layers import find_layers
from workloads.registry import WORKLOADS
from workloads.settings import Settings
from workloads.training import Trainer

SMALL = {"bert-base": 8, "ncf": None}


def buckets(name: str, emulated_flops: float | None, group: Group) -> list[int]:
    """Bytes of DDP's buckets, in the order in which they become ready, once DDP has settled on them."""
    found: list[int] = []

    def keep(state: object, bucket: GradBucket) -> Future[torch.Tensor]:
        found.append(bucket.buffer().nbytes)
        future: Future[torch.Tensor] = Future()
        future.set_result(bucket.buffer())
        return future

    settings = Settings(2, size=SMALL.get(name, 64), emulated_flops=emulated_flops)
    trainer = Trainer(WORKLOADS[name], settings, group, keep)
    for _ in range(2):
        found.clear()
        trainer.backward(trainer.forward(trainer.draw([0, 1])))
    return found


@pytest.mark.parametrize("name", ["resnet18", "alexnet", "mobilenetv3", "bert-base", "ncf"])
def test_the_buckets_are_those_of_the_real_model(name: str, alone: Group) -> None:
    emulated = buckets(name, 1e18, alone)
    assert sum(emulated) == WORKLOADS[name].grad_bytes
    assert emulated == buckets(name, None, alone)


@pytest.mark.parametrize("name", sorted(set(WORKLOADS) & set(LAYERS)))
def test_the_operations_are_those_counted_by_hand(name: str) -> None:
    _, layers = find_layers(WORKLOADS[name])
    assert sum(layer.flops for layer in layers) == 2 * sum(layer.macs for layer in LAYERS[name])


def test_the_sleeps_of_many_layers_sum_up_to_the_time_of_the_passes(
    alone: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = StepClock()
    trainer = Trainer(WORKLOADS["resnet50"], Settings(4, emulated_flops=1e12), alone)
    batch = trainer.draw(range(4))
    _, layers = find_layers(WORKLOADS["resnet50"])
    forward_s = 4 * sum(layer.flops for layer in layers) / 1e12
    backward_s = 2 * forward_s - 4 * layers[0].flops / 1e12
    monkeypatch.setattr("workloads.emulated.time", clock)
    loss = trainer.forward(batch)
    assert clock.now_s == pytest.approx(forward_s, abs=1.01 * clock.late_s)
    trainer.backward(loss)
    assert clock.now_s == pytest.approx(forward_s + backward_s, abs=2.02 * clock.late_s)
    assert len(layers) * clock.late_s > 0.1 * forward_s, "late sleeps that add up would show"


def test_passes_really_last(alone: Group) -> None:
    trainer = Trainer(WORKLOADS["ncf"], Settings(1000, emulated_flops=2e9), alone)
    _, layers = find_layers(WORKLOADS["ncf"])
    start_s = time.perf_counter()
    trainer.train(0, range(1000))
    assert time.perf_counter() - start_s >= 3 * 1000 * sum(layer.flops for layer in layers) / 2e9


def test_losses_tell_the_samples_whoever_takes_them(alone: Group) -> None:
    settings = Settings(6, emulated_flops=1e18)
    whole = Trainer(WORKLOADS["ncf"], settings, alone).train(0, range(6))
    shares = [Trainer(WORKLOADS["ncf"], settings, alone).train(0, part) for part in (range(4), range(4, 6))]
    assert sum(shares) == pytest.approx(whole)
    assert whole != Trainer(WORKLOADS["ncf"], settings, alone).train(0, range(1, 7))
