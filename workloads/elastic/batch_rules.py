"""What becomes of the batch and the learning rate when the number of ranks changes.

Besides the rules that count ranks there is the one by which the policy `pollux` plans: seconds of a step are
a line in the samples of one rank, and a sample of a larger batch is worth less by the gradient noise scale.
Source: Qiao et al., Pollux, OSDI 2021, section 3; the learning rate goes with AdaScale SGD's gain (Johnson
et al., ICML 2020), which is how many times as large the batch is times what a sample of it is worth.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from dally.jobs.progress import MOST_THROUGHPUTS, Throughput
from dally.profiles.goodput import Batching, batches, efficiency
from dally.profiles.reported_speeds import fit_curve
from dally.profiles.schema import Learning
from workloads.settings import BatchRule, Elastic

_ROUNDING = 1e-9
"""Below what is lost in `0.15 / 0.05`."""

_KIND = ""
"""Ranks are taken to be on GPUs of one kind."""


class Tuning:
    """What a job has measured: seconds of its steps by ranks and batch."""

    def __init__(self) -> None:
        self._measured: dict[tuple[int, int], Throughput] = {}

    def note(self, ranks: int, batch: int, seconds: float) -> None:
        """A step of so many samples took so long on so many ranks."""
        known = self._measured.pop((ranks, batch), None)
        more = known.with_more(batch, seconds) if known else Throughput(_KIND, ranks, batch, batch, seconds)
        self._measured[ranks, batch] = more
        if len(self._measured) > MOST_THROUGHPUTS:
            del self._measured[next(iter(self._measured))]

    def gain(self, batch: float, own: int, noise: float | None) -> float:
        """How many steps of the job's own batch one of another is worth; 1 while the noise is unknown."""
        if noise is None:
            return 1.0
        return batch / own * efficiency(_learning(own, int(batch), noise), batch, 0)

    def best(self, own: int, most: int, ranks: int, noise: float | None) -> int:
        """The batch that makes most progress a second; its own while nothing is known.

        Args:
            own: The job's own batch, the smallest that it may have.
            most: The largest.
            ranks: Which share it evenly.
            noise: Gradient noise scale, samples; None if it is not known.
        """
        if noise is None or not self._measured or most <= own:
            return own
        curve, learning = fit_curve(_KIND, self._measured.values()), _learning(own, most, noise)
        best = max(
            batches(learning, Batching.GOODPUT, own, ranks, ranks),
            key=lambda batch: batch * efficiency(learning, batch, 0) / curve.step_s(ranks, batch),
        )
        return int(best)

    def plain(self) -> list[dict[str, Any]]:
        """What was measured, as plain data."""
        return [asdict(each) for each in self._measured.values()]

    def restore(self, measured: Iterable[dict[str, Any]]) -> None:
        """Take back what `plain` gave."""
        throughputs = [Throughput(**each) for each in measured]
        self._measured = {(each.gpus, int(each.batch)): each for each in throughputs}


def _learning(own: int, most: int, noise: float) -> Learning:
    """One phase: the noise as it is now."""
    return Learning(own, max(own, most), max(own, most), 1, 1.0, (1.0,), (noise,), (0.0,))


@dataclass(frozen=True, slots=True)
class BatchSize:
    """How large steps are.

    Attributes:
        batch: Samples, all ranks together.
        lr: Learning rate; None to leave it as it is.
    """

    batch: int
    lr: float | None = None


def size_on(
    elastic: Elastic, batch: int, lr: float, ranks: int, measured: tuple[Tuning, float | None] | None = None
) -> BatchSize:
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
        return BatchSize(batch)
    if elastic.rule is BatchRule.GOODPUT:
        tuning, noise = measured or (Tuning(), None)
        best = tuning.best(batch, elastic.max_batch or batch, ranks, noise)
        return BatchSize(best, min(lr * tuning.gain(best, batch, noise), elastic.max_lr or float("inf")))
    scale = min(ranks / elastic.asked_ranks, _limit(elastic, batch, lr))
    return BatchSize(_whole(batch * scale) // ranks * ranks, lr * scale)


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
class LearningRateRamp:
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
