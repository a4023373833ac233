"""What it costs to make one model of a forked job's copies at the end of each slot: seconds of training."""

from dataclasses import dataclass

ASSUMED_BYTES = 400_000_000
"""A model whose profile tells no size: 100 million parameters of 4 bytes, more than Gavel's models have."""

LEAST_LEFT = 1e-3
"""Of a slot so much trains at least, so that speeds stay positive."""


@dataclass(frozen=True, slots=True)
class Averaging:
    """How often copies are averaged, and what that takes beside the transfer.

    Attributes:
        slot_s: Seconds from one average to the next.
        fixed_s: Seconds of each that saving, loading and waiting take, whatever the model.
    """

    slot_s: float
    fixed_s: float

    def takes_s(self, copies: int, model_bytes: float | None, link_bps: float) -> float:
        """Seconds of a slot: all copies' parameters are reduced around a ring over the slowest link.

        2 (n - 1) / n of the model crosses each link, and once more as much for the optimizer's state, which
        is averaged with the same weights. None is a model of unknown size.
        """
        transfer_s = 2 * 2 * (copies - 1) / copies * 8 * (model_bytes or ASSUMED_BYTES) / link_bps
        return self.fixed_s + transfer_s

    def left(self, copies: int, model_bytes: float | None, link_bps: float) -> float:
        """The part of a slot in which copies train."""
        return max(LEAST_LEFT, 1 - self.takes_s(copies, model_bytes, link_bps) / self.slot_s)
