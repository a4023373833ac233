"""The gradient buckets of DDP: their bytes, when each is ready and when its all-reduce is done."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from dally.profiles.schema import Bucket
from profiler.rank.clocks import Clock, Mark


@dataclass(frozen=True, slots=True)
class BucketMarks:
    """One bucket of one iteration, as marked."""

    bytes: int
    ready: Mark
    done: Mark


@dataclass(frozen=True, slots=True)
class BucketTimes:
    """One bucket of one iteration, seconds from the iteration's start."""

    bytes: int
    ready_s: float
    done_s: float


class Recorder:
    """A communication hook that does what DDP does without one, and marks when.

    Attributes:
        silent: Leave gradients as they are: what backward does without communication.
    """

    def __init__(self, clock: Clock, size: int) -> None:
        self.silent = False
        self._clock = clock
        self._size = size
        self._marks: list[BucketMarks] = []

    def reduce(self, state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The hook, for `DistributedDataParallel.register_comm_hook`."""
        gradients = bucket.buffer()
        ready = self._clock.mark()
        place = len(self._marks)
        self._marks.append(BucketMarks(gradients.nbytes, ready, ready))
        if self.silent:
            return _at_once(gradients)

        def finish(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            self._marks[place] = replace(self._marks[place], done=self._clock.mark())
            return future.value()[0]

        work = dist.all_reduce(gradients.div_(self._size), async_op=True)
        future: torch.futures.Future[list[torch.Tensor]] = work.get_future()
        return future.then(finish)

    def take(self) -> tuple[BucketMarks, ...]:
        """The buckets since the last call, in the order in which they became ready."""
        marks, self._marks = tuple(self._marks), []
        return marks


def layout(iterations: Sequence[Sequence[BucketTimes]]) -> tuple[Bucket, ...]:
    """Bytes and median ready times of the buckets, from iterations that had the same ones."""
    return tuple(
        Bucket(same[0].bytes, median(bucket.ready_s for bucket in same))
        for same in zip(*iterations, strict=True)
    )


def _at_once(gradients: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    devices: list[int | str | torch.device] | None = [gradients.device] if gradients.is_cuda else None
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
    future.set_result(gradients)
    return future
