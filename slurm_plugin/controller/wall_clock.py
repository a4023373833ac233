"""The time that the controller goes by: the machine's wall clock, but not each jump of it.

Slurm's times are compared with it, so it must be the wall clock. Policies rely on it not to go back. So a
jump is not followed before it has lasted a while, and then the controller is built anew, its times moved.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf

from slurm_plugin.controller.managed_job import ON_GPUS, ManagedJob

JUMP_S = 30.0
"""The wall clock jumps if it goes so much ahead, or back, of what passes; less is followed, or waited for."""

LASTS_S = 30.0
"""A jump is believed once it has lasted so long."""

steady_clock = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Seconds that pass, also while the machine sleeps; they say nothing of the time of day."""


class WallClock:
    """Seconds since 1970 that never go back, until `follow` is called.

    Args:
        last_s: The last time given by an earlier one, which is not gone back behind, but by a jump.
        wall: The machine's clock, which anybody may set.
        steady: Seconds that pass.

    Attributes:
        jump_s: By how much the machine's clock has jumped and was not followed yet; 0 if it has not.
        steady: Seconds that pass, for spans within the process.
    """

    def __init__(
        self,
        last_s: float = -inf,
        wall: Callable[[], float] | None = None,
        steady: Callable[[], float] = steady_clock,
    ) -> None:
        self._wall, self.steady = wall or (lambda: time.time()), steady
        self._offset_s = self._wall() - steady()
        self._last_s = last_s if last_s < self._wall() + JUMP_S else -inf
        self.jump_s = self._since_s = 0.0

    def __call__(self) -> float:
        """Now."""
        passed_s = self.steady()
        off_s = self._wall() - passed_s - self._offset_s
        if abs(off_s) < JUMP_S:
            self._offset_s += off_s
            self.jump_s = 0.0
        elif abs(off_s - self.jump_s) >= JUMP_S:
            self.jump_s, self._since_s = off_s, passed_s
        self._last_s = max(self._last_s, passed_s + self._offset_s)
        return self._last_s

    def follow(self) -> float:
        """Follow a jump that has lasted; by how much the time is another one now, 0 if there was none."""
        self()
        if not self.jump_s or self.steady() - self._since_s < LASTS_S:
            return 0.0
        moved_s, self._last_s = self.jump_s, -inf
        self._offset_s += moved_s
        self.jump_s = 0.0
        return moved_s


def moved(managed: ManagedJob, by_s: float) -> ManagedJob:
    """A job as it would be known by a clock that is so many seconds further; Slurm's own times stay."""
    history, phase, switches_s = managed.history, managed.phase, managed.switches_since_s
    if (progress := history.progress) is not None:
        progress = replace(progress, heard_s=progress.heard_s + by_s, since_s=progress.since_s + by_s)
    first_start_s, origin_s = history.first_start_s + by_s, history.origin_s + by_s
    phase = replace(phase, since_s=phase.since_s + by_s, until_s=phase.until_s + by_s)
    if isinstance(phase, ON_GPUS):
        run = phase.interval
        run = replace(run, since_s=run.since_s + by_s, ready_s=run.ready_s + by_s)
        phase = replace(phase, interval=run)
    return replace(
        managed,
        phase=phase,
        history=replace(history, origin_s=origin_s, first_start_s=first_start_s, progress=progress),
        left_s=managed.left_s + by_s,
        switches_since_s=None if switches_s is None else switches_s + by_s,
    )
