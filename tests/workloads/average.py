"""One rank that shares a batch with others: `python -m tests.workloads.average SAMPLES` prints its gradients.

`own` are those before, and `averaged` those after the ranks have averaged them.
"""

import json
import sys

from tests.workloads.tiny import TINY
from workloads.ending import end_at_once
from workloads.group import join, leave
from workloads.samples import share
from workloads.settings import Backend, Settings
from workloads.training import Trainer


def gradients(trainer: Trainer) -> list[float]:
    """The gradients of all parameters in a row."""
    found: list[float] = []
    for parameter in trainer.module.parameters():
        assert parameter.grad is not None
        found += parameter.grad.flatten().tolist()
    return found


def main(global_batch: int) -> None:
    group = join(Backend.GLOO, 60.0)
    trainer = Trainer(TINY, Settings(global_batch), group)
    batch = trainer.draw(share(range(global_batch), group.rank, group.size))
    with trainer.unsynchronised():
        trainer.backward(trainer.forward(batch))
    own = gradients(trainer)
    trainer.module.zero_grad()
    loss = trainer.forward(batch)
    trainer.backward(loss)
    print(json.dumps({"loss": loss.item(), "own": own, "averaged": gradients(trainer)}))
    leave()
    end_at_once(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
