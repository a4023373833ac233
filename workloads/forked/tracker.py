"""The Job Tracker of a forked job: every copy has one, and they publish the next slot in turns.

Source: HadarE (arXiv 2503.10918), reconstructed. That there is no leader, and what becomes of late copies, is
ours.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dally.policies.hadar_e.job_tracker import consolidation_weights
from workloads.forked.exchange import Exchange
from workloads.forked.ranges import Ranges
from workloads.forked.slot import CopyResult, SlotStart, follow, plan
from workloads.progress import Progress
from workloads.settings import Fork, TrainingJob
from workloads.stopping import StopRequest

OVER = -1
"""In place of a slot's number: the others have ended the job."""

_POLL_S = 0.05
"""How often a copy that waits looks for the next slot."""

_LATE, _LATE_S, _LATEST_S = 0.25, 5.0, 120.0
"""A copy is left out if its result comes later than expected by this part of the time, which is no more than
`_LATEST_S`, and so many seconds."""

_STOP_S = 10.0
"""The same once a copy was asked to stop: so many seconds after."""

_TURN_S = 5.0
"""If the copy whose turn it is to publish does not, the one after it does so many seconds later."""


class Tracker:
    """One copy's part in leading the job from slot to slot.

    Args:
        job: The job.
        fork: How it is forked.
        exchange: Where the copies meet.
        copy: This copy's number.
        copies: How many have started.
        stop: Whether this copy was asked to stop.
        progress: Tells what was published.

    Attributes:
        published: The newest slot is this copy's work.
    """

    def __init__(
        self,
        job: TrainingJob,
        fork: Fork,
        exchange: Exchange,
        copy: int,
        copies: int,
        stop: StopRequest,
        progress: Progress,
    ) -> None:
        self._steps, self._slot_s, self._exchange = job.steps, fork.slot_s, exchange
        self._copy, self._copies, self._stop, self._progress = copy, copies, stop, progress
        self.published = False

    def open(self, trained: Ranges, state: Mapping[str, Any]) -> int:
        """The number of the first slot, once it is published.

        Args:
            trained: The batches that the job's checkpoint has.
            state: Of the training then.
        """
        turn_s = time.monotonic() + self._copy * _TURN_S

        def publish() -> None:
            first = plan(SlotStart(0, trained, {}, {}), range(self._copies), self._steps, self._slot_s)
            self._exchange.publish(first, state)

        return self._await(OVER, lambda: time.monotonic() >= turn_s, publish)

    def follow(self, slot: SlotStart, result: CopyResult, state: Mapping[str, Any], begun_s: float) -> int:
        """Submit this copy's result; the number of the slot after, once it is published.

        Args:
            slot: The one that is over.
            result: What this copy did in it.
            state: Of this copy's training.
            begun_s: When it began here, by this machine's monotonic clock.
        """
        if self._exchange.is_over():
            return OVER
        self._exchange.submit(slot.number, result, state)
        late_s = begun_s + slot.due_s + min(_LATE * slot.due_s, _LATEST_S) + _LATE_S
        turn_s = float("inf")

        def is_turn() -> bool:
            """All results are there or it is late, and copies before this one had their turn."""
            nonlocal late_s, turn_s
            now_s, there = time.monotonic(), self._exchange.submitted(slot.number)
            if self._exchange.asked_to_stop():
                late_s = min(late_s, now_s + _STOP_S)
            if now_s >= late_s or slot.shares.keys() <= set(there):
                turn_s = min(turn_s, now_s + sum(copy < self._copy for copy in there) * _TURN_S)
            return now_s >= turn_s

        self.published = False
        return self._await(slot.number, is_turn, lambda: self._publish_after(slot, begun_s))

    def _await(self, after: int, is_turn: Callable[[], bool], publish: Callable[[], None]) -> int:
        """The number of the first slot after one; publish it when the turn has come."""
        while not self._exchange.is_over():
            if self._stop.asked:
                self._exchange.ask_to_stop()
            newest = self._exchange.newest()
            if newest > after:
                return newest
            if is_turn():
                publish()
            else:
                time.sleep(_POLL_S)
        return OVER

    def _publish_after(self, slot: SlotStart, begun_s: float) -> None:
        """Publish what follows from the results that are there."""
        read = [self._exchange.result(slot.number, copy) for copy in self._exchange.submitted(slot.number)]
        results = [result for result, _ in read]
        _, before = self._exchange.slot(slot.number)
        state = consolidate(read, before)
        seconds, overhead_s = time.monotonic() - begun_s, slot.overhead_s
        lost = sorted(slot.shares.keys() - {result.copy for result in results})
        if not lost:  # else a lost copy was waited for in vain, which is not to be expected again
            overhead_s = seconds - max(result.seconds for result in results)
        after = follow(slot, results, self._steps, self._slot_s, overhead_s)
        if self._exchange.publish(after, state):
            self.published = True
            if lost:
                self._progress.tell(f"without copy {', '.join(map(str, lost))}, of which no result came")
            self._progress.note_slot(after, results, seconds)


def consolidate(
    results: Sequence[tuple[CopyResult, Mapping[str, Any]]], before: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The state after a slot: the copies' average, each weighing as much as it has done steps.

    Args:
        results: What each copy did, and its state after it.
        before: The state in which all began; it is what it is if nobody did a step.
    """
    trained = [(result.steps, _training(state)) for result, state in results if result.steps]
    if not trained:
        return _training(before)
    weights = consolidation_weights([steps for steps, _ in trained])
    averaged = average([state for _, state in trained], weights, _training(before))
    assert isinstance(averaged, dict)
    return averaged


def average(states: Sequence[Any], weights: Sequence[float], before: Any = None) -> Any:
    """Average states of one shape: mappings and lists of tensors, and of plain values, which are all alike.

    Parameters, the statistics of batch norms and an optimizer's moments are averaged. Whole numbers count
    what was seen, as batch norms do: the counts of all copies since they parted are added.

    Args:
        states: Of the copies.
        weights: Theirs, summing up to one.
        before: What all copies started from; needed only where there are tensors of whole numbers.
    """
    first = states[0]
    if isinstance(first, dict):
        had = before if isinstance(before, dict) else {}
        return {key: average([state[key] for state in states], weights, had.get(key)) for key in first}
    if isinstance(first, list):
        return [average(items, weights) for items in zip(*states, strict=True)]
    if not isinstance(first, Tensor):
        return first
    if not first.is_floating_point():
        return before + sum(state - before for state in states)
    total = torch.zeros_like(first, dtype=torch.float64)
    for tensor, weight in zip(states, weights, strict=True):
        total.add_(tensor, alpha=weight)
    return total.to(first.dtype)


def _training(state: Mapping[str, Any]) -> dict[str, Any]:
    """What `Trainer.state` gave, without what the exchange put beside it."""
    return {name: item for name, item in state.items() if name not in ("slot", "result")}
