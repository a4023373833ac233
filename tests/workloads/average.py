"""One rank that shares a batch with others: `python -m tests.workloads.average SAMPLES [WEIGHT]...`.

It prints its gradients, `own` before and `averaged` after the ranks have averaged them, its loss, and the
parameters `after` three steps on the same batch.
"""

import json
import sys
from collections.abc import Sequence

from tests.workloads.tiny import TINY
from workloads.group import join, leave
from workloads.samples import share
from workloads.settings import Backend, Settings
from workloads.shares import local_batches
from workloads.stopping import end_at_once
from workloads.training import Trainer

STEPS = 3


def gradients(trainer: Trainer) -> list[float]:
    """The gradients of all parameters in a row."""
    found: list[float] = []
    for parameter in trainer.module.parameters():
        assert parameter.grad is not None
        found += parameter.grad.flatten().tolist()
    return found


def after_steps(trainer: Trainer, samples: Sequence[int]) -> list[float]:
    """All parameters in a row after three steps."""
    for step in range(STEPS):
        trainer.train(step, samples)
    return [number for item in trainer.module.parameters() for number in item.flatten().tolist()]


def main(global_batch: int, weights: Sequence[float] | None) -> None:
    group = join(Backend.GLOO, 60.0)
    trainer = Trainer(TINY, Settings(global_batch), group)
    parts = local_batches(global_batch, group.size, weights)
    samples = share(range(global_batch), group.rank, parts)
    batch = trainer.draw(samples)
    with trainer.unsynchronised():
        trainer.backward(trainer.forward(batch))
    own = gradients(trainer)
    trainer.module.zero_grad()
    loss = trainer.forward(batch)
    trainer.backward(loss)
    seen = {"loss": loss.item(), "own": own, "averaged": gradients(trainer)}
    trainer.module.zero_grad()
    print(json.dumps({**seen, "parts": parts, "after": after_steps(trainer, samples)}))
    leave()
    end_at_once(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), [float(word) for word in sys.argv[2:]] or None)
