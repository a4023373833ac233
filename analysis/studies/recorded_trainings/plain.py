"""A training script of somebody who has never heard of Dally: PLAN [STEPS] [WIDTH] [SLEEP_S]."""

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

plan, steps, width, sleep_s = (*sys.argv[1:], *("ddp", "30", "64", "0.1")[len(sys.argv) - 1 :])
wide = int(width)


def block() -> nn.Module:
    """Two layers."""
    return nn.Sequential(nn.Linear(wide, 4 * wide), nn.ReLU(), nn.Linear(4 * wide, wide))


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model: nn.Module = nn.Sequential(*[block() for _ in range(4)])
schedule = None
match plan:
    case "ddp":
        model = DistributedDataParallel(model)
    case "fsdp":
        for layer in [*model.children(), model]:
            fully_shard(layer)
    case "hsdp":
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
        for layer in [*model.children(), model]:
            fully_shard(layer, mesh=mesh)
    case "tp":
        mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
        for layer in model.children():
            parallelize_module(layer, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
            fully_shard(layer, mesh=mesh["dp"])
    case "pp":
        model = nn.Sequential(block(), block())
        stage = PipelineStage(model, rank, world, torch.device("cpu"))
        schedule = Schedule1F1B(stage, 4, loss_fn=lambda output, target: (output - target).pow(2).mean())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(int(steps)):
    start_s = time.perf_counter()
    time.sleep(float(sleep_s))  # the forward pass of a larger model
    if schedule is None:
        model(torch.randn(8, wide)).sum().backward()
    else:
        inputs = (torch.randn(16, wide),) if rank == 0 else ()
        schedule.step(*inputs, target=torch.randn(16, wide) if rank == world - 1 else None)
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(f"step time {time.perf_counter() - start_s} s", flush=True)
dist.destroy_process_group()
print("trained")
