"""Synthetic workloads: log-normal durations, a mix of GPU counts, and arrivals from all-at-once to bursty."""

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from random import Random
from statistics import NormalDist
from string import ascii_lowercase

from dally.errors import InputError
from dally.jobs.job import Job
from dally.traces.workload import LazyJobs

USER_SHARE, NAME_SHARE = 0.3, 0.5
"""Shares of the variance of the logarithm of durations that users and names explain."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class WorkloadShape:
    """The distributions of a synthetic workload.

    Attributes:
        gpus: Pairs of GPU count and weight.
        mu: Mean of the natural logarithm of the duration in seconds.
        sigma: Standard deviation of that logarithm.
        max_s: Longest duration, seconds; longer draws become this.
        gap_s: Mean time between submissions, seconds; 0 submits all jobs at once.
        cv: Coefficient of variation of that time; 1 is Poisson, more is bursty.
        jobs: Number of jobs.
        load: GPU time asked for / GPU time the cluster has until the last submission; None leaves `gap_s`.
        cluster_gpus: The cluster's GPUs, for `load`.
        fits: (mu, sigma) of jobs with this many GPUs, instead of the general ones.
        users: Users, the first of whom submits most (Zipf); 0: no job has a user. The jobs of one are alike.
        names: Names that each of them gives to jobs, in the same way; 0: none. Jobs of one are more alike.
    """

    gpus: tuple[tuple[int, float], ...]
    mu: float
    sigma: float
    max_s: float
    gap_s: float = 0.0
    cv: float = 1.0
    jobs: int = 1000
    load: float | None = None
    cluster_gpus: int | None = None
    fits: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    users: int = 0
    names: int = 0


def synthesize(name: str, shape: WorkloadShape, seed: int) -> Sequence[Job]:
    """Draw a workload; job i is the same however many jobs follow it, unless `load` sets the pace.

    Args:
        name: Prefix of the job ids and of the random streams.
        shape: The distributions.
        seed: Seed; each of sizes, people, durations and gaps has its own stream.

    Raises:
        InputError: `load` is given without `cluster_gpus` or for jobs submitted at once, or the reverse; or
            names without users.
    """
    if shape.names and not shape.users:
        raise InputError("names needs users: each of them has so many")
    counts, weights = zip(*shape.gpus, strict=True)
    sizes = array("q", Random(f"{seed}:{name}:gpus").choices(counts, weights, k=shape.jobs))
    users = _draw_zipf(shape.users, shape.jobs, Random(f"{seed}:{name}:users"))
    names = _draw_zipf(shape.names, shape.jobs, Random(f"{seed}:{name}:names"))
    spread = _spread(users, names, f"{seed}:{name}")
    durations_s = _draw_durations(shape, sizes, spread, Random(f"{seed}:{name}:durations"))
    gaps_s = draw_gaps(shape.jobs, shape.gap_s, shape.cv, Random(f"{seed}:{name}:gaps"))
    work = sum(size * duration_s for size, duration_s in zip(sizes, durations_s, strict=True))
    submits_s = array("q", map(round, accumulate(to_load(gaps_s, work, shape.load, shape.cluster_gpus))))

    def job(at: int) -> Job:
        user = f"user-{users[at]}" if users else ""
        job_name = f"train-{_letters(names[at])}-{at}" if names else ""
        return Job(job_id(name, at), submits_s[at], sizes[at], durations_s[at], user, job_name=job_name)

    return LazyJobs(shape.jobs, job)


def job_id(name: str, at: int) -> str:
    """The id of a generated workload's job number `at`; ids sort like the numbers."""
    return f"{name}-{at:06d}"


def exponential(rng: Random, mean: float) -> float:
    """A draw from the exponential distribution, by `random()` alone, which Python keeps stable."""
    return -mean * math.log(1.0 - rng.random())


def poisson_arrivals_s(jobs: int, gap_s: float, rng: Random) -> Iterator[int]:
    """Submissions in whole seconds, the first at 0; with a mean gap of 0 all of them."""
    return map(round, accumulate(exponential(rng, gap_s) if at else 0.0 for at in range(jobs)))


