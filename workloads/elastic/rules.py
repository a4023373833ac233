"""What becomes of the batch and the learning rate when the number of ranks changes."""

from dataclasses import dataclass

from workloads.elastic.tuning import Tuning
from workloads.settings import BatchRule, Elastic

_ROUNDING = 1e-9
"""Below what is lost in `0.15 / 0.05`."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large steps are.

    Attributes:
        batch: Samples, all ranks together.
        lr: Learning rate; None to leave it as it is.
    """

    batch: int
    lr: float | None = None


def size_on(
    elastic: Elastic, batch: int, lr: float, ranks: int, measured: tuple[Tuning, float | None] | None = None
) -> Size:
    """How large steps are on so many ranks.

    KEEP: as large as on any number. LINEAR is ONES's rule (Bian et al., SC'21): both grow in proportion to
    the ranks as far as the limits let them, and ranks have equal parts. GOODPUT is Pollux's: what makes most
    progress, with the learning rate that goes with it.

    Args:
        elastic: The rule and its limits.
        batch: The job's global batch; with LINEAR that of the ranks that were asked for, one by default.
        lr: The workload's learning rate; with LINEAR of these ranks, too.
        ranks: How many.
        measured: With GOODPUT, what steps took so far, and the noise scale, None while that is unknown.
    """
    if elastic.rule is BatchRule.KEEP:
        return Size(batch)
    if elastic.rule is BatchRule.GOODPUT:
        tuning, noise = measured or (Tuning(), None)
        best = tuning.best(batch, elastic.max_batch or batch, ranks, noise)
        return Size(best, min(lr * tuning.gain(best, batch, noise), elastic.max_lr or float("inf")))
    scale = min(ranks / elastic.asked_ranks, _limit(elastic, batch, lr))
    return Size(_whole(batch * scale) // ranks * ranks, lr * scale)


def most_ranks(elastic: Elastic, batch: int, lr: float) -> float:
    """On how many ranks each has a sample of a step."""
    if elastic.rule is not BatchRule.LINEAR:
        return batch
    limit = _limit(elastic, batch, lr)
    return limit if limit == float("inf") else _whole(batch * limit)


def _limit(elastic: Elastic, batch: int, lr: float) -> float:
    """How many times the batch and the learning rate are allowed."""
    by_batch = elastic.max_batch / batch if elastic.max_batch else float("inf")
    by_lr = elastic.max_lr / lr if elastic.max_lr else float("inf")
    return min(by_batch, by_lr)


def _whole(number: float) -> int:
    return int(number + _ROUNDING)


@dataclass(frozen=True, slots=True)
class Ramp:
    """A learning rate on its way from one value to another, in a straight line over some steps.

    Attributes:
        first: Before the way.
        last: At its end.
        since: Steps done at its begin.
        steps: Of the way.
    """

    first: float
    last: float
    since: int
    steps: int

    def at(self, done: int) -> float:
        """Of the step after so many done ones."""
        part = min(1.0, (done - self.since + 1) / self.steps)
        return self.first + (self.last - self.first) * part
