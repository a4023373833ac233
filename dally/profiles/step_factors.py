"""What step times tell of a model on a GPU type: factors of what is predicted of it.

A prediction has two parts that can be wrong: what GPUs compute, and how long the network keeps them waiting.
So an iteration is taken to last `c · (compute + w · waiting)`, with a factor c of each model on each GPU type
and a factor w of it at each level of the cluster. Nothing else can tell them apart: c cancels where two
placements are compared, w is what distance costs. The logarithms of the factors are normal; the spread before
the first step time goes by how the prediction came about. With h the share of the iteration that waits, the
logarithm of a step time over its prediction is `log c + h · log w`, and what is left is normal, too: a linear
observation. So the update is the conjugate one, precisions add up (Gelman and others, Bayesian Data Analysis,
3rd edition, 2013, chapters 2.5 and 14.8), made at the mean as in an iterated Kalman filter (Bell and Cathey,
IEEE TAC 38(2), 1993). Where h is 0, a step time says nothing of w; nobody has to tell it so.

Runs of one job are no independent witnesses: they share what is peculiar to it, which is integrated out. So
one job that ran near and far tells the difference well, and its own pace does not count much.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, sqrt

from dally.profiles.schema import ProfileMode

JOB_SPREAD = 0.15
"""Standard deviation (of a logarithm, as all here) of the paces of one model's jobs with a profile: scripts,
data and versions differ."""

STRANGERS_SPREAD = 0.3
"""Of jobs of one name and size without a profile."""

FREE_SPREAD = 10.0
"""Of what nobody has an idea of."""

COMMON = 0.8
"""Part of the variance of a waiting factor that all levels of a pool have in common."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Standard deviations of the logarithms of a pool's factors before anything was observed.

    Attributes:
        pace: Of c.
        waiting: Of w at each level.
        job: Of what is peculiar to each job.
    """

    pace: float
    waiting: float
    job: float = JOB_SPREAD


MEASURED = Prior(0.15, 0.4)
"""Measured on GPUs, and not far from what is predicted."""
CALCULATED = Prior(0.3, 0.6)
"""Imported, given or emulated, farther away than was measured, or calculated from a parallel plan."""
UNKNOWN = Prior(FREE_SPREAD, 0.8, STRANGERS_SPREAD)
"""Without a profile: nothing is predicted of the pace, and what distance costs is assumed."""


def prior_of(mode: ProfileMode, extrapolated: bool) -> Prior:
    """How sure a prediction is whose profile came about so, within what was measured or outside of it."""
    return MEASURED if mode is ProfileMode.NCCL and not extrapolated else CALCULATED


PoolName = tuple[str, str]
"""A model and the GPU type on which it runs; without a profile, the model or job, and its GPUs."""


def pool_of_itself(job_id: str) -> str:
    """What stands for the model in the pool of a job that names none: nobody else learns from it."""
    return f"job {job_id}"


@dataclass(slots=True)
class JobSums:
    """What a job's runs have told, summed with their weights; `weight`·v is the mean observation.

    Attributes:
        pool: Whose factors it tells of.
        spread: Of what is peculiar to it.
        runs: How many.
        since_s: Start of the last run that has told.
        weight, seen, rows, squares, products: Sums of 1, z, H, H Hᵀ and H z over the variance of each.
    """

    pool: PoolName
    spread: float
    runs: int = 0
    since_s: float = -1.0
    weight: float = 0.0
    seen: float = 0.0
    rows: list[float] = field(default_factory=list)
    squares: list[list[float]] = field(default_factory=list)
    products: list[float] = field(default_factory=list)

    def add(self, row: Sequence[float], z: float, variance: float) -> None:
        """One more run."""
        if not self.rows:
            self.rows = [0.0] * len(row)
            self.squares = [[0.0] * len(row) for _ in row]
            self.products = [0.0] * len(row)
        self.weight += 1 / variance
        self.seen += z / variance
        for i, left in enumerate(row):
            self.rows[i] += left / variance
            self.products[i] += left * z / variance
            for j, right in enumerate(row):
                self.squares[i][j] += left * right / variance

    @property
    def shrink(self) -> float:
        """What integrating the job's own part out takes away (Sherman and Morrison)."""
        return self.spread**2 / (1 + self.spread**2 * self.weight)


class FactorPool:
    """The factors of one model on one GPU type: a precision matrix and its product with the mean.

    The unknowns are log c, what all waiting factors have in common, and what each level has of its own.

    Args:
        levels: Of the cluster.
        prior: Before anything was observed.
    """

    def __init__(self, levels: int, prior: Prior) -> None:
        self.prior, self.levels = prior, levels
        variances = [prior.pace**2, COMMON * prior.waiting**2]
        variances += [(1 - COMMON) * prior.waiting**2] * levels
        size = len(variances)
        self.precision = [[0.0] * size for _ in variances]
        for place, variance in enumerate(variances):
            self.precision[place][place] = 1 / variance
        self.shift = [0.0] * size
        self.jobs = self.runs = 0
        self.solve()

    def solve(self) -> None:
        """Work out mean and covariance from precision and shift."""
        self.covariance = inverse(self.precision)
        self.mean = [sum(a * b for a, b in zip(line, self.shift, strict=True)) for line in self.covariance]

    def row(self, share: float, level: int) -> list[float]:
        """H: how a step time hangs on the unknowns whose iteration waits for such a share at a level."""
        own = [share if place == level else 0.0 for place in range(self.levels)]
        return [1.0, share, *own]

    def add(self, job: JobSums, sign: int = 1) -> None:
        """Add what a job has told, or take it away again; mean and covariance stay until `solve`."""
        for i, left in enumerate(job.rows):
            self.shift[i] += sign * (job.products[i] - job.shrink * left * job.seen)
            for j, right in enumerate(job.rows):
                self.precision[i][j] += sign * (job.squares[i][j] - job.shrink * left * right)
        self.runs += sign * job.runs
        self.jobs += sign * bool(job.runs)

    def factors(self) -> tuple[float, tuple[float, ...]]:
        """c, and w at each level: the medians of what they may be."""
        pace, common, *own = self.mean
        return exp(pace), tuple(exp(common + each) for each in own)

    def variance(self, row: Sequence[float]) -> float:
        """Of `H · unknowns`."""
        return sum(
            left * right * self.covariance[i][j] for i, left in enumerate(row) for j, right in enumerate(row)
        )

    def waiting_sigma(self, level: int) -> float:
        """Standard deviation of log w at a level."""
        row = self.row(1.0, level)
        return sqrt(self.variance([0.0, *row[1:]]))


def inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """The inverse of a positive definite matrix, by Gauss and Jordan; no pivots are needed for such a one.

    Args:
        matrix: (n, n); n is a handful, and plain arithmetic gives the same bits on every machine.
    """
    size = len(matrix)
    rows = [[*line, *(float(i == j) for j in range(size))] for i, line in enumerate(matrix)]
    for i in range(size):
        pivot = rows[i][i]
        rows[i] = [each / pivot for each in rows[i]]
        for j in range(size):
            if j != i and (factor := rows[j][i]):
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [line[size:] for line in rows]
