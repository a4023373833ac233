"""A mixture of experts whose tokens go from all ranks to all, as of somebody's own script.

[STEPS] [TOKENS] [SLEEP_S] [SHARED] [HOT]: ranks share experts in groups of SHARED, and the first expert gets
HOT times as many tokens as another one.
"""

import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_to_all_single
from torch.nn.parallel import DistributedDataParallel

WIDTH = 64
given = sys.argv[1:]
steps, tokens_each, sleep_s, sharing, hot = (*given, *("30", "64", "0", "2", "1")[len(given) :])
device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
shared = int(sharing)
loads = [float(hot), *[1.0] * (shared - 1)]
sent_to = [int(int(tokens_each) * load / sum(loads)) for load in loads]
TOKENS = sum(sent_to)
groups = [dist.new_group([*range(first, first + shared)]) for first in range(0, world, shared)]
replicas = [dist.new_group([*range(first, world, shared)]) for first in range(shared)]
exchange: Any = all_to_all_single
peers, alike = groups[rank // shared], replicas[rank % shared]
got_from = [sent_to[rank % shared]] * shared


class Experts(nn.Module):
    """One expert on each rank of a group; every rank sends each of them its share of the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.expert = DistributedDataParallel(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)).to(device),
            process_group=alike,
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:  # noqa: D102
        sent = exchange(
            tokens.new_empty(sum(got_from), WIDTH), tokens.contiguous(), got_from, sent_to, group=peers
        )
        received: torch.Tensor = exchange(
            torch.empty_like(tokens), self.expert(sent).contiguous(), sent_to, got_from, group=peers
        )
        return received


dense = DistributedDataParallel(nn.Linear(WIDTH, WIDTH).to(device))
layers = [Experts() for _ in range(3)]
parameters = [*dense.parameters(), *[each for layer in layers for each in layer.parameters()]]
optimizer = torch.optim.AdamW(parameters)
for _ in range(int(steps)):
    start_s = time.perf_counter()
    time.sleep(float(sleep_s))  # the rest of a larger model
    hidden = dense(torch.randn(TOKENS, WIDTH, device=device))
    for layer in layers:
        hidden = hidden + layer(hidden)
    hidden.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if device.type == "cuda":
        torch.cuda.synchronize()
    if rank == 0:
        print(f"step time {time.perf_counter() - start_s} s", flush=True)
dist.destroy_process_group()
print("trained")
