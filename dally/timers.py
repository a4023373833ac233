"""Delay timers: how long a job declines placements above a level, fixed or tuned from observed waits."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, fsum, inf, sqrt
from typing import Any, Protocol


class Timers(Protocol):
    """Gives, for a gang size, the seconds to wait at each level before the next level up is acceptable."""

    def delays_s(self, gpus: int, now: float) -> tuple[float, ...]:
        """One delay per level below the top, all counted from the beginning of the wait."""

    def record(self, level: int, gpus: int, waited_s: float, now: float) -> None:
        """A gang was placed at `level` after a wait."""


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
        self._histories: dict[tuple[int, int], deque[tuple[float, float]]] = {}
        self._tuned: dict[tuple[int, int], tuple[float, float]] = {}

    def record(self, level: int, gpus: int, waited_s: float, now: float) -> None:
        """A gang of `gpus` was placed at `level` after `waited_s` seconds."""
        waited = waited_s / self.lease_s
        if waited < 1 or level >= self.levels:
            return
        history = self._histories.setdefault((level, gpus), deque())
        history.append((now, waited))
        while history[0][0] < self._oldest_s(now):
            history.popleft()
        self._tuned.pop((level, gpus), None)

    def delays_s(self, gpus: int, now: float) -> tuple[float, ...]:
        """One delay per level below the top, seconds."""
        return tuple(self._delay(level, gpus, now) * self.lease_s for level in range(self.levels))

    def _oldest_s(self, now: float) -> float:
        return now - self.horizon * self.lease_s

    def _delay(self, level: int, gpus: int, now: float) -> float:
        """The delay of one level, in leases; remembered until a wait that it rests on is too old."""
        delay, until_s = self._tuned.get((level, gpus), (0.0, -inf))
        if now > until_s:
            history = self._histories.get((level, gpus), ())
            recent = [(time, wait) for time, wait in history if time >= self._oldest_s(now)]
            cap = ceil(MACHINE_SHARE_OF_HORIZON * self.horizon) if level == 0 else self.horizon
            estimate = ceil(estimate_wait([wait for _, wait in recent]))
            delay = min(cap, max(FLOOR_LEASES * (level + 1), estimate))
            until_s = recent[0][0] + self.horizon * self.lease_s if recent else inf
            self._tuned[level, gpus] = delay, until_s
        return delay

    def observations(self, level: int, gpus: int, now: float) -> int:
        """How many waits the delay of a level rests on."""
        history = self._histories.get((level, gpus), ())
        return sum(time >= self._oldest_s(now) for time, _ in history)

    def snapshot(self) -> dict[str, Any]:
        """The histories as plain data."""
        return {
            f"{level}/{gpus}": [list(entry) for entry in history]
            for (level, gpus), history in sorted(self._histories.items())
        }

    def restore(self, histories: Mapping[str, Sequence[Sequence[float]]]) -> None:
        """Take back what `snapshot` gave."""
        self._tuned.clear()
        self._histories = {}
        for key, history in histories.items():
            level, gpus = key.split("/")
            self._histories[int(level), int(gpus)] = deque((time, wait) for time, wait in history)


def estimate_wait(waits: Sequence[float]) -> float:
    """Mean plus two population standard deviations of waits; 1 if there is none or all are zero."""
    if not any(waits):
        return 1.0
    mean = fsum(waits) / len(waits)
    variance = fsum((wait - mean) ** 2 for wait in waits) / len(waits)
    return mean + SPREAD * sqrt(variance)


def no_wait(levels: int) -> FixedTimers:
    """Timers that take any placement at once."""
    return FixedTimers((0.0,) * levels)


def consolidated(levels: int) -> FixedTimers:
    """Timers that wait for ever for the closest placement."""
    return FixedTimers((inf,) * levels)
