"""The matching market: which workers each job gets where the number of its workers is settled."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import eye_array, kron

from dally.policies.common.arrays import Floats, Ints
from dally.policies.jps.descent import exchange
from dally.policies.jps.instance import Instance

Assign = Callable[[Floats, Ints, Ints], Ints]
"""From what one worker of each kind is worth to each job (jobs, kinds), the jobs' sizes and the workers of
each kind: the workers of each kind that each job gets."""

MOST_ROWS = 300
"""Workers given beyond which the linear program is faster than the Hungarian method."""
PASSES = 5
"""Most times that a market is held again at the worths that the last one left."""
LITTLE = 1e-3
"""A pass that takes off less than this part is the last: exchanges find as much in less time."""
STEP = 0.01
"""By what part of the greatest worth a price rises at least."""


def match(instance: Instance, sizes: Ints, assign: Assign) -> Ints:
    """(jobs, kinds) workers of each job: the least sum of running times found within a category.

    A worker is worth what it takes off the job's time, T_i Pi_i / R_i^2 for each unit of its speed, R_i being
    the speed of the whole job. That depends on the match, so the market is held again while that helps. What
    these straight lines in place of curves miss, exchanges of two workers find; they are not in the paper.
    """
    speed = sizes * instance.mean_speeds
    best, best_s = np.zeros_like(instance.speeds, dtype=np.int64), np.inf
    for number in range(PASSES):
        worths = (instance.work / np.maximum(speed, 1e-12) ** 2)[:, None] * instance.speeds
        # A worker that is not accepted costs more than all others bring.
        refused = -worths.max() * (1.0 + float(instance.workers.sum()))
        given = assign(np.where(instance.speeds > 0, worths, refused), sizes, instance.workers)
        total_s = float(instance.times_s(given).sum())
        if number and total_s > best_s * (1 - LITTLE):
            best, best_s = (given, total_s) if total_s < best_s else (best, best_s)
            break
        best, best_s = given, total_s
        speed = (given * instance.speeds).sum(axis=1)
    return exchange(instance, best) if best_s < np.inf else best


def hungarian(worths: Floats, sizes: Ints, workers: Ints) -> Ints:
    """The assignment of the greatest worth in all, exactly: each job is as many rows as its size.

    Where that makes too many rows, the linear program of the same transport has a row for each job.
    """
    if sizes.sum() > MOST_ROWS:
        return transport(worths, sizes, workers)
    jobs, kinds = _each(sizes), _each(workers)
    rows, columns = linear_sum_assignment(worths[np.ix_(jobs, kinds)], maximize=True)
    return _counts(worths, jobs[rows], kinds[columns])


def transport(worths: Floats, sizes: Ints, workers: Ints) -> Ints:
    """The assignment of the greatest worth in all as a linear program, whose vertices are whole numbers."""
    jobs, kinds = worths.shape
    found = linprog(
        -worths.ravel() / worths.max(),
        A_eq=kron(eye_array(jobs), np.ones((1, kinds))),
        b_eq=sizes,
        A_ub=kron(np.ones((1, jobs)), eye_array(kinds)),
        b_ub=workers,
        method="highs-ds",
    )
    return np.asarray(np.rint(found.x).astype(np.int64).reshape(worths.shape))


def price_ascent(worths: Floats, sizes: Ints, workers: Ints, step: float = STEP) -> Ints:
    """The assignment that rising prices lead to; worth the greatest sum less at most one step a worker given.

    Each row without a worker bids for the one that is worth most above its price, as much more as makes the
    second best equally good, and a step of `step` times the greatest worth. A row that is outbid bids again.
    Source: Bertsekas, The auction algorithm, Ann. Oper. Res. 14, 1988.
    """
    jobs, kinds = _each(sizes), _each(workers)
    table = worths[np.ix_(jobs, kinds)]
    rise = step * float(np.abs(worths).max(where=worths > 0, initial=0.0)) or 1.0
    prices, owner = np.zeros(len(kinds)), np.full(len(kinds), -1)
    bidding = np.arange(len(jobs))
    while len(bidding):
        above = table[bidding] - prices
        wanted, best = above.argmax(axis=1), above.max(axis=1)
        second = np.partition(above, -2, axis=1)[:, -2] if len(kinds) > 1 else best
        bids = prices[wanted] + best - second + rise
        order = np.argsort(bids, kind="stable")
        sold = np.unique(wanted)
        outbid = owner[sold]
        owner[wanted[order]], prices[wanted[order]] = bidding[order], bids[order]
        lost = bidding[owner[wanted] != bidding]
        bidding = np.concatenate([lost, outbid[outbid >= 0]])
    held = owner >= 0
    return _counts(worths, jobs[owner[held]], kinds[held])


def _each(counts: Ints) -> Ints:
    """The index of each count, as often as it says."""
    return np.repeat(np.arange(len(counts)), counts)


def _counts(worths: Floats, jobs: Ints, kinds: Ints) -> Ints:
    given = np.zeros(worths.shape, dtype=np.int64)
    np.add.at(given, (jobs, kinds), 1)
    return given
