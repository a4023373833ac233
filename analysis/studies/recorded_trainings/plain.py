"""A training script of somebody who has never heard of Dally: PLAN [STEPS] [WIDTH] [SLEEP_S] [BATCH]."""

import ctypes
import os
import sys
import time
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

given = sys.argv[1:]
plan, steps, width, sleep_s, batch = (*given, *("ddp", "30", "64", "0.1", "16")[len(given) :])
wide, microbatches = int(width), 4
device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)


def compute(seconds: float) -> None:
    """Compute so long, as a larger model does.

    On a GPU, what is launched next waits so long: as behind kernels, but ranks may share the GPU meanwhile.
    """
    if device.type == "cpu":
        time.sleep(seconds)
        return
    runtime = ctypes.CDLL(f"libcudart.so.{str(torch.version.cuda).split('.')[0]}")
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
    if runtime.cudaLaunchHostFunc(stream, sleep, ctypes.c_void_p(round(seconds * 1e6))):
        raise RuntimeError("CUDA cannot call a function of the host")


class Larger(nn.Module):
    """A layer that computes long forward, and on a GPU twice as long backward."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:  # noqa: D102
        compute(self.seconds)
        if hidden.is_cuda and hidden.requires_grad:
            at_backward: Any = hidden.register_hook
            at_backward(lambda _: compute(2 * self.seconds))
        return hidden


def squared(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The loss of a pipeline."""
    return (output - target).pow(2).mean()


def block() -> nn.Module:
    """Two layers."""
    return nn.Sequential(nn.Linear(wide, 4 * wide), nn.ReLU(), nn.Linear(4 * wide, wide))


dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model: Any = nn.Sequential(*[block() for _ in range(4)]).to(device)
schedule = None
match plan:
    case "ddp" | "accumulate":
        model = DistributedDataParallel(model)
    case "fsdp" | "accumulate-fsdp":
        for layer in [*model.children(), model]:
            fully_shard(layer)
    case "hsdp":
        mesh = init_device_mesh(device.type, (2, world // 2), mesh_dim_names=("replicate", "shard"))
        for layer in [*model.children(), model]:
            fully_shard(layer, mesh=mesh)
    case "tp":
        mesh = init_device_mesh(device.type, (world // 2, 2), mesh_dim_names=("dp", "tp"))
        for layer in model.children():
            parallelize_module(layer, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
            fully_shard(layer, mesh=mesh["dp"])
    case "pp" | "interleaved":
        chunks = 1 if plan == "pp" else 2
        seconds = float(sleep_s) / microbatches / chunks
        model = nn.ModuleList(
            nn.Sequential(nn.Linear(wide, wide), Larger(seconds), nn.Linear(wide, wide))
            for _ in range(chunks)
        ).to(device)
        stages = [
            PipelineStage(chunk, rank + number * world, world * chunks, device)
            for number, chunk in enumerate(model)
        ]
        schedule = (
            Schedule1F1B(stages[0], microbatches, squared)
            if plan == "pp"
            else ScheduleInterleaved1F1B([*stages], microbatches, squared)
        )
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(int(steps)):
    start_s = time.perf_counter()
    if schedule is None:
        time.sleep(float(sleep_s))  # the forward pass of a larger model
        passes = microbatches if plan.startswith("accumulate") else 1
        for number in range(passes):
            is_last = number + 1 == passes
            if plan == "accumulate-fsdp":
                model.set_requires_gradient_sync(is_last)
            with nullcontext() if is_last or plan != "accumulate" else model.no_sync():
                model(torch.randn(int(batch) // passes, wide, device=device)).sum().backward()
        for each in model.parameters() if plan == "by-hand" else ():
            dist.all_reduce(each.grad)
    else:
        samples = torch.randn(int(batch), wide, device=device)
        schedule.step(*[samples] * (rank == 0), target=samples if rank == world - 1 else None)
    optimizer.step()
    optimizer.zero_grad()
    if device.type == "cuda":
        torch.cuda.synchronize()
    if rank == 0:
        print(f"step time {time.perf_counter() - start_s} s", flush=True)
dist.destroy_process_group()
print("trained")
