"""Starts ranks for tests, as workloads.preload does: `python -m tests.workloads.elastic.member SOCKET`.

They can train the model `tiny`, which has no batch norm and no dropout, and each writes a digest of its state
after each change into the folder that STATES names.
"""

import hashlib
import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from tests.workloads.tiny import TINY
from workloads import registry
from workloads.group import Group
from workloads.training import Trainer

assert isinstance(registry.WORKLOADS, dict)
registry.WORKLOADS["tiny"] = TINY


def watch() -> None:
    """Have ranks write a digest of their state whenever they have one from another."""
    run = importlib.import_module("workloads.elastic.run")
    broadcast_state: Callable[[Group, Trainer], None] = vars(run)["broadcast_state"]

    def spread_and_tell(group: Group, trainer: Trainer) -> None:
        broadcast_state(group, trainer)
        told = {"rank": group.rank, "ranks": group.size, "state": digest(trainer.state())}
        with (Path(os.environ["STATES"]) / f"states.{os.getpid()}").open("a") as file:
            file.write(json.dumps(told) + "\n")

    vars(run)["broadcast_state"] = spread_and_tell


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
    watch()
    main: Callable[[], None] = vars(importlib.import_module("workloads.preload"))["main"]
    main()
