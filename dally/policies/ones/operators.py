"""What the evolution does to candidates: crossover, mutation, padding, reordering and their score.

A candidate is a row of genes: for each GPU the row of its job in the arrays, or the number of jobs if idle.
All functions work on all candidates at once. Source: Bian et al., ONES, SC 2021.
"""

import numpy as np

from dally.policies.common.arrays import Floats, Ints
from dally.policies.ones.job_arrays import JobArrays


def count_gpus(genes: Ints, jobs: int) -> Ints:
    """(candidates, jobs) the GPUs of each job."""
    return _sums(genes, jobs, None).astype(np.int64)


def middles(genes: Ints, counts: Ints) -> Floats:
    """(candidates, jobs) the mean place of each job's GPUs; inf if it has none."""
    places = np.broadcast_to(np.arange(genes.shape[1], dtype=float), genes.shape)
    sums = _sums(genes, counts.shape[1], places)
    means: Floats = np.divide(sums, counts, out=np.full(counts.shape, np.inf), where=counts > 0)
    return means


def _sums(genes: Ints, jobs: int, weights: Floats | None) -> Floats:
    """(candidates, jobs) the sum of the weights of each job's genes, of 1 each if there are none."""
    rows = len(genes)
    flat = genes + (jobs + 1) * np.arange(rows)[:, None]
    each = None if weights is None else weights.ravel()
    sums: Floats = np.bincount(flat.ravel(), each, rows * (jobs + 1)).astype(np.float64)
    return sums.reshape(rows, jobs + 1)[:, :jobs]


def trim(counts: Ints, middle: Floats, jobs: JobArrays) -> Ints:
    """Counts without the GPUs beyond each job's limit, and without jobs that then have too few to run.

    If the GPUs became fewer than a candidate needs, the jobs that lie last lose theirs.
    """
    kept = np.minimum(counts, jobs.limit) // jobs.step * jobs.step
    kept[kept < jobs.least] = 0
    # Machines may have failed since: a candidate can hold more GPUs than there are.
    order = np.argsort(middle, axis=1, kind="stable")
    taken = np.cumsum(np.take_along_axis(kept, order, 1), axis=1)
    lost = np.empty_like(kept, dtype=np.bool_)
    np.put_along_axis(lost, order, taken > jobs.capacity, 1)
    kept[lost] = 0
    return kept


def pad(counts: Ints, jobs: JobArrays, in_turns: bool = True) -> Ints:
    """Counts with the idle GPUs given away.

    New jobs get their fewest GPUs first, in their order. Then all jobs, those with the least work left first,
    get as many as their limits allow, and at last as many as they can have at most.

    Args:
        counts: (candidates, jobs) the GPUs of each job.
        jobs: The jobs.
        in_turns: All get their fewest GPUs before any grows, and then twice as many in each turn, so that
            the first few do not take all. False: each at once up to its limit, as in the artifact.
    """
    counts = counts.copy()
    idle = jobs.capacity - counts.sum(1)
    order = np.argsort(jobs.left_s / jobs.speed(jobs.least), kind="stable")  # on their fewest GPUs
    _give(counts, idle, np.flatnonzero(jobs.new), jobs.least, jobs)
    if in_turns:
        upto, widest = jobs.least, jobs.limit.max(initial=0)
        while (upto < jobs.limit).any():
            _give(counts, idle, order, np.minimum(upto, jobs.limit), jobs)
            upto = np.minimum(2 * upto, widest)
    _give(counts, idle, order, jobs.limit, jobs)
    _give(counts, idle, order, jobs.most, jobs)
    return counts


