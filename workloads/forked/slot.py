"""What the copies of a forked job do in a slot: who trains which batches, and what follows from that.

Needs no torch. Which batches are trained is kept as a set: those of a copy that was lost, or out of time, are
dealt out again, so that in the end each batch below the number of steps was trained once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from dally.policies.hadar_e.job_tracker import split_steps
from workloads.forked.ranges import Ranges, deal, gaps, size, union
from workloads.shares import split

_LONGEST_OVERHEAD = 0.5
"""Part of a slot: whatever the averaging takes, the rest is for training."""


@dataclass(frozen=True, slots=True)
class SlotStart:
    """What all copies know when a slot begins.

    Attributes:
        number: Of the slot, from 0 at each start of the job.
        trained: The batches that are in the parameters.
        shares: The batches that each copy is to train now.
        rates: Steps per second of the copies, as they last were.
        overhead_s: What is expected to pass from the end of training to the next slot.
        due_s: When all copies should have trained, seconds after the slot began.
        stop: A copy was asked to stop: there is no training in this slot.
    """

    number: int
    trained: Ranges
    shares: Mapping[int, Ranges]
    rates: Mapping[int, float]
    overhead_s: float = 0.0
    due_s: float = 0.0
    stop: bool = False


@dataclass(frozen=True, slots=True)
class CopyResult:
    """What one copy did in a slot.

    Attributes:
        copy: Its number.
        trained: Batches.
        seconds: That it trained.
        loss: Mean of its steps; 0 if there were none.
        stop: It was asked to stop.
    """

    copy: int
    trained: Ranges
    seconds: float
    loss: float
    stop: bool

    @property
    def steps(self) -> int:
        """Steps done."""
        return size(self.trained)


def plan(slot: SlotStart, copies: Sequence[int], steps: int, slot_s: float) -> SlotStart:
    """The same slot with the work dealt out.

    Args:
        slot: What is trained, and how fast copies are.
        copies: Those that are there.
        steps: After how many the job is done.
        slot_s: Length of a slot.
    """
    left, train_s = gaps(slot.trained, steps), slot_s - slot.overhead_s
    rates = [slot.rates.get(copy) for copy in copies]
    counts = _split(size(left), rates, slot_s, slot.overhead_s)
    lasts_s = [count / rate if rate else train_s for count, rate in zip(counts, rates, strict=True)]
    shares = dict(zip(copies, deal(left, counts), strict=True))
    return replace(slot, shares=shares, due_s=min(train_s, max(lasts_s)))


def follow(
    slot: SlotStart, results: Sequence[CopyResult], steps: int, slot_s: float, overhead_s: float
) -> SlotStart:
    """The slot after one.

    Args:
        slot: The one that is over.
        results: Of those copies that train on.
        steps: After how many the job is done.
        slot_s: Length of a slot.
        overhead_s: From the end of training up to now.
    """
    rates = {result.copy: result.steps / result.seconds for result in results if result.steps}
    after = SlotStart(
        slot.number + 1,
        union((*slot.trained, *(part for result in results for part in result.trained))),
        {},
        {**slot.rates, **rates},
        min(max(overhead_s, 0.0), _LONGEST_OVERHEAD * slot_s),  # clocks of copies begin apart
        stop=any(result.stop for result in results),
    )
    return plan(after, [result.copy for result in results], steps, slot_s)


def _split(left: int, rates: Sequence[float | None], slot_s: float, overhead_s: float) -> tuple[int, ...]:
    """Steps of each copy; one of unknown speed is taken for average, and all for equal if none is known."""
    known = [rate for rate in rates if rate]
    if not known:
        return split(left, [1.0] * len(rates))
    filled = [rate or fmean(known) for rate in rates]
    counts = split_steps(left, filled, slot_s, overhead_s)
    if left and not any(counts):  # a step is longer than a slot
        counts = tuple(int(number == filled.index(max(filled))) for number in range(len(filled)))
    return counts
