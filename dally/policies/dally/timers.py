"""Delay timers: how long a job declines placements above a level, fixed or tuned from observed waits."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, sqrt
from typing import Any


@dataclass(frozen=True, slots=True)
class FixedTimers:
    """The same delays for every gang: the paper's manual timers; all 0 is no-wait, all inf consolidated."""

    delays: tuple[float, ...]

    def delays_s(self, gpus: int, now: float) -> tuple[float, ...]:
        """The fixed delays, seconds."""
        return self.delays

    def record(self, level: int, gpus: int, waited_s: float, now: float) -> None:
        """Nothing is learnt."""


MACHINE_SHARE_OF_HORIZON = 0.8
FLOOR_LEASES = 6
SPREAD = 2.0
MILLION = 1_000_000


@dataclass(slots=True)
class WaitHistory:
    """Waits of one gang size at one level, with their sums kept up to date.

    Waits are whole millionths of a lease, so that sums are exact whatever was added and taken away. Entries
    that have become too old leave the sums when these are asked for, and the history when one is added.
    """

    entries: deque[tuple[float, int]] = field(default_factory=deque)
    aged: int = 0
    total: int = 0
    squares: int = 0

    def add(self, now: float, wait: int, oldest_s: float) -> None:
        """Add a wait that ended now, and forget those that ended before `oldest_s`."""
        self.entries.append((now, wait))
        self.total += wait
        self.squares += wait * wait
        self.age(oldest_s)
        for _ in range(self.aged):
            self.entries.popleft()
        self.aged = 0

    def age(self, oldest_s: float) -> int:
        """Leave waits that ended before `oldest_s` out of the sums; how many are left in them."""
        while self.aged < len(self.entries) and self.entries[self.aged][0] < oldest_s:
            wait = self.entries[self.aged][1]
            self.total -= wait
            self.squares -= wait * wait
            self.aged += 1
        return len(self.entries) - self.aged

    def estimate(self) -> float:
        """e(h): mean plus two population standard deviations, in leases; 1 if there is none or all are 0."""
        count = len(self.entries) - self.aged
        if not self.total:
            return 1.0
        deviation = sqrt(count * self.squares - self.total * self.total) / count
        return (self.total / count + SPREAD * deviation) / MILLION


class TunedTimers:
    """The auto-tuner: delays from the waits after which gangs of the same size were placed at each level.

    For level i (0 = machine) with history h of waits in leases: T_i = min(cap, max(6 (i + 1), ceil(e(h)))),
    e(h) = 0-or-empty -> 1, else mean + 2 population standard deviations; cap = ceil(0.8 H) at the machine
    level and H above; entries older than H leases are dropped and waits under one lease are not recorded.
    Source: the simulator published with arXiv 2401.16492, generalised to any number of levels.

    Args:
        levels: Levels below the top.
        lease_s: Length of a lease, seconds.
        horizon: H, in leases.
    """

    def __init__(self, levels: int, lease_s: float, horizon: int) -> None:
        self.levels = levels
        self.lease_s = lease_s
        self.horizon = horizon
        self._histories: dict[tuple[int, int], WaitHistory] = {}

    def record(self, level: int, gpus: int, waited_s: float, now: float) -> None:
        """A gang of `gpus` was placed at `level` after `waited_s` seconds."""
        if waited_s >= self.lease_s and level < self.levels:
            wait = round(MILLION * waited_s / self.lease_s)
            self._histories.setdefault((level, gpus), WaitHistory()).add(now, wait, self._oldest_s(now))

    def age(self, now: float) -> None:
        """Forget the waits that ended longer ago than the horizon."""
        for history in self._histories.values():
            history.age(self._oldest_s(now))

    def delays_s(self, gpus: int, now: float) -> tuple[float, ...]:
        """One delay per level below the top, seconds."""
        delays_s = []
        for level in range(self.levels):
            cap = ceil(MACHINE_SHARE_OF_HORIZON * self.horizon) if level == 0 else self.horizon
            estimate = 1
            if history := self._histories.get((level, gpus)):
                history.age(self._oldest_s(now))
                estimate = ceil(history.estimate())
            delays_s.append(min(cap, max(FLOOR_LEASES * (level + 1), estimate)) * self.lease_s)
        return tuple(delays_s)

    def _oldest_s(self, now: float) -> float:
        return now - self.horizon * self.lease_s

    def observations(self, level: int, gpus: int, now: float) -> int:
        """How many waits the delay of a level rests on."""
        history = self._histories.get((level, gpus))
        return history.age(self._oldest_s(now)) if history else 0

    def snapshot(self) -> dict[str, Any]:
        """The histories as plain data: by level and gang size, (time in seconds, wait in leases)."""
        return {
            f"{level}/{gpus}": [[time, wait / MILLION] for time, wait in history.entries]
            for (level, gpus), history in sorted(self._histories.items())
        }

    def restore(self, histories: Mapping[str, Sequence[Sequence[float]]]) -> None:
        """Take back what `snapshot` gave."""
        self._histories = {}
        for key, entries in histories.items():
            level, gpus = map(int, key.split("/"))
            history = self._histories[level, gpus] = WaitHistory()
            for time, wait in entries:
                history.add(time, round(wait * MILLION), -inf)


Timers = FixedTimers | TunedTimers
"""Give, for a gang size, the seconds to wait at each level before the next level up is acceptable."""
