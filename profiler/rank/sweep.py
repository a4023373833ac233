"""Times all-reduces of given sizes as nccl-tests does: in place, fp32 sums, warmed up, back to back."""

import statistics
from collections.abc import Callable, Iterable
from itertools import pairwise

import torch
import torch.distributed as dist

from dally.errors import InputError
from dally.profiles.schema import Reduced
from profiler.rank.clocks import Clock
from profiler.rank.exchange import RankExchange
from profiler.rank.timings import keep_typical, summarise, warm_up, warmth_flag
from profiler.spec import MeasurementSpec

_ELEMENT_BYTES = 4
_WINDOW_S = 0.02
"""Of a warm-up: connections are there, and no clock has to rise for an all-reduce."""


def check_sizes(sizes: Iterable[int]) -> None:
    """Refuse sizes that are not whole fp32 numbers.

    Raises:
        InputError: One is not.
    """
    for size in sizes:
        if size <= 0 or size % _ELEMENT_BYTES:
            raise InputError(f"sweep_bytes has {size}; valid: positive multiples of {_ELEMENT_BYTES}")


def sweep(
    sizes: Iterable[int],
    device: torch.device,
    exchange: RankExchange,
    spec: MeasurementSpec,
    report: Callable[[Reduced], None],
) -> tuple[str, ...]:
    """Time one all-reduce of each size, ascending, and report each when it is known.

    The largest size is allocated once and the others are its beginnings, so that no size pays for memory. It
    holds zeros: sums of other numbers would grow from one repetition to the next until they overflow.

    Returns:
        What is to be said of them: those that had not settled.
    """
    ascending = sorted(set(sizes))
    if not ascending:
        return ()
    buffer = torch.empty(ascending[-1] // _ELEMENT_BYTES, dtype=torch.float32, device=device).fill_(0)
    flags: list[str] = []
    for size in ascending:
        reduced, settled = _time_one(buffer[: size // _ELEMENT_BYTES], exchange, spec)
        report(reduced)
        flags += warmth_flag(f"the all-reduce of {size} bytes", settled, spec)
    return tuple(flags)


def _time_one(data: torch.Tensor, exchange: RankExchange, spec: MeasurementSpec) -> tuple[Reduced, bool]:
    """An all-reduce, and whether its times had settled.

    Every rank times each all-reduce; their mean counts, the default of nccl-tests (`--average 1`).

    Back to back, a rank that finished one late finishes the next early by as much: the slowest rank of every
    repetition would be counted twice.
    """
    clock = Clock(data.device)

    def reduce() -> None:
        exchange.go_on()
        dist.all_reduce(data)

    warmth = warm_up(reduce, clock, exchange, spec, window_s=_WINDOW_S)
    exchange.barrier()
    marks = [clock.mark()]
    for _ in range(warmth.repetitions):
        reduce()
        marks.append(clock.mark())
    clock.settle()
    own = [end.since(start) for start, end in pairwise(marks)]
    means = [statistics.mean(ranks) for ranks in zip(*exchange.gather(own), strict=True)]
    timing = summarise(keep_typical(means, duration_s=float))
    return Reduced(data.nbytes, timing.median_s, timing.p10_s, timing.p90_s, timing.n), warmth.settled
