"""Corrects predicted iterations by the step times of running jobs, and says how sure that is.

What a user's jobs tell counts for his jobs, and for those of others as far as other users' jobs agree.
The arithmetic, and what is assumed, is in `dally.profiles.step_factors`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import exp, log, sqrt
from typing import Any

from dally.profiles.iteration import Prediction
from dally.profiles.step_factors import (
    FREE_SPREAD,
    FactorPool,
    JobSums,
    PoolName,
    Prior,
    agreed,
    pool_of_itself,
)
from dally.words import plural, share

SCHEMA = 2
"""In 1 all users' jobs taught one factor."""

RUN_SPREAD = 0.05
"""Standard deviation (of a logarithm, as all here) of a job's step times in the same place, run by run."""

SHARED_SPREAD = 0.3
"""That comes to it where others shared the job's links: how much they took, nobody knows."""

WORTH_TELLING = 0.02
"""Factors are believed anew once one has changed by so much; what was worked out is then forgotten."""

OUTLIER = 3.0
"""A step time that is off by more standard deviations counts less, as one at that distance would."""

SLOWER = 0.1
"""Nobody is told of a job that is slower by less."""

SHORTEST_STEP_S, LONGEST_STEP_S = 1e-5, 1e5
"""No training has shorter or longer steps; a job that tells of such has erred, or means harm."""

