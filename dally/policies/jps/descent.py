"""Local search on a placement: jobs exchange workers, or hand them over, as long as that saves time."""

from itertools import product

import numpy as np

from dally.policies.jps.instance import Floats, Instance, Ints

_LEAST = 1e-9
"""Savings below this part of all times do not count: they may be rounding."""


def exchange(instance: Instance, given: Ints) -> Ints:
    """Jobs exchange workers of two kinds, or take idle ones for theirs, until that saves no more time.

    The best exchange comes first. The category stays as it is. A step takes time like jobs * kinds^2.
    """
    given = given.copy()
    while _exchange_once(instance, given):
        pass
    return given


def descend(instance: Instance, given: Ints) -> Ints:
    """Exchanges, and workers handed over from one job to another, until neither saves time."""
    given = exchange(instance, given)
    while _hand_over_once(instance, given):
        given = exchange(instance, given)
    return given


def _exchange_once(instance: Instance, given: Ints) -> bool:
    """Make the best exchange if it saves time."""
    idle = instance.workers - given.sum(axis=0)
    idle_s = np.broadcast_to(np.where(idle > 0, 0.0, np.inf)[:, None], (1, len(idle), len(idle)))
    changes_s = np.concatenate([_swapped_s(instance, given), idle_s])
    job, change_s = changes_s.argmin(axis=0), changes_s.min(axis=0)
    both_s = np.where(job == job.T, np.inf, change_s + change_s.T)
    first, second = np.unravel_index(int(both_s.argmin()), both_s.shape)
    if not both_s[first, second] < -_LEAST * instance.times_s(given).sum():
        return False
    for old, new in ((first, second), (second, first)):
        if job[old, new] < len(given):  # else it is an idle one's
            given[job[old, new], old] -= 1
            given[job[old, new], new] += 1
    return True


def _swapped_s(instance: Instance, given: Ints) -> Floats:
    """(jobs, kinds, kinds) how much longer each job runs with one of the second kind for one of the first."""
    speeds, work = instance.speeds, instance.work[:, None, None]
    speed = (given * speeds).sum(axis=1)[:, None, None]
    after = speed - speeds[:, :, None] + speeds[:, None, :]
    possible = (given[:, :, None] > 0) & (speeds[:, None, :] > 0) & (after > 0)
    return np.asarray(np.where(possible, work / np.where(possible, after, 1.0) - work / speed, np.inf))


def _hand_over_once(instance: Instance, given: Ints) -> bool:
    """Make the best handing over if it saves time."""
    longer_s, shorter_s = handed_s(instance, given)
    givers, takers = (np.argsort(change_s, axis=0)[:2] for change_s in (longer_s, shorter_s))
    best, best_s = (0, 0, 0), -_LEAST * instance.times_s(given).sum()
    for kind in range(len(instance.workers)):
        for giver, taker in product(givers[:, kind], takers[:, kind]):
            change_s = longer_s[giver, kind] + shorter_s[taker, kind]
            if giver != taker and change_s < best_s:
                best, best_s = (giver, taker, kind), change_s
    giver, taker, kind = best
    given[giver, kind] -= giver != taker
    given[taker, kind] += giver != taker
    return bool(giver != taker)


def handed_s(instance: Instance, given: Ints) -> tuple[Floats, Floats]:
    """(jobs, kinds) how much longer each job runs with a worker of a kind less, and with one more.

    Inf where its bounds, or the types that it accepts, forbid that.
    """
    sizes = given.sum(axis=1)
    now_s = instance.times_s(given)
    less_s, more_s = (_resized_s(instance, given, step) - now_s[:, None] for step in (-1, 1))
    fewer = (given > 0) & (sizes > instance.least)[:, None]
    more = (instance.speeds > 0) & (sizes < instance.most)[:, None]
    return np.where(fewer, less_s, np.inf), np.where(more, more_s, np.inf)


def _resized_s(instance: Instance, given: Ints, step: int) -> Floats:
    """(jobs, kinds) how long each job runs with `step` workers more of a kind, seconds."""
    speed = (given * instance.speeds).sum(axis=1)[:, None] + step * instance.speeds
    all_reduce_s = instance.all_reduce_s(given.sum(axis=1) + step)
    return np.asarray(instance.work[:, None] / np.where(speed > 0, speed, np.inf) + all_reduce_s[:, None])
