"""The gradient buckets of DDP: their bytes, and when each is ready."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from dally.profiles.schema import Bucket
from profiler.rank.clocks import Mark, Stopwatch


@dataclass(frozen=True, slots=True)
class BucketMarks:
    """One bucket of one iteration, as marked."""

    bytes: int
    ready: Mark


class Recorder:
    """A communication hook that does what DDP does without one, and marks when each bucket is ready.

    Attributes:
        silent: Leave gradients as they are: what backward does without communication.
        dtype: Type of the gradients that go over the wire; None before the first.
    """

    def __init__(self, clock: Stopwatch, size: int) -> None:
        self.silent = False
        self.dtype: torch.dtype | None = None
        self._clock = clock
        self._size = size
        self._marks: list[BucketMarks] = []

    def reduce(self, state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The hook, for `DistributedDataParallel.register_comm_hook`."""
        gradients = bucket.buffer()
        self.dtype = gradients.dtype
        self._marks.append(BucketMarks(gradients.nbytes, self._clock.mark()))
        if self.silent:
            return _at_once(gradients)
        work = dist.all_reduce(gradients.div_(self._size), async_op=True)
        future: torch.futures.Future[list[torch.Tensor]] = work.get_future()
        return future.then(lambda done: done.value()[0])

    def take(self) -> tuple[BucketMarks, ...]:
        """The buckets since the last call, in the order in which they became ready."""
        marks, self._marks = tuple(self._marks), []
        return marks


def layout(iterations: Sequence[Sequence[Bucket]]) -> tuple[Bucket, ...]:
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
