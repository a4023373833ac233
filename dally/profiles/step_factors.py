"""What step times tell of a model on a GPU type: factors of what is predicted of it.

A prediction has two parts that can be wrong: what GPUs compute, and how long the network keeps them waiting.
So an iteration is taken to last `c · (compute + w · waiting)`, with a factor c of each model on each GPU type
and a factor w of it at each level of the cluster. Nothing else can tell them apart: c cancels where two
placements are compared, w is what distance costs. Without a profile w is one for all GPU types, whose
paces c differ. The logarithms of the factors are normal; the spread before
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
from itertools import zip_longest
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


PoolName = tuple[str, str, str | None]
"""A model, the GPU type on which it runs, and whose jobs: None for what all users' jobs agree on.

Without a profile it is the model or job, its GPUs, and whose.
"""


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
        for grown in range(len(self.rows), len(row)):
            for line in (self.rows, self.products, *self.squares):
                line.append(0.0)
            self.squares.append([0.0] * (grown + 1))
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
    """The factors of one user's jobs of one model: a precision matrix and its product with the mean.

    The unknowns are log c on the first GPU type, what all waiting factors have in common, what each level has
    of its own, and log c on each further type.

    Args:
        levels: Of the cluster.
        prior: Before anything was observed.
        gpu_type: The first GPU type; empty where the pool is for one alone.
    """

    def __init__(self, levels: int, prior: Prior, gpu_type: str = "") -> None:
        self.prior, self.levels, self.gpu_types = prior, levels, [gpu_type]
        variances = [prior.pace**2, COMMON * prior.waiting**2]
        variances += [(1 - COMMON) * prior.waiting**2] * levels
        size = len(variances)
        self.precision = [[0.0] * size for _ in variances]
        for place, variance in enumerate(variances):
            self.precision[place][place] = 1 / variance
        self.shift = [0.0] * size
        self._start = [0.0] * size  # what is expected of the unknowns at first, times how surely
        self._certainty = [1 / variance for variance in variances]
        self.jobs = self.runs = 0
        self.solve()

    def solve(self) -> None:
        """Work out mean and covariance from precision, shift and start."""
        self.covariance = inverse(self.precision)
        self._settle()

    def _settle(self) -> None:
        self.mean = self._mean([a + b for a, b in zip_longest(self.shift, self._start, fillvalue=0.0)])

    def _mean(self, shift: Sequence[float]) -> list[float]:
        return [sum(a * b for a, b in zip(line, shift, strict=True)) for line in self.covariance]

    def start_from(self, voice: Sequence[float]) -> None:
        """Expect at first what others say, log c and log w at each level, and not what is predicted."""
        pace, *waits = voice
        first = (pace if self.prior.pace < FREE_SPREAD else 0.0, 0.0, *waits)
        self._start = [a * b for a, b in zip(first, self._certainty, strict=True)]
        self._settle()

    @property
    def voice(self) -> list[float]:
        """What its jobs alone say: log c on the first GPU type, and log w at each level."""
        pace, common, *own = self._mean(self.shift)[: 2 + self.levels]
        return [pace, *(common + each for each in own)]

    def add_gpu_type(self, gpu_type: str) -> None:
        """Have a pace for a GPU type, if there is none yet."""
        if gpu_type not in self.gpu_types:
            self.gpu_types.append(gpu_type)
            for line in (self.shift, *self.precision):
                line.append(0.0)
            self.precision.append([0.0] * (len(self.shift) - 1) + [1 / self.prior.pace**2])
            self.solve()

    def _pace_at(self, gpu_type: str) -> int:
        number = self.gpu_types.index(gpu_type)
        return 0 if number == 0 else 1 + self.levels + number

    def row(self, share: float, level: int, gpu_type: str = "") -> list[float]:
        """H: how a step time hangs on the unknowns whose iteration waits for such a share at a level."""
        row = [0.0] * len(self.shift)
        row[self._pace_at(gpu_type)], row[1], row[2 + level] = 1.0, share, share
        return row

    def log_factors(self, level: int, gpu_type: str = "") -> tuple[float, float]:
        """The means of log c on a GPU type and of log w at a level."""
        return self.mean[self._pace_at(gpu_type)], self.mean[1] + self.mean[2 + level]

    def add(self, job: JobSums, sign: int = 1) -> None:
        """Add what a job has told, or take it away again; mean and covariance stay until `solve`."""
        for i, left in enumerate(job.rows):
            self.shift[i] += sign * (job.products[i] - job.shrink * left * job.seen)
            for j, right in enumerate(job.rows):
                self.precision[i][j] += sign * (job.squares[i][j] - job.shrink * left * right)
        self.runs += sign * job.runs
        self.jobs += sign * bool(job.runs)

    def factors(self) -> tuple[float, tuple[float, ...]]:
        """The factor c on the first GPU type, and w at each level: the medians of what they may be."""
        pace, common, *own = self.mean[: 2 + self.levels]
        return exp(pace), tuple(exp(common + each) for each in own)

    def variance(self, row: Sequence[float]) -> float:
        """Of `H · unknowns`."""
        return sum(
            left * right * self.covariance[i][j] for i, left in enumerate(row) for j, right in enumerate(row)
        )

    def waiting_sigma(self, level: int) -> float:
        """Standard deviation of log w at a level."""
        row = self.row(1.0, level, self.gpu_types[0])
        return sqrt(self.variance([0.0, *row[1:]]))


def agreed(voices: Sequence[Sequence[float]], size: int) -> list[float]:
    """What users agree on: the median of what each one's jobs say, with the prediction as one more voice.

    Of two in the middle it is the one nearer to the prediction, 0. So one user alone moves nothing, and among
    others he moves nothing beyond what one of them says, too.

    Args:
        voices: As `FactorPool.voice` gives them.
        size: Of each.
    """
    found = []
    for place in range(size):
        said = sorted([0.0, *(voice[place] for voice in voices)])
        found.append(min(said[(len(said) - 1) // 2], said[len(said) // 2], key=abs))
    return found


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
