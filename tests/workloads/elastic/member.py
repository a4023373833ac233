"""The training command with a tiny model, which writes each rank's state after each change for a test.

`python -m tests.workloads.elastic.member FOLDER ARGUMENTS`: model `tiny` has no batch norm and no dropout.
"""

import hashlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from tests.workloads.tiny import TINY
from workloads import registry
from workloads.ending import end_at_once
from workloads.group import Group
from workloads.training import Trainer

assert isinstance(registry.WORKLOADS, dict)
registry.WORKLOADS["tiny"] = TINY


def watch(folder: Path) -> None:
    """Have this rank write a digest of its state whenever it has one from another."""
    run = importlib.import_module("workloads.elastic.run")
    spread: Callable[[Group, Trainer], None] = vars(run)["spread"]

    def spread_and_tell(group: Group, trainer: Trainer) -> None:
        spread(group, trainer)
        told = {"rank": group.rank, "ranks": group.size, "state": digest(trainer.state())}
        with (folder / f"states.{os.getpid()}").open("a") as file:
            file.write(json.dumps(told) + "\n")

    vars(run)["spread"] = spread_and_tell


def digest(state: Any) -> str:
    """Of all that is in it, to the bit."""
    if isinstance(state, dict):
        text = ",".join(f"{key}:{digest(value)}" for key, value in state.items())
    elif isinstance(state, list):
        text = ",".join(map(digest, state))
    elif isinstance(state, Tensor):
        text = hashlib.sha256(state.detach().cpu().numpy().tobytes()).hexdigest()
    else:
        text = repr(state)
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
    train: Callable[[Sequence[str]], int] = vars(importlib.import_module("workloads.train"))["train"]
    end_at_once(train(sys.argv[2:]))
