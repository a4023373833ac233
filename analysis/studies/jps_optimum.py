"""The best placement of an instance of JPS, exactly; and what no placement of it can beat."""

from itertools import product

import numpy as np

from dally.policies.jps.instance import Floats, Instance, Ints


def optimum_s(instance: Instance) -> float:
    """The least mean running time of all placements, whatever their category, seconds.

    By dynamic programming over the jobs and the workers of each kind that are left: every way to hand out
    every worker is counted, none by itself. Time grows with the square of the product of the workers of each
    kind, plus one: three kinds of 20 take seconds, twelve kinds of one do too.
    """
    shape = tuple(int(count) + 1 for count in instance.workers)
    after = np.full(shape, np.inf)
    after[tuple(0 for _ in shape)] = 0.0
    for job in reversed(range(len(instance.work))):
        before = np.full(shape, np.inf)
        for given, time_s in zip(_all_gangs(instance), _times_s(instance, job), strict=True):
            if np.isfinite(time_s):
                used = tuple(slice(count, None) for count in given)
                rest = tuple(slice(None, size - count) for count, size in zip(given, shape, strict=True))
                np.minimum(before[used], after[rest] + time_s, out=before[used])
        after = before
    return float(after[tuple(size - 1 for size in shape)]) / len(instance.work)


def bound_s(instance: Instance, reached_s: float, steps: int = 300) -> float:
    """A mean running time that no placement can beat, seconds.

    The Lagrange dual: each job alone takes the workers that are best at given prices of the kinds, and the
    price of all workers is taken off. Any prices give a bound; Polyak's subgradient steps improve them.

    Args:
        instance: What is placed.
        reached_s: The mean of a placement that is known, seconds.
        steps: How often the prices change.
    """
    gangs = np.array(_all_gangs(instance))
    times = np.array([_times_s(instance, job) for job in range(len(instance.work))])
    prices, best = np.zeros(len(instance.workers)), -np.inf
    target, pace = reached_s * len(instance.work), 1.0
    for _ in range(steps):
        chosen = (times + gangs @ prices).argmin(axis=1)
        used = gangs[chosen].sum(axis=0)
        slope = used - instance.workers
        dual = float(times[np.arange(len(times)), chosen].sum() + prices @ slope)
        pace = pace if dual > best else pace * 0.95
        best = max(best, dual)
        if not slope.any():
            break
        prices = prices + pace * (target - dual) / float(slope @ slope) * slope
    return best / len(instance.work)


def assignments_s(instance: Instance) -> float:
    """The least mean running time by trying each assignment of each worker, seconds; for tiny instances."""
    kinds = np.repeat(np.arange(len(instance.workers)), instance.workers)
    jobs = range(len(instance.work))
    best = np.inf
    for owners in product(jobs, repeat=len(kinds)):
        given = np.zeros(instance.speeds.shape, dtype=np.int64)
        np.add.at(given, (np.array(owners), kinds), 1)
        sizes = given.sum(axis=1)
        if (sizes >= instance.least).all() and (sizes <= instance.most).all():
            best = min(best, float(instance.times_s(given).mean()))
    return best


def _all_gangs(instance: Instance) -> list[tuple[int, ...]]:
    """Each number of workers of each kind."""
    return list(product(*(range(int(count) + 1) for count in instance.workers)))


def _times_s(instance: Instance, job: int) -> Floats:
    """How long a job runs on each gang, seconds; inf where it must not."""
    gangs: Ints = np.array(_all_gangs(instance))
    sizes = gangs.sum(axis=1)
    allowed = (sizes >= instance.least[job]) & (sizes <= instance.most[job])
    refused = (gangs[:, instance.speeds[job] <= 0] > 0).any(axis=1)
    speed = np.where(allowed & ~refused, gangs @ instance.speeds[job], np.nan)
    times = instance.work[job] / speed + instance.comm_s[job] * (1 - 1 / np.maximum(sizes, 1))
    return np.asarray(np.where(allowed & ~refused, times, np.inf))
