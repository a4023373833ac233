"""What the evolution does to candidates: crossover, mutation, padding, reordering and their score.

A candidate is a row of genes: for each GPU the row of its job in the roll, or their number where it is idle.
All functions work on all candidates at once. Source: Bian et al., ONES, SC 2021.
"""

import numpy as np

from dally.policies.ones.roll import Floats, Ints, Roll


def tally(genes: Ints, jobs: int, weights: Floats | None = None) -> Floats:
    """(candidates, jobs) how many genes each job has, or the sum of their places' weights, (GPUs,)."""
    rows = len(genes)
    flat = genes + (jobs + 1) * np.arange(rows)[:, None]
    each = None if weights is None else np.broadcast_to(weights, genes.shape).ravel()
    sums: Floats = np.bincount(flat.ravel(), each, rows * (jobs + 1)).astype(np.float64)
    return sums.reshape(rows, jobs + 1)[:, :jobs]


def counted(genes: Ints, jobs: int) -> Ints:
    """(candidates, jobs) the GPUs of each job."""
    return tally(genes, jobs).astype(np.int64)


def middles(genes: Ints, counts: Ints) -> Floats:
    """(candidates, jobs) the mean place of each job's GPUs; inf if it has none."""
    sums = tally(genes, counts.shape[1], np.arange(genes.shape[1], dtype=float))
    means: Floats = np.divide(sums, counts, out=np.full(counts.shape, np.inf), where=counts > 0)
    return means


def trim(counts: Ints, middle: Floats, roll: Roll) -> Ints:
    """Counts without the GPUs beyond each job's limit, and without those who then have too few to run.

    If the GPUs became fewer than a candidate needs, the jobs that lie last lose theirs.
    """
    kept = np.minimum(counts, roll.limit) // roll.step * roll.step
    kept[kept < roll.least] = 0
    order = np.argsort(middle, axis=1, kind="stable")
    taken = np.cumsum(np.take_along_axis(kept, order, 1), axis=1)
    lost = np.empty_like(kept, dtype=np.bool_)
    np.put_along_axis(lost, order, taken > roll.capacity, 1)
    kept[lost] = 0
    return kept


def pad(counts: Ints, roll: Roll, in_turns: bool = True) -> Ints:
    """Counts with the idle GPUs given away.

    First new jobs in their order get their fewest GPUs; then all with the least work left first get as many
    as their limits allow, and again as many as they can have at most.

    Args:
        counts: (candidates, jobs) the GPUs of each job.
        roll: The jobs.
        in_turns: All get their fewest GPUs before anybody grows, and then twice as many in each turn, so that
            the first few do not take all. False: each at once up to its limit, as in the artifact.
    """
    counts = counts.copy()
    idle = roll.capacity - counts.sum(1)
    order = roll.by_work_left()
    _give(counts, idle, np.flatnonzero(roll.new), roll.least, roll)
    if in_turns:
        upto, widest = roll.least, roll.limit.max(initial=0)
        while (upto < roll.limit).any():
            _give(counts, idle, order, np.minimum(upto, roll.limit), roll)
            upto = np.minimum(2 * upto, widest)
    _give(counts, idle, order, roll.limit, roll)
    _give(counts, idle, order, roll.most, roll)
    return counts


def _give(counts: Ints, idle: Ints, order: Ints, upto: Ints, roll: Roll) -> None:
    """Each job in order gets idle GPUs up to a number, in all candidates; `counts` and `idle` change."""
    steps, fewest, bounds = roll.step.tolist(), roll.least.tolist(), upto.tolist()
    usable = np.where(roll.least == roll.most, roll.least, roll.step)
    usable[np.all(counts >= upto, axis=0)] = roll.capacity + 1
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


def mutate(genes: Ints, roll: Roll, removed: float, rng: np.random.Generator) -> Ints:
    """Each candidate without some of the jobs that two epochs are done of, each with such a probability."""
    gone = (rng.random((len(genes), len(roll))) < removed) & roll.old
    gone = np.hstack((gone, np.zeros((len(genes), 1), np.bool_)))
    return np.where(np.take_along_axis(gone, genes, 1), len(roll), genes)


def score(counts: Ints, roll: Roll, of_all: bool = True) -> Floats:
    """(candidates,) SRUF, the shortest remaining use first: GPU-seconds left; less is better.

    Sum over jobs of Y (1 / rho - 1) c / X(c), with c its GPUs and X(c) its speed there, and what the changes
    of those who run cost (ours).

    Args:
        counts: (candidates, jobs) the GPUs of each job.
        roll: The jobs.
        of_all: Jobs of several sizes without GPUs count as if they had their fewest, as their work is not
            gone, and these for as long as the last of those that run now takes, as they wait. False: they
            count nothing, as in the artifact, so that to leave out large jobs is always better.
    """
    speeds = roll.speed(counts)
    waits_s = roll.lasts_s() + roll.left_s / roll.speed(roll.least)
    waiting = np.where(roll.shrinks & of_all, waits_s * roll.least, 0.0)
    absent = np.broadcast_to(waiting, speeds.shape).copy()
    use = np.divide(roll.left_s * counts, speeds, out=absent, where=counts > 0)
    totals: Floats = (use + roll.change(counts)).sum(1)
    return totals
