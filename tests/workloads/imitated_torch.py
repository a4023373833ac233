"""A package `torch` with no more than what the recorder looks at, and a job that trains with it."""

from pathlib import Path

VERSION = "2.13.0"

_TORCH = """
import sys, types
__version__ = {version!r}
compiler = types.SimpleNamespace(is_compiling=lambda: False)
native = types.ModuleType("torch._C._distributed_c10d")
entry = dict(process_group=["0", ""], profiling_name="nccl:all_reduce")
entry |= dict(input_sizes=[[4096]], input_dtypes=["Float"])
def dump():
    from torch.optim import optimizer
    return __import__("json").dumps(dict(entries=[dict(entry, time_created_ns=at) for at in optimizer.began]))
for other in {empty!r}: setattr(native, other, lambda: '{{"entries": []}}')
setattr(native, {dump!r}, dump)
sys.modules[native.__name__] = native
"""

_DISTRIBUTED = """
import os, types
ready = False
is_initialized = lambda: ready
get_rank = lambda: int(os.environ["RANK"])
get_world_size = lambda: int(os.environ["WORLD_SIZE"])
get_backend = lambda: "gloo"
class ProcessGroup:
    group_desc = "default_pg"
    def send(self, tensors, peer, tag): return "sent"
group = ProcessGroup()
ranks = dict.fromkeys(range(int(os.environ["WORLD_SIZE"])))
world = types.SimpleNamespace(pg_names={group: "0"}, pg_group_ranks={group: ranks})
distributed_c10d = types.SimpleNamespace(_world=world)
"""

_OPTIMIZER = """
import time
hooks, began = [], []
register_optimizer_step_post_hook = hooks.append
class Optimizer:
    def step(self):
        began.append(time.time_ns())
        time.sleep(0.001)
        for hook in hooks: hook(self, (), {})
"""

_JOB = """
import os, sys, time
import torch, torch.distributed
from torch.optim import optimizer
if recorder := sys.modules.get("dally_recorder"):
    recorder._POLL_S = 0.01
BEFORE
torch.distributed.ready = True
while recorder and not optimizer.hooks: time.sleep(0.01)
adam = optimizer.Optimizer()
for _ in range(20): adam.step()
while recorder and "DALLY_LEARN_RANK" not in os.environ: time.sleep(0.01)
AFTER
print("trained")
"""


def write_torch(
    folder: Path, version: str = VERSION, dump: str = "_dump_fr_trace_json", empty: tuple[str, ...] = ()
) -> None:
    """Write the package into a folder.

    Args:
        folder: Python finds it there.
        version: What it says it is.
        dump: The function that tells its collectives.
        empty: Functions that tell of none.
    """
    for name, text in {
        "torch/__init__.py": _TORCH.format(version=version, dump=dump, empty=empty),
        "torch/distributed/__init__.py": _DISTRIBUTED,
        "torch/optim/__init__.py": "",
        "torch/optim/optimizer.py": _OPTIMIZER,
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def job(before: str = "", after: str = "") -> str:
    """A training of twenty steps; what it does before it has a process group, and after its last step."""
    return _JOB.replace("BEFORE", before).replace("AFTER", after)
