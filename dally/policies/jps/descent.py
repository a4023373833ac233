"""Local search on a placement: jobs exchange workers, or hand them over, as long as that saves time."""

from itertools import product

import numpy as np

from dally.policies.common.arrays import Floats, Ints
from dally.policies.jps.instance import Instance

_LEAST = 1e-9
"""Savings below this part of all times do not count: they may be rounding."""


def exchange(instance: Instance, given: Ints) -> Ints:
    """Jobs exchange workers of two kinds, or take idle ones for theirs, until that saves no more time.

    The best exchange comes first. The category stays as it is. A step takes time like jobs * kinds^2.
    """
    given = given.copy()
    speeds, work = instance.speeds, instance.work[:, None, None]
    while True:
        idle = instance.workers - given.sum(axis=0)
        idle_s = np.broadcast_to(np.where(idle > 0, 0.0, np.inf)[:, None], (1, len(idle), len(idle)))
        # (jobs, kinds, kinds) how much longer each runs with one of the second kind for one of the first.
        speed = (given * speeds).sum(axis=1)[:, None, None]
        after = speed - speeds[:, :, None] + speeds[:, None, :]
        possible = (given[:, :, None] > 0) & (speeds[:, None, :] > 0) & (after > 0)
        swapped_s = np.where(possible, work / np.where(possible, after, 1.0) - work / speed, np.inf)
        changes_s = np.concatenate([swapped_s, idle_s])
        job, change_s = changes_s.argmin(axis=0), changes_s.min(axis=0)
        both_s = np.where(job == job.T, np.inf, change_s + change_s.T)
        first, second = np.unravel_index(int(both_s.argmin()), both_s.shape)
        if not both_s[first, second] < -_LEAST * instance.times_s(given).sum():
            return given
        for old, new in ((first, second), (second, first)):
            if job[old, new] < len(given):  # else it is an idle one's
                given[job[old, new], old] -= 1
                given[job[old, new], new] += 1


def descend(instance: Instance, given: Ints) -> Ints:
    """Exchanges, and workers that are handed over or were idle, until neither saves time."""
    while True:
        given = exchange(instance, given)
        longer_s, shorter_s = handed_s(instance, given)
        idle = instance.workers - given.sum(axis=0)
        # The best pair of a kind is among the two best givers and the two best takers of that kind.
        givers, takers = (np.argsort(change_s, axis=0)[:2] for change_s in (longer_s, shorter_s))
        best: tuple[int | None, int, int] | None = None
        best_s = -_LEAST * instance.times_s(given).sum()
        for kind in range(len(instance.workers)):
            offers: list[tuple[int | None, float]] = [
                (int(giver), longer_s[giver, kind]) for giver in givers[:, kind]
            ]
            if idle[kind] > 0:
                offers.append((None, 0.0))
            for (giver, lost_s), taker in product(offers, takers[:, kind]):
                change_s = lost_s + shorter_s[taker, kind]
                if giver != taker and change_s < best_s:
                    best, best_s = (giver, taker, kind), change_s
        if best is None:
            return given
        giver, taker, kind = best
        if giver is not None:
            given[giver, kind] -= 1
        given[taker, kind] += 1


def handed_s(instance: Instance, given: Ints) -> tuple[Floats, Floats]:
    """(jobs, kinds) how much longer each job runs with a worker of a kind less, and with one more.

    Inf where its bounds, or the types that it accepts, forbid that.
    """
    sizes = given.sum(axis=1)
    now_s = instance.times_s(given)

    def change_s(step: int) -> Floats:
        """How much longer each job runs with `step` workers more of a kind."""
        speed = (given * instance.speeds).sum(axis=1)[:, None] + step * instance.speeds
        reduce_s = instance.all_reduce_s(sizes + step)[:, None]
        times_s = instance.work[:, None] / np.where(speed > 0, speed, np.inf) + reduce_s
        return np.asarray(times_s - now_s[:, None])

    fewer = (given > 0) & (sizes > instance.least)[:, None]
    more = (instance.speeds > 0) & (sizes < instance.most)[:, None]
    return np.where(fewer, change_s(-1), np.inf), np.where(more, change_s(1), np.inf)
