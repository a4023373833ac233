"""The search for a good category: drawn ones (JPS), a guided start that climbs, or all of them."""

from dataclasses import dataclass, field, replace

import numpy as np

from dally.policies.common.arrays import Floats, Ints
from dally.policies.jps.categories import (
    guided_category,
    least_even_first,
    list_categories,
    sample_categories,
)
from dally.policies.jps.descent import descend, handed_s
from dally.policies.jps.instance import Instance, jain
from dally.policies.jps.market import Assign, hungarian, match


@dataclass(frozen=True, slots=True, eq=False)
class FoundPlacement:
    """A placement of all jobs.

    Attributes:
        given: (jobs, kinds) workers of each job.
        times_s: (jobs,) how long each job runs, seconds.
        fairness: Jain's index against an equal share.
        score: What was minimised.
        markets: Categories that were matched to find it.
    """

    given: Ints
    times_s: Floats
    fairness: float
    score: float
    markets: int

    @property
    def mean_s(self) -> float:
        """Mean running time, seconds."""
        return float(self.times_s.mean())


@dataclass(slots=True)
class Search:
    """Matches categories and keeps the best.

    Attributes:
        instance: What to place.
        beta: Weight of unfairness, 1 - Jain's index, against the mean running time relative to equal shares.
        assign: How the market matches.
    """

    instance: Instance
    beta: float = 0.0
    assign: Assign = hungarian
    best: FoundPlacement | None = field(default=None, init=False)
    markets: int = field(default=0, init=False)
    _equal_s: Floats = field(init=False)

    def __post_init__(self) -> None:
        self._equal_s = self.instance.equal_share_s()

    def sampled(self, rng: np.random.Generator, count: int, alpha: float) -> FoundPlacement:
        """The best of `count` different drawn categories; the leading `alpha` least even ones are skipped."""
        drawn = least_even_first(sample_categories(self.instance, rng, count))
        for sizes in drawn[min(int(alpha * len(drawn)), len(drawn) - 1) :]:
            self.hold(sizes)
        return self._found()

    def enumerated(self) -> FoundPlacement:
        """The best of all categories."""
        for sizes in list_categories(self.instance):
            self.hold(sizes)
        return self._found()

    def guided(self, most_markets: int) -> FoundPlacement:
        """From the guided category down, with a market after each descent; then by single workers."""
        self.hold(guided_category(self.instance))
        if not np.isfinite(self._found().score):
            self.hold(self.instance.least)  # types asked for can make any category but this impossible
        better = True
        while better and self.markets < most_markets:
            given = descend(self.instance, self._found().given)
            better = self._keep_if_best(given)
            if better:
                self.hold(given.sum(axis=1))
        while self.markets < most_markets and self._step(most_markets):
            pass
        return self._found()

    def hold(self, sizes: Ints) -> bool:
        """Hold the market of a category; whether it is the best so far."""
        self.markets += 1
        return self._keep_if_best(match(self.instance, sizes, self.assign))

    def _keep_if_best(self, given: Ints) -> bool:
        """Take a placement if it is the best so far."""
        times_s = self.instance.times_s(given)
        fairness = jain(self._equal_s / times_s)
        relative = float(times_s.sum() / self._equal_s.sum())
        score = (1 - self.beta) * relative + self.beta * (1 - fairness)
        if self.best is not None and score >= self.best.score:
            return False
        self.best = FoundPlacement(given, times_s, fairness, score, self.markets)
        return True

    def _found(self) -> FoundPlacement:
        assert self.best is not None, "there is a category"
        return replace(self.best, markets=self.markets)

    def _step(self, most_markets: int) -> bool:
        """Hold the markets of neighbours, those first that should be best; whether one is better."""
        given = self._found().given
        longer_s, shorter_s = handed_s(self.instance, given)
        change_s = (longer_s[:, None, :] + shorter_s[None, :, :]).min(axis=2)
        np.fill_diagonal(change_s, np.inf)
        if not np.isfinite(change_s).any():
            return False
        for place in np.argsort(change_s, axis=None)[: most_markets - self.markets]:
            giver, taker = np.unravel_index(place, change_s.shape)
            if change_s[giver, taker] == np.inf:
                break
            sizes = given.sum(axis=1)
            sizes[giver] -= 1
            sizes[taker] += 1
            if self.hold(sizes):
                return True
        return False