def _give(counts: Ints, idle: Ints, order: Ints, upto: Ints, jobs: JobArrays) -> None:
    """Each job in order gets idle GPUs up to a number, in all candidates; `counts` and `idle` change."""
    steps, fewest, bounds = jobs.step.tolist(), jobs.least.tolist(), upto.tolist()
    usable = np.where(jobs.least == jobs.most, jobs.least, jobs.step)
    usable[np.all(counts >= upto, axis=0)] = jobs.capacity + 1
    wanted, widest = usable.tolist(), int(idle.max())
    for job in order.tolist():
        if wanted[job] > widest:
            continue
        have = counts[:, job]
        given = np.minimum(have + idle, bounds[job])
        if steps[job] > 1:
            given -= given % steps[job]
        given = np.maximum(np.where(given < fewest[job], 0, given), have)
        idle -= given - have
        counts[:, job] = given
        widest = int(idle.max())


def lay_out(counts: Ints, middle: Floats, gpus: int) -> Ints:
    """(candidates, gpus) genes in which each job's GPUs are one block, in the order of their middles.

    Args:
        counts: (candidates, jobs) the GPUs of each job.
        middle: (candidates, jobs) where they lay: blocks in this order move few GPUs.
        gpus: Of the cluster; idle ones come last.
    """
    jobs = counts.shape[1]
    order = np.argsort(middle, axis=1, kind="stable")
    blocks = np.take_along_axis(counts, order, 1)
    idle = gpus - counts.sum(1, keepdims=True)
    names = np.hstack((order, np.full_like(idle, jobs)))
    return np.repeat(names.ravel(), np.hstack((blocks, idle)).ravel()).reshape(len(counts), gpus)


def crossover(genes: Ints, exchanged: float, rng: np.random.Generator) -> Ints:
    """Two children of each of half as many random pairs: a GPU keeps its gene if u >= `exchanged`."""
    pairs = len(genes) // 2
    parents = genes[np.array([rng.choice(len(genes), 2, replace=len(genes) < 2) for _ in range(pairs)])]
    stays = rng.random(parents[:, 0].shape) >= exchanged
    one, other = parents[:, 0], parents[:, 1]
    return np.vstack((np.where(stays, one, other), np.where(stays, other, one)))


def mutate(genes: Ints, jobs: JobArrays, removed: float, rng: np.random.Generator) -> Ints:
    """Each candidate without some of the jobs that two epochs are done of, each with such a probability."""
    gone = (rng.random((len(genes), len(jobs))) < removed) & jobs.old
    gone = np.hstack((gone, np.zeros((len(genes), 1), np.bool_)))
    return np.where(np.take_along_axis(gone, genes, 1), len(jobs), genes)


def score(counts: Ints, jobs: JobArrays, of_all: bool = True) -> Floats:
    """(candidates,) SRUF, the shortest remaining use first: GPU-seconds left; less is better.

    Sum over jobs of Y (1 / rho - 1) c / X(c), with c its GPUs and X(c) its speed there, and what the changes
    of running jobs cost (ours: rho is drawn anew at each step, so that without it each draw may move jobs
    for nothing).

    Args:
        counts: (candidates, jobs) the GPUs of each job.
        jobs: The jobs.
        of_all: Jobs of several sizes without GPUs count as if they had their fewest, as their work is not
            gone, and these for as long as the last of those that run now takes, as they wait. False: they
            count nothing, as in the artifact; then to leave out large jobs is always better.
    """
    speeds, runs = jobs.speed(counts), jobs.held > 0
    # How long the last of the running jobs takes on what it has; 0 if none is guessed of.
    longest_s = float(np.max(jobs.left_s[runs] / jobs.speed(jobs.held)[runs], initial=0.0))
    waits_s = longest_s + jobs.left_s / jobs.speed(jobs.least)
    waiting = np.where(jobs.shrinks & of_all, waits_s * jobs.least, 0.0)
    absent = np.broadcast_to(waiting, speeds.shape).copy()
    use = np.divide(jobs.left_s * counts, speeds, out=absent, where=counts > 0)
    change = np.where(counts > 0, jobs.resize_s * counts, jobs.restart_s * jobs.held)
    change = np.where(runs & (counts != jobs.held), change, 0.0)
    totals: Floats = (use + change).sum(1)
    return totals
