"""What all ranks learn from each other at every step: the loss, and whether to stop or to pause.

The sum over the ranks travels while the next step computes, and is read after it: nobody waits for it, and
all ranks read the same at the same step.
"""

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor, distributed

from dally.errors import DallyError
from workloads.group import Group


class TrainingError(DallyError):
    """Training failed on the way."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step, as all ranks know it.

    Attributes:
        step: Steps done with it.
        loss: Of the global batch.
        stop: A rank was asked to stop.
        seconds: From the end of the step before to its own, on this rank.
        end_s: Its end, seconds since 1970.
        pause: A rank wants the group to change.
    """

    step: int
    loss: float
    stop: bool
    seconds: float
    end_s: float
    pause: bool = False


class StepSync:
    """Sums one report a step over the ranks, and reads it at the next."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._under_way: tuple[int, float, float, Tensor, distributed.Work | None] | None = None
        self.restart_clock()

    def restart_clock(self) -> None:
        """Time the next step from now on, without what was done since the last."""
        self._since_s = time.perf_counter()

    def send(self, step: int, loss: Tensor, stop: bool, pause: bool = False) -> StepReport | None:
        """Send this step's report; gives that of the step before, None if there is none.

        Args:
            step: Steps done.
            loss: Weighted, as `Trainer.forward` gives it.
            stop: This rank was asked to stop.
            pause: This rank wants the group to change.

        Raises:
            TrainingError: The loss of the step before is no number.
        """
        before = self.finish()
        seconds = time.perf_counter() - self._since_s  # with the wait for GPUs in `finish`
        end_s = time.time()
        self.restart_clock()
        flags = (torch.full_like(loss, flag, dtype=torch.float32) for flag in (stop, pause))
        sums = torch.stack((loss.float(), *flags)) / self._group.size
        work = distributed.all_reduce(sums, async_op=True)
        self._under_way = step, seconds, end_s, sums, work
        return before

    def finish(self) -> StepReport | None:
        """The report that is under way, once it has come; None if there is none.

        Raises:
            TrainingError: The loss is no number.
        """
        if self._under_way is None:
            return None
        step, seconds, end_s, sums, work = self._under_way
        if work:
            work.wait()
        self._under_way = None
        loss, stop, pause = sums.tolist()
        if not math.isfinite(loss):
            raise TrainingError(f"the loss of step {step} is {loss}")
        return StepReport(step, loss, stop > 0, seconds, end_s, pause > 0)
