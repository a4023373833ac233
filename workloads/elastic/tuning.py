"""The batch that makes most progress on some ranks, by what a job has measured of its own steps.

The same as the policy `pollux` plans by what jobs report: seconds of a step are a line in the samples of one
rank, and a sample of a larger batch is worth less by the gradient noise scale.
Source: Qiao et al., Pollux, OSDI 2021, section 3; the learning rate goes with AdaScale SGD's gain (Johnson
et al., ICML 2020), which is how many times as large the batch is times what a sample of it is worth.
"""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from dally.jobs.progress import MOST_THROUGHPUTS, Throughput
from dally.profiles.goodput import Batching, batches, efficiency
from dally.profiles.reported_speeds import fit_curve
from dally.profiles.schema import Learning

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
