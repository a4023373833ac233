"""A training script of somebody who has never heard of Dally; the argument names the plan."""

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


def block() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model: nn.Module = nn.Sequential(*[block() for _ in range(4)])
schedule = None
match sys.argv[1]:
    case "ddp":
        model = DistributedDataParallel(model)
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
for _ in range(30):
    time.sleep(0.1)  # the forward pass of a larger model
    if schedule is None:
        model(torch.randn(8, 64)).sum().backward()
    else:
        inputs = (torch.randn(16, 64),) if rank == 0 else ()
        schedule.step(*inputs, target=torch.randn(16, 64) if rank == world - 1 else None)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
print("trained")