def _draw_zipf(count: int, draws: int, rng: Random) -> Sequence[int]:
    """Numbers below a count, each as often as one over its place; none if there is none to draw."""
    weights = [1.0 / place for place in range(1, count + 1)]
    return rng.choices(range(count), weights, k=draws) if count else ()


def _spread(users: Sequence[int], names: Sequence[int], stream: str) -> Callable[[int, float], float]:
    """How a job's own draw from the standard normal distribution becomes its place among all durations.

    The user's and the name's draws take their shares of the variance, so that all durations together keep
    the distribution.

    Args:
        users: The user of each job, as numbers; empty if jobs have none.
        names: The name of each job, likewise.
        stream: Names the random streams.
    """
    if not users:
        return lambda at, own: own
    by_name = NAME_SHARE if names else 0.0
    own_part = math.sqrt(1.0 - USER_SHARE - by_name)

    @cache
    def drawn(*whose: int) -> float:
        return _NORMAL.inv_cdf(max(Random(f"{stream}:people:{whose}").random(), 2.0**-53))

    def place(at: int, own: float) -> float:
        user = users[at]
        together = math.sqrt(USER_SHARE) * drawn(user)
        if by_name:
            together += math.sqrt(by_name) * drawn(user, names[at])
        return together + own_part * own

    return place


def _letters(number: int) -> str:
    """A number in letters: 0 is a, 25 z, 26 ba."""
    head, last = divmod(number, len(ascii_lowercase))
    return (_letters(head) if head else "") + ascii_lowercase[last]


def _draw_durations(
    shape: WorkloadShape, sizes: Iterable[int], spread: Callable[[int, float], float], rng: Random
) -> "array[int]":
    """Log-normal durations, whole seconds of at least 1."""
    durations_s = array("q")
    for at, size in enumerate(sizes):
        mu, sigma = shape.fits.get(size, (shape.mu, shape.sigma))
        exponent = mu + sigma * spread(at, _NORMAL.inv_cdf(max(rng.random(), 2.0**-53)))
        durations_s.append(max(1, round(min(shape.max_s, math.exp(min(exponent, 700.0))))))
    return durations_s


def draw_gaps(jobs: int, gap_s: float, cv: float, rng: Random) -> "array[float]":
    """Times since the previous submission, seconds; the first is 0.

    Hyper-exponential with two balanced phases, which meets mean and CV at usable sample sizes, where a
    log-normal of the same CV needs millions of jobs: the short phase has probability
    p = (1 + sqrt((c2 - 1) / (c2 + 1))) / 2 for c2 = cv**2, and both contribute half of the mean
    (Allen, Probability, Statistics and Queueing Theory).
    """
    square = cv**2
    short = (1.0 + math.sqrt((square - 1.0) / (square + 1.0))) / 2.0
    gaps_s = array("d", [0.0])
    for _ in range(jobs - 1):
        phase = short if rng.random() < short else 1.0 - short
        gaps_s.append(exponential(rng, gap_s / (2.0 * phase)))
    return gaps_s


def to_load(
    gaps_s: "array[float]", work: float, load: float | None, cluster_gpus: int | None
) -> "array[float]":
    """Times between submissions, scaled so that jobs ask for a share of the GPU time until the last.

    Args:
        gaps_s: The times, seconds.
        work: GPU-seconds that the jobs ask for.
        load: The share; None leaves the times.
        cluster_gpus: The cluster's GPUs, if a share is given.

    Raises:
        InputError: One of load and GPUs is given alone, or all jobs come at once.
    """
    if (load is None) != (cluster_gpus is None):
        raise InputError("load and cluster_gpus go together: the load is a share of the cluster's GPU time")
    if load is None or cluster_gpus is None:
        return gaps_s
    if not sum(gaps_s):
        raise InputError("load needs at least 2 jobs and gaps between submissions")
    scale = work / (load * cluster_gpus * sum(gaps_s))
    return array("d", (gap_s * scale for gap_s in gaps_s))
