"""A training that loads its data in other processes and starts a program that trains by itself.

It accumulates the gradients of two microbatches, whose activations it computes anew for backward.

The arguments, if any, are a rank and a folder: that rank kills itself when its record lies there.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

ALONE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
optimizer = torch.optim.SGD(model.parameters())
for _ in range(3):
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
print("stepped", flush=True)
"""

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
victim, until = (int(sys.argv[1]), sys.argv[2]) if len(sys.argv) > 1 else (-1, "")
loader = DataLoader(TensorDataset(torch.randn(4000, 64)), num_workers=0 if until else 2)
for step, (batch,) in enumerate(loader):
    with model.no_sync():
        model(checkpoint(torch.tanh, batch.requires_grad_(), use_reentrant=True)).sum().backward()
    model(batch).sum().backward()
    optimizer.step()
    if (
        dist.get_rank() == victim
        and step > 5
        and (until == "now" or [*Path(until).rglob(f"*{victim}.json.gz")])
    ):
        os.kill(os.getpid(), signal.SIGKILL)
    if until:
        time.sleep(0.02)
    elif step == 200:
        break
if not until and dist.get_rank() == 0:
    # How it ends does not count: while Python cleans up, a thread of gloo's may abort it.
    said = subprocess.run([sys.executable, "-c", ALONE], stdout=subprocess.PIPE, check=False).stdout
    assert said == b"stepped\n"
dist.destroy_process_group()
print("trained")
