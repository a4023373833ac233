"""Trains a small model twice, with the recorder as hook and without one; rank 0 prints what differs."""

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from profiler.rank.clocks import Clock
from profiler.rank.steps import BucketRecorder
from workloads.group import join, leave
from workloads.settings import Backend
from workloads.stopping import end_at_once

_JOIN_S = 120.0
_BUCKET_MB = 0.01


def _train(rank: int, register: Callable[[DistributedDataParallel], None]) -> DistributedDataParallel:
    torch.manual_seed(0)
    layers = [nn.Linear(40, 40) for _ in range(5)]
    parallel = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=_BUCKET_MB)
    register(parallel)
    torch.manual_seed(rank)
    for _ in range(3):
        parallel.zero_grad()
        backward: Callable[[], None] = parallel(torch.randn(4, 40)).square().mean().backward
        backward()
    return parallel


def _gradients(parallel: DistributedDataParallel) -> list[torch.Tensor]:
    return [parameter.grad for parameter in parallel.parameters() if parameter.grad is not None]


def _ddp_layout(parallel: DistributedDataParallel) -> list[int]:
    read: Callable[[], dict[str, Any]] = parallel._get_ddp_logging_data
    return [int(size) for size in str(read()["rebuilt_bucket_sizes"]).split(",")]


def main() -> None:
    """Compare the two."""
    group = join(Backend.GLOO, _JOIN_S)
    recorder = BucketRecorder(Clock(torch.device("cpu")), group.size)
    layouts: list[list[int]] = []

    def reduce(state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            layouts.append([])
        layouts[-1].append(bucket.buffer().nbytes)
        return recorder.reduce(state, bucket)

    hooked = _train(group.rank, lambda parallel: parallel.register_comm_hook(None, reduce))
    plain = _train(group.rank, lambda parallel: None)
    marks = recorder.take()
    pairs = zip(_gradients(hooked), _gradients(plain), strict=True)
    same = all(torch.allclose(one, two) for one, two in pairs)
    if group.rank == 0:
        last = marks[-len(layouts[-1]) :]
        print(
            json.dumps(
                {
                    "recorded": [size for size, _ in last],
                    "ddp": _ddp_layout(plain),
                    "same_gradients": same,
                }
            )
        )
    leave()
    end_at_once(0)


if __name__ == "__main__":
    main()
