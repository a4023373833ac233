"""Iterations of 64 ranks, of which one is real: torch's fake process group does nothing for the others."""

from collections.abc import Iterator

import pytest
import torch
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

from profiler.rank.clocks import Clock
from profiler.rank.steps import BucketRecorder
from workloads.group import Group
from workloads.registry import find_workload
from workloads.settings import Backend, Precision, Settings
from workloads.training import Trainer

SIZE = 64


@pytest.fixture
def gang() -> Iterator[Group]:
    """The first of so many ranks."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=SIZE)
    yield Group(0, SIZE, torch.device("cpu"), Backend.GLOO)
    distributed.destroy_process_group()


def buckets(group: Group, precision: Precision) -> tuple[list[int], torch.dtype | None]:
    """Bytes of the buckets of an iteration, once DDP has put them in order, and what they hold."""
    recorder = BucketRecorder(Clock(torch.device("cpu")), group.size)
    recorder.silent = True  # the fake all-reduce gives no result
    settings = Settings(global_batch=group.size, precision=precision)
    trainer = Trainer(find_workload("digits"), settings, group, recorder.reduce)
    for _ in range(3):
        recorder.take()
        trainer.backward(trainer.forward(trainer.draw([0])))
        trainer.update()
    return [size for size, _ in recorder.take()], recorder.dtype


@pytest.mark.parametrize("precision", Precision)
def test_buckets_hold_all_gradients_in_fp32_whatever_is_computed_in(
    gang: Group, precision: Precision
) -> None:
    sizes, dtype = buckets(gang, precision)
    assert dtype is torch.float32
    assert sum(sizes) == find_workload("digits").grad_bytes
