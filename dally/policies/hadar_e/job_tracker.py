"""HadarE's Job Tracker: how many steps each copy of a forked job does in a slot, and what its result weighs.

Plain arithmetic without torch: the forked trainer and the policy `hadar-e` share it.
Source: arXiv 2503.10918, reconstructed.
"""

from collections.abc import Sequence
from math import ceil, floor

from dally.errors import InputError


def slot_steps(rate: float, slot_s: float, overhead_s: float) -> int:
    """Whole steps that a copy of `rate` steps/s does in a slot of which consolidation takes `overhead_s`."""
    return max(0, floor(rate * (slot_s - overhead_s)))


def split_steps(remaining: int, rates: Sequence[float], slot_s: float, overhead_s: float) -> tuple[int, ...]:
    """Steps of the coming slot for each copy: in proportion to speed, so that all end together.

    q_i = min(floor(X_i (L - o)), ceil(Rem X_i / sum X)), of which rounding up may make a few too many: the
    copies last in order get those fewer, so that the sum never exceeds what remains.

    Args:
        remaining: Steps that the job has left.
        rates: Steps per second of each copy; 0 for one that cannot train.
        slot_s: Length of a slot, seconds.
        overhead_s: Of these, seconds that consolidation takes.

    Raises:
        InputError: A number is negative, or no copy has any speed.
    """
    if remaining < 0 or min(rates, default=0.0) < 0 or not sum(rates) > 0:
        raise InputError(f"cannot split {remaining} steps among copies of {list(rates)} steps/s")
    left, total, steps = remaining, sum(rates), []
    for rate in rates:
        share = min(slot_steps(rate, slot_s, overhead_s), ceil(remaining * rate / total), left)
        steps.append(share)
        left -= share
    return tuple(steps)


def consolidation_weights(done: Sequence[int]) -> tuple[float, ...]:
    """Weight of each copy's parameters in their average: the steps it did over those of all.

    A copy that failed has done none, and weighs nothing.

    Raises:
        InputError: A number is negative, or no copy has done a step: there is nothing to consolidate.
    """
    total = sum(done)
    if min(done, default=0) < 0 or total <= 0:
        raise InputError(f"cannot weigh copies that did {list(done)} steps; at least one must have done some")
    return tuple(steps / total for steps in done)
