"""Which tells jobs apart better, their time limits or what jobs like them took: by those that have ended.

Schedulers need an order, not lengths: a limit of ten times the truth for everybody is as good as the truth,
and an index of history (`dally.scheduling.learnt_beliefs`) is no length at all. So both are judged by the
pairs of ended jobs of which one took twice as long as the other or more: in which share of them was the
longer one believed to be the longer, as both began? That is Harrell's concordance (Evaluating the Yield of
Medical Tests, JAMA 247, 1982); 0.5 is chance, and what limits have that are all alike.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from dally.jobs.knowledge import Knowledge

SIDES = (Knowledge.LIMITS, Knowledge.HISTORY)
AT_FIRST = Knowledge.LIMITS
"""What a new site has."""

FEWEST_JOBS = 50
"""Before so many have ended, nothing is changed."""

MARGIN = 0.03
"""The other must be right in so much more of the pairs for a change: differences of less come and go."""

HALF_LIFE_JOBS = 500
"""A pair counts half once so many more jobs have ended."""

TWICE = 2.0
"""A pair counts if one took so many times as long as the other: nearer ones hardly matter to anybody."""

_COMPARED = 100
"""How many of the last jobs each that ends is compared with."""

_KEPT = 0.5 ** (1 / HALF_LIFE_JOBS)


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has ended: its work, what each side believed of it at its start, and its limit; seconds."""

    work_s: float
    believed_s: Mapping[Knowledge, float]
    limit_s: float


class Choice:
    """Limits or history, whichever has put more pairs of ended jobs in the right order.

    Attributes:
        best: The one to go by.
        since_s: When it was chosen; None: from the beginning.
        judged: How many ended jobs that rests on.
    """

    def __init__(self) -> None:
        self.best = AT_FIRST
        self.since_s: float | None = None
        self.judged = 0
        self._pairs = 0.0
        self._right = dict.fromkeys(SIDES, 0.0)
        self._last: deque[Ended] = deque(maxlen=_COMPARED)

    def judge(self, ended: Ended, now: float) -> bool:
        """A job has ended; whether the other side is the better one from now on."""
        apart = [
            other for other in self._last if not 1 / TWICE < ended.work_s / max(other.work_s, 1.0) < TWICE
        ]
        self._pairs = _KEPT * self._pairs + len(apart)
        for side in SIDES:
            rightly = sum(_rightly(ended, other, side) for other in apart)
            self._right[side] = _KEPT * self._right[side] + rightly
        self._last.append(ended)
        self.judged += 1
        other = next(side for side in SIDES if side is not self.best)
        shares = self.shares()
        if self.judged < FEWEST_JOBS or shares[other] < shares[self.best] + MARGIN:
            return False
        self.best, self.since_s = other, now
        return True

    def shares(self) -> Mapping[Knowledge, float]:
        """In which share of the pairs each side was right; a half before there is any."""
        return {side: self._right[side] / self._pairs if self._pairs else 0.5 for side in SIDES}

    def limit_used(self) -> float | None:
        """What part of their limits the last jobs took, in the median; None before any has ended."""
        return median(each.work_s / each.limit_s for each in self._last) if self._last else None

    def snapshot(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "best": self.best,
            "since_s": self.since_s,
            "judged": self.judged,
            "pairs": self._pairs,
            "right": [self._right[side] for side in SIDES],
            "last": [
                [each.work_s, *(each.believed_s[side] for side in SIDES), each.limit_s] for each in self._last
            ],
        }

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave."""
        self.best, self.since_s = Knowledge(learnt["best"]), learnt["since_s"]
        self.judged, self._pairs = learnt["judged"], learnt["pairs"]
        self._right = dict(zip(SIDES, learnt["right"], strict=True))
        for work_s, limits_s, history_s, limit_s in learnt["last"]:
            believed_s = {Knowledge.LIMITS: limits_s, Knowledge.HISTORY: history_s}
            self._last.append(Ended(work_s, believed_s, limit_s))


def _rightly(one: Ended, other: Ended, side: Knowledge) -> float:
    """1 if the longer of two jobs was believed to be the longer, half of it if both were believed alike."""
    believed_s = one.believed_s[side] - other.believed_s[side]
    return 0.5 if not believed_s else float((believed_s > 0) == (one.work_s > other.work_s))
