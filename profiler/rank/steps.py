"""Times training iterations part by part, on all ranks alike."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum, auto

from dally.profiles.schema import Bucket
from profiler.orders import MeasurementSpec
from profiler.rank.buckets import BucketMarks, Recorder
from profiler.rank.clocks import Mark, Stopwatch
from profiler.rank.exchange import RankExchange
from profiler.rank.timings import Warmth, keep_typical, warm_up
from workloads.training import Batch, Trainer


class GradientTraffic(Enum):
    """What becomes of the gradients of an iteration."""

    FULL = auto()
    """They are reduced over the ranks, as in training."""
    SILENT = auto()
    """They are put into buckets, which stay."""
    NONE = auto()
    """They stay where they are, as in training on one GPU."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration, seconds from its start: the ends of forward, backward and all, and its buckets."""

    forward_s: float
    backward_s: float
    end_s: float
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True)
class _Marks:
    start: Mark
    forward: Mark
    backward: Mark
    end: Mark
    buckets: tuple[BucketMarks, ...]

    def read(self) -> Iteration:
        """The marks in seconds, once the clock has settled."""
        return Iteration(
            self.forward.since(self.start),
            self.backward.since(self.start),
            self.end.since(self.start),
            tuple(Bucket(bucket.bytes, bucket.ready.since(self.start)) for bucket in self.buckets),
        )


@dataclass(frozen=True, slots=True)
class Iterations:
    """Repetitions of an iteration.

    Attributes:
        kept: Those that are no outliers.
        made: How many were made, with the outliers.
        settled: Whether their times had settled before.
    """

    kept: tuple[Iteration, ...]
    made: int
    settled: bool


class Stepper:
    """Repeats iterations of one model on all ranks, and marks their parts.

    Args:
        trainer: Of the model, with the recorder as its hook.
        recorder: Of its buckets.
        batch: Trained on in every iteration: where samples come from is not measured.
        clock: Of the device.
        exchange: Between the ranks.
    """

    def __init__(
        self, trainer: Trainer, recorder: Recorder, batch: Batch, clock: Stopwatch, exchange: RankExchange
    ) -> None:
        self._trainer = trainer
        self._recorder = recorder
        self._batch = batch
        self._clock = clock
        self._exchange = exchange

    def with_batch(self, batch: Batch) -> "Stepper":
        """The same on other samples."""
        return Stepper(self._trainer, self._recorder, batch, self._clock, self._exchange)

    def warm_up(self, traffic: GradientTraffic, order: MeasurementSpec, least: int = 1) -> Warmth:
        """Run iterations until they are warm; how often all ranks repeat them then, see `timings.warm_up`."""
        return warm_up(lambda: self._run(traffic), self._clock, self._exchange, order, least)

    def time(self, traffic: GradientTraffic, warmth: Warmth) -> Iterations:
        """Repeat an iteration on all ranks, and combine what they saw.

        Iterations follow each other as in training: nothing is awaited or exchanged in between.
        """
        self._exchange.meet()
        marks = [self._run(traffic) for _ in range(warmth.repetitions)]
        self._clock.settle()
        seen = self._exchange.gather([item.read() for item in marks])
        combined = [slowest(ranks) for ranks in zip(*seen, strict=True)]
        kept = tuple(keep_typical(combined, lambda iteration: iteration.end_s))
        return Iterations(kept, warmth.repetitions, warmth.settled)

    def _run(self, traffic: GradientTraffic) -> _Marks:
        """One iteration; a GPU may still be at it."""
        self._exchange.go_on()
        self._recorder.silent = traffic is GradientTraffic.SILENT
        mark = self._clock.mark
        with self._trainer.unsynchronised() if traffic is GradientTraffic.NONE else nullcontext():
            start = mark()
            loss = self._trainer.forward(self._batch)
            forward = mark()
            self._trainer.backward(loss)
            backward = mark()
        self._trainer.update()
        return _Marks(start, forward, backward, mark(), self._recorder.take())


def slowest(ranks: Sequence[Iteration]) -> Iteration:
    """One iteration of the whole gang: each of its moments has come once the last rank has reached it.

    A bucket can be reduced only when every rank has it, and the next iteration needs the gradients of all; so
    the gang is as slow as its slowest rank at each moment, and the mean over ranks would be too fast.
    """
    buckets = zip(*(rank.buckets for rank in ranks), strict=True)
    return Iteration(
        max(rank.forward_s for rank in ranks),
        max(rank.backward_s for rank in ranks),
        max(rank.end_s for rank in ranks),
        tuple(Bucket(same[0].bytes, max(bucket.ready_s for bucket in same)) for same in buckets),
    )
