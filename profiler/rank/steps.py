"""Times training iterations part by part, on all ranks alike, with the gradient buckets of DDP."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum, auto
from statistics import median

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from dally.profiles.schema import Bucket
from profiler.rank.clocks import Clock, Mark
from profiler.rank.exchange import RankExchange
from profiler.rank.timings import Warmth, keep_typical, warm_up
from profiler.spec import MeasurementSpec
from workloads.training import Batch, Trainer


class GradientTraffic(Enum):
    """What becomes of the gradients of an iteration."""

    FULL = auto()
    """They are reduced over the ranks, as in training."""
    SILENT = auto()
    """They are put into buckets, which are not sent."""
    NONE = auto()
    """They stay where they are, as in training on one GPU."""


class BucketRecorder:
    """A communication hook that does what DDP does without one, and marks when each bucket is ready.

    Attributes:
        silent: Leave gradients as they are: what backward does without communication.
        dtype: Type of the gradients that go over the wire; None before the first.
    """

    def __init__(self, clock: Clock, size: int) -> None:
        self.silent = False
        self.dtype: torch.dtype | None = None
        self._clock = clock
        self._size = size
        self._buckets: list[tuple[int, Mark]] = []

    def reduce(self, state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The hook, for `DistributedDataParallel.register_comm_hook`."""
        gradients = bucket.buffer()
        self.dtype = gradients.dtype
        self._buckets.append((gradients.nbytes, self._clock.mark()))
        if self.silent:
            devices: list[int | str | torch.device] | None = [gradients.device] if gradients.is_cuda else None
            at_once: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
            at_once.set_result(gradients)
            return at_once
        work = dist.all_reduce(gradients.div_(self._size), async_op=True)
        future: torch.futures.Future[list[torch.Tensor]] = work.get_future()
        return future.then(lambda done: done.value()[0])

    def take(self) -> list[tuple[int, Mark]]:
        """Bytes and ready moment of the buckets since the last call, in the order of these moments."""
        buckets, self._buckets = self._buckets, []
        return buckets


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration, seconds from its start: the ends of forward, backward and all, and its buckets."""

    forward_s: float
    backward_s: float
    end_s: float
    buckets: tuple[Bucket, ...]


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


@dataclass(frozen=True, slots=True)
class Stepper:
    """Repeats iterations of one model on all ranks, and marks their parts.

    Attributes:
        trainer: Of the model, with the recorder as its hook.
        recorder: Of its buckets.
        batch: Trained on in every iteration: where samples come from is not measured.
        clock: Of the device.
        exchange: Between the ranks.
    """

    trainer: Trainer
    recorder: BucketRecorder
    batch: Batch
    clock: Clock
    exchange: RankExchange

    def warm_up(self, traffic: GradientTraffic, spec: MeasurementSpec, least: int = 1) -> Warmth:
        """Run iterations until they are warm; how often all ranks repeat them then, see `timings.warm_up`."""
        return warm_up(lambda: self._run(traffic), self.clock, self.exchange, spec, least)

    def time(self, traffic: GradientTraffic, warmth: Warmth) -> Iterations:
        """Repeat an iteration on all ranks, and combine what they saw.

        Iterations follow each other as in training: nothing is awaited or exchanged in between.
        """
        self.exchange.barrier()
        runs = [self._run(traffic) for _ in range(warmth.repetitions)]
        self.clock.settle()
        own = [
            Iteration(
                forward.since(start),
                backward.since(start),
                end.since(start),
                tuple(Bucket(size, ready.since(start)) for size, ready in buckets),
            )
            for start, forward, backward, end, buckets in runs
        ]
        combined = [slowest(ranks) for ranks in zip(*self.exchange.gather(own), strict=True)]
        kept = tuple(keep_typical(combined, lambda iteration: iteration.end_s))
        return Iterations(kept, warmth.repetitions, warmth.settled)

    def _run(self, traffic: GradientTraffic) -> tuple[Mark, Mark, Mark, Mark, list[tuple[int, Mark]]]:
        """One iteration, which a GPU may still be at: start, ends of forward, backward and all; buckets."""
        self.exchange.go_on()
        self.recorder.silent = traffic is GradientTraffic.SILENT
        mark = self.clock.mark
        with self.trainer.unsynchronised() if traffic is GradientTraffic.NONE else nullcontext():
            start = mark()
            loss = self.trainer.forward(self.batch)
            forward = mark()
            self.trainer.backward(loss)
            backward = mark()
        self.trainer.update()
        return start, forward, backward, mark(), self.recorder.take()


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


def median_buckets(iterations: Sequence[Iteration]) -> tuple[Bucket, ...]:
    """Bytes and median ready times of the buckets, from iterations that had the same ones."""
    buckets = zip(*(iteration.buckets for iteration in iterations), strict=True)
    return tuple(Bucket(same[0].bytes, median(bucket.ready_s for bucket in same)) for same in buckets)
