"""A training like a user's: DDP over gloo, which knows nothing of Dally and prints its steps, for ever."""

import itertools
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(512, 2048))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in itertools.count():
    start_s = time.perf_counter()
    optimizer.zero_grad()
    model(torch.ones(4, 512)).square().mean().backward()
    optimizer.step()
    if distributed.get_rank() == 0:
        step_s = time.perf_counter() - start_s
        print(f"step {step} on {distributed.get_world_size()} ranks, step time {step_s} s")
