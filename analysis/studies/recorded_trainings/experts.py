"""A mixture of experts whose tokens go from all ranks to all, as of somebody's own script: [STEPS]."""

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_to_all_single
from torch.nn.parallel import DistributedDataParallel

WIDTH, TOKENS = 64, 64
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
shared = 2
groups = [dist.new_group([*range(first, first + shared)]) for first in range(0, world, shared)]
replicas = [dist.new_group([*range(first, world, shared)]) for first in range(shared)]
exchange: Any = all_to_all_single
peers, alike = groups[rank // shared], replicas[rank % shared]


class Experts(nn.Module):
    """One expert on each rank of a group; every rank sends each of them its share of the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.expert = DistributedDataParallel(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)),
            process_group=alike,
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:  # noqa: D102
        sent = exchange(torch.empty_like(tokens), tokens.contiguous(), group=peers)
        received: torch.Tensor = exchange(
            torch.empty_like(tokens), self.expert(sent).contiguous(), group=peers
        )
        return received


dense = DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
layers = [Experts() for _ in range(3)]
parameters = [*dense.parameters(), *[each for layer in layers for each in layer.parameters()]]
optimizer = torch.optim.AdamW(parameters)
for _ in range(steps):
    hidden = dense(torch.randn(TOKENS, WIDTH))
    for layer in layers:
        hidden = hidden + layer(hidden)
    hidden.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
print("trained")
