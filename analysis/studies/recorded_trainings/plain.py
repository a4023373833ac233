"""A training script of somebody who has never heard of Dally: PLAN [STEPS] [WIDTH] [SLEEP_S] [BATCH]."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

given = sys.argv[1:]
plan, steps, width, sleep_s, batch = (*given, *("ddp", "30", "64", "0.1", "16")[len(given) :])
wide, microbatches = int(width), 4
device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)


class Larger(nn.Module):
    """A stage that computes longer forward, as that of a larger model does."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:  # noqa: D102
        time.sleep(self.seconds)
        return hidden


def block() -> nn.Module:
    """Two layers."""
    return nn.Sequential(nn.Linear(wide, 4 * wide), nn.ReLU(), nn.Linear(4 * wide, wide))


dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model: nn.Module = nn.Sequential(*[block() for _ in range(4)]).to(device)
schedule = None
match plan:
    case "ddp":
        model = DistributedDataParallel(model)
    case "fsdp":
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
    case "pp":
        model = nn.Sequential(
            Larger(float(sleep_s) / microbatches), nn.Linear(wide, wide), nn.Linear(wide, wide)
        ).to(device)
        stage = PipelineStage(model, rank, world, device)
        schedule = Schedule1F1B(
            stage, microbatches, loss_fn=lambda output, target: (output - target).pow(2).mean()
        )
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(int(steps)):
    start_s = time.perf_counter()
    if schedule is None:
        time.sleep(float(sleep_s))  # the forward pass of a larger model
        model(torch.randn(int(batch), wide, device=device)).sum().backward()
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