MOST_POOLS = 512
MOST_JOBS = 5_000
_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class StepCheck:
    """A job's step time against what was expected of its placement.

    Attributes:
        step_s: Seconds of a step, as the job told.
        expected_s: As its placement explains; None where nothing predicts it.
        sigma: Standard deviation of the logarithm of what was to be expected.
        level: Of the placement.
        shared: Whether others shared the job's links.
        told: Whether somebody was told that it is slower.
    """

    step_s: float
    expected_s: float | None
    sigma: float
    level: int
    shared: bool
    told: bool = False

    @property
    def slower(self) -> bool:
        """Whether it is slower than its placement explains."""
        if self.expected_s is None:
            return False
        off = log(self.step_s / self.expected_s)
        return off > max(OUTLIER * self.sigma, log(1 + SLOWER))

    @property
    def words(self) -> str:
        """A step against what was expected of it."""
        took = f"steps take {self.step_s:.3g} s"
        if self.expected_s is None:
            return took
        beside = "; others share its links" if self.shared else ""
        expected = f"{self.expected_s:.3g} s were to be expected there, give or take {percent(self.sigma)}"
        return f"{took}; {expected}{beside}"


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed of one pool's factors.

    Attributes:
        model: The model, or a job that names none.
        gpu_type: Its GPU type; without a profile, how many GPUs of any type, such as `8 GPUs`.
        user: Whose jobs; None for what all users' jobs agree on.
        pace: c, 1 as predicted.
        pace_sigma: Standard deviation of its logarithm.
        waiting: w at each level.
        waiting_sigma: Of its logarithm.
        runs, jobs: So many observations of so many jobs.
        predicted: Whether anything predicts c; without a profile it says how long a step takes, and no more.
    """

    model: str
    gpu_type: str
    user: str | None
    pace: float
    pace_sigma: float
    waiting: tuple[float, ...]
    waiting_sigma: tuple[float, ...]
    runs: int
    jobs: int
    predicted: bool


class LearntCosts:
    """The factors of all pools, and what each running job has told.

    Args:
        levels: Of the cluster.

    Attributes:
        revision: Grows with each change of what is believed.
        given_up: How many pools that were believed are so no more: what they corrected costs as predicted.
        users: Those whose jobs have told anything.
        checks: Of jobs that told: their step time now against what was expected.
        is_saved: Whether nothing has happened since somebody who keeps snapshots set this.
    """

    def __init__(self, levels: int) -> None:
        self._levels = levels
        self._pools: dict[PoolName, FactorPool] = {}
        self._jobs: dict[str, JobSums] = {}
        self._believed: dict[PoolName, tuple[float, tuple[float, ...]]] = {}
        self.users: set[str | None] = set()
        self.checks: dict[str, StepCheck] = {}
        self.revision = self.given_up = 0
        self.is_saved = True

    def corrected(self, prediction: Prediction, name: PoolName, level: int) -> Prediction:
        """An iteration as it is believed to be."""
        pace, waits = self._factors(name)
        compute_s = pace * (prediction.iteration_s - prediction.exposed_s)
        exposed_s = pace * waits[level] * prediction.exposed_s
        return replace(prediction, iteration_s=compute_s + exposed_s, exposed_s=exposed_s)

    def pace(self, name: PoolName) -> float:
        """The factor of what GPUs compute."""
        return self._factors(name)[0]

    def waiting(self, name: PoolName, level: int) -> float:
        """The factor of waiting at a level."""
        return self._factors(name)[1][level]

    def _factors(self, name: PoolName) -> tuple[float, tuple[float, ...]]:
        """As they are believed for a user's jobs: by his own, else as users agree, else as predicted."""
        own = self._believed.get(name)
        return own or self._believed.get((*name[:2], None)) or (1.0, (1.0,) * self._levels)

    def observe(
        self,
        job_id: str,
        since_s: float,
        step_s: float,
        prediction: Prediction,
        name: PoolName,
        prior: Prior,
        level: int,
        shared: bool,
        gpu_type: str = "",
    ) -> bool:
        """A job's steps take so long in its present run; counts once in a run, later it is only checked.

        Args:
            job_id: The job.
            since_s: When the run began.
            step_s: Seconds of a step, the median of many.
            prediction: Uncorrected.
            name: The pool.
            prior: Of a pool that is new, and of what is peculiar to the job.
            level: Of the placement.
            shared: Whether others share the job's links.
            gpu_type: Its GPU type, where the pool is for several; else empty.

        Returns:
            Whether something else is believed now.
        """
        self.is_saved, given_up = False, self.given_up
        model, kind, user = name
        is_new = user not in self.users
        self.users.add(user)
        pool = self._pools.pop(name, None)
        if pool is None:
            pool = FactorPool(self._levels, prior, gpu_type)
            pool.start_from(agreed([*self._voices(model, kind).values()], 1 + self._levels))
        pool.add_gpu_type(gpu_type)
        self._pools[name] = pool  # now the last to be forgotten
        job = self._jobs.get(job_id)
        if job is not None and job.pool != name:
            self.left(job_id)
            job = None
        job = job or JobSums(name, prior.job)
        fresh = since_s != job.since_s
        if fresh:
            self.checks[job_id] = self._count(pool, job, step_s, prediction, level, shared, gpu_type)
            job.since_s = since_s
            self._jobs[job_id] = job
            self._forget()
            changed = self._agree(model, kind) or self.given_up != given_up or is_new
            self.revision += changed
            return changed
        before = self.checks.get(job_id)
        if before is not None:
            self.checks[job_id] = replace(before, step_s=step_s, shared=shared)
        return False

    def _count(
        self,
        pool: FactorPool,
        job: JobSums,
        step_s: float,
        prediction: Prediction,
        level: int,
        shared: bool,
        gpu_type: str,
    ) -> StepCheck:
        """Count one more run of a job, linearized where it comes to lie; it against what was expected."""
        variance, outside = RUN_SPREAD**2 + (SHARED_SPREAD**2 if shared else 0.0), 1.0
        pool.add(job, -1)
        for turn in range(_ROUNDS):
            pace, waiting = pool.log_factors(level, gpu_type)
            share, expected_s = _share(prediction, exp(pace), exp(waiting))
            row = pool.row(share, level, gpu_type)
            off = log(step_s / expected_s)
            if turn == 0:  # before the run itself has a say in what is expected
                sigma = sqrt(pool.variance(row) + job.spread**2 + variance)
                outside = max(1.0, abs(off) / (OUTLIER * sigma))
                expected = expected_s if pool.prior.pace < FREE_SPREAD else None
                check = StepCheck(step_s, expected, sigma, level, shared)
            z = off + pace + share * waiting
            trial = replace(job, rows=[*job.rows], squares=[[*line] for line in job.squares])
            trial.products = [*job.products]
            trial.add(row, z, variance + (outside**2 - 1) * (job.spread**2 + variance))
            trial.runs += 1
            pool.add(trial)
            pool.solve()
            if turn < _ROUNDS - 1:
                pool.add(trial, -1)
        job.runs, job.weight, job.seen = trial.runs, trial.weight, trial.seen
        job.rows, job.squares, job.products = trial.rows, trial.squares, trial.products
        return check

    def _voices(self, model: str, kind: str) -> dict[str | None, list[float]]:
        """What the jobs of each user say."""
        return {name[2]: pool.voice for name, pool in self._pools.items() if name[:2] == (model, kind)}

    def _start_all(self, model: str, kind: str) -> list[float]:
        """Have each user's factors start from what the others agree on; what they all agree on."""
        voices, size = self._voices(model, kind), 1 + self._levels
        for user in voices:
            others = [voice for other, voice in voices.items() if other != user]
            self._pools[model, kind, user].start_from(agreed(others, size))
        return agreed([*voices.values()], size)

    def _agree(self, model: str, kind: str) -> bool:
        """Believe what the jobs of users say now, if that is not nearly what is believed."""
        pace, *waits = self._start_all(model, kind)
        changed = self._believe((model, kind, None), (exp(pace), tuple(map(exp, waits))))
        for name, pool in self._pools.items():
            if name[:2] == (model, kind):
                changed |= self._believe(name, pool.factors())
        return changed

    def _believe(self, name: PoolName, found: tuple[float, tuple[float, ...]]) -> bool:
        known = self._factors(name)
        pairs = zip((found[0], *found[1]), (known[0], *known[1]), strict=True)
        if all(abs(log(now / before)) < WORTH_TELLING for now, before in pairs):
            return False
        self._believed[name] = found
        return True

    def left(self, job_id: str) -> None:
        """A job is gone; what it told stays, unless it told that of itself alone."""
        told = self._jobs.pop(job_id, None)
        self.checks.pop(job_id, None)
        if told is not None and told.pool[0] == pool_of_itself(job_id):
            self._give_up(told.pool)
        self.is_saved = False

    def _forget(self) -> None:
        """Keep to a bounded size: of the user who has most, what was observed longest ago goes."""
        while len(self._pools) > MOST_POOLS:
            counts = Counter(user for _, _, user in self._pools)
            name = next(name for name in self._pools if counts[name[2]] == max(counts.values()))
            self._give_up(name)
            for job_id in [job_id for job_id, job in self._jobs.items() if job.pool == name]:
                self.left(job_id)
        while len(self._jobs) > MOST_JOBS:
            self.left(next(iter(self._jobs)))

    def _give_up(self, name: PoolName) -> None:
        self._pools.pop(name, None)
        self.given_up += self._believed.pop(name, None) is not None
        if any(other[:2] == name[:2] for other in self._pools):
            self.given_up += self._agree(*name[:2])
        else:
            self._believed.pop((*name[:2], None), None)

    def has_told(self, job_id: str) -> bool:
        """Whether a job has told of its steps, and has not left."""
        return job_id in self._jobs

    def newly_slower(self, job_id: str) -> StepCheck | None:
        """What to tell of a job that is slower than its placement explains; None if not, or it was told."""
        check = self.checks.get(job_id)
        if check is None or check.told or not check.slower:
            return None
        self.checks[job_id] = replace(check, told=True)
        self.is_saved = False
        return check

    def beliefs(self) -> list[Belief]:
        """What is believed of each user's jobs, those last observed last, then on what users agree."""
        agreed_on = [name for name in self._believed if name[2] is None]
        return [belief for name in (*self._pools, *agreed_on) if (belief := self.belief(name))]

    def belief(self, name: PoolName) -> Belief | None:
        """What is believed of one pool; None if nothing was observed, or users do not agree."""
        if name in self._pools:
            return self._belief(name, self._pools[name])
        common = (*name[:2], None)
        if common not in self._believed:
            return None
        pools = [pool for other, pool in self._pools.items() if other[:2] == name[:2]]
        vague = FactorPool(self._levels, pools[0].prior)
        vague.runs, vague.jobs = sum(pool.runs for pool in pools), sum(pool.jobs for pool in pools)
        pace, waiting = self._believed[common]
        return replace(self._belief(common, vague), pace=pace, waiting=waiting)

    def _belief(self, name: PoolName, pool: FactorPool) -> Belief:
        pace, waits = pool.factors()
        sigmas = tuple(pool.waiting_sigma(level) for level in range(self._levels))
        pace_sigma = sqrt(pool.covariance[0][0])
        predicted = pool.prior.pace < FREE_SPREAD
        return Belief(*name, pace, pace_sigma, waits, sigmas, pool.runs, pool.jobs, predicted)

    def snapshot(self) -> dict[str, Any]:
        """All of it, as plain data."""
        return {
            "schema": SCHEMA,
            "levels": self._levels,
            "revision": self.revision,
            "pools": [
                [*name, asdict(pool.prior), pool.precision, pool.shift, pool.jobs, pool.runs, pool.gpu_types]
                for name, pool in self._pools.items()
            ],
            "believed": [[*name, *factors] for name, factors in self._believed.items()],
            "jobs": {job_id: asdict(job) for job_id, job in self._jobs.items()},
            "checks": {job_id: asdict(check) for job_id, check in self.checks.items()},
        }

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave; of a cluster with other levels, nothing.

        Raises:
            ArithmeticError, LookupError, TypeError, ValueError: It is something else.
        """
        if learnt["schema"] != SCHEMA:
            raise ValueError(f"schema is {learnt['schema']!r}, this version reads {SCHEMA}")
        if learnt["levels"] != self._levels:
            raise ValueError(
                f"it is of a cluster with {plural(learnt['levels'], 'level')}, this one has {self._levels}"
            )
        pools = {}
        for model, gpu_type, user, prior, precision, shift, jobs, runs, gpu_types in learnt["pools"]:
            pool = pools[model, gpu_type, user] = FactorPool(self._levels, Prior(**prior))
            pool.precision, pool.shift, pool.jobs, pool.runs = precision, shift, jobs, runs
            pool.gpu_types = gpu_types
            if len(shift) != 1 + self._levels + len(pool.gpu_types):
                raise ValueError(f"the factors of {model} are {len(shift)}, for other levels and GPU types")
            pool.solve()
        jobs_of = {
            job_id: JobSums(**{**told, "pool": tuple(told["pool"])})
            for job_id, told in learnt["jobs"].items()
        }
        checks = {job_id: StepCheck(**check) for job_id, check in learnt["checks"].items()}
        believed = {(*name, user): (pace, tuple(waits)) for *name, user, pace, waits in learnt["believed"]}
        self._pools, self._jobs, self._believed, self.checks = pools, jobs_of, believed, checks
        self.users = {user for _, _, user in pools}
        for model, kind in {name[:2] for name in pools}:
            self._start_all(model, kind)
        self.revision = learnt["revision"]


def percent(sigma: float) -> str:
    """A standard deviation of a logarithm, as people say it: the way up."""
    return share(exp(sigma) - 1)


def _share(prediction: Prediction, pace: float, waiting: float) -> tuple[float, float]:
    """The share of an iteration that waits, and how long it lasts, seconds, with such factors."""
    compute_s = prediction.iteration_s - prediction.exposed_s
    waits_s = waiting * prediction.exposed_s
    return waits_s / (compute_s + waits_s), pace * (compute_s + waits_s)
