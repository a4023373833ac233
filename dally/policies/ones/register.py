"""What ONES knows of each job, and the roll of those among whom a step shares out GPUs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import floor, inf
from typing import Any

import numpy as np

from dally.policies.common.elastic_speeds import Speeds
from dally.policies.ones.beta import Predictor
from dally.policies.ones.limits import SizeLimits, Sizes
from dally.policies.ones.progress import (
    EPOCHS_DONE,
    FEATURES,
    LONGEST_EPOCH_S,
    Training,
    finished_epoch,
)
from dally.policies.ones.roll import Bools, Floats, Roll
from dally.policies.ones.seats import held_gpus
from dally.profiles.costs import CostModel
from dally.state import JobState

EPOCHS_TO_GUESS = 2
"""Epochs of a job that must be done before its progress is guessed and it may be stopped."""


class Register:
    """Sizes, limits, epochs and guessed progress of all jobs that have not ended.

    Args:
        costs: Predicts speeds, and says how models learn.
        seed: Of the predictor's first weights.
        log_size: False: the predictor is asked with the raw size of an epoch.
        guesses: Whether lengths of jobs are guessed.
    """

    def __init__(self, costs: CostModel, seed: int, log_size: bool = True, guesses: bool = False) -> None:
        self._costs, self._log_size = costs, log_size
        self._longest_epoch_s = LONGEST_EPOCH_S if guesses else inf
        self._speeds = Speeds(costs)
        self._predictor = Predictor(FEATURES, EPOCHS_DONE, seed)
        self._known: dict[str, SizeLimits] = {}
        self._traits: dict[str, tuple[Sizes, Training]] = {}
        self._arrived = 0
        self._restored: set[str] = set()

    def enter(self, job: JobState, first_size: str) -> None:
        """A job arrives; it may begin with up to its fewest GPUs, those asked for, or its most."""
        sizes = Sizes.of(job.job, self._costs)
        self._traits[job.job_id] = sizes, Training.of(job, self._costs, self._longest_epoch_s)
        if job.job_id not in self._known:
            size = {"least": sizes.least, "asked": min(job.job.gpus, sizes.most), "most": sizes.most}[
                first_size
            ]
            self._known[job.job_id] = SizeLimits(self._arrived, size, size)
            self._arrived += 1

    def renew(self, job: JobState, now: float) -> None:
        """It has reported what its training consists of; it may have done less than was believed."""
        self._traits[job.job_id] = self.sizes(job), Training.of(job, self._costs, self._longest_epoch_s)
        known = self._known[job.job_id]
        known.scheduled = min(known.scheduled, job.done(now))

    def leave(self, job: JobState) -> None:
        """It is gone."""
        del self._known[job.job_id], self._traits[job.job_id]

    def start(self, job: JobState, now: float) -> None:
        """It runs, or goes on on other GPUs; its next epoch counts from here."""
        self._known[job.job_id].scheduled = job.done(now)

    def resume(self, job: JobState, now: float) -> None:
        """It ran before a restart; if it was known then, its next epoch counts from where it did."""
        if job.job_id not in self._restored:
            self.start(job, now)

    def stop(self, job: JobState) -> None:
        """It lost its GPUs, and half of its limit."""
        self._known[job.job_id].halve(self.sizes(job))

    def end(self, job: JobState) -> None:
        """It has ended and teaches how progress goes."""
        self._predictor.learn(self.training(job).history())
        self.leave(job)

    def sizes(self, job: JobState) -> Sizes:
        """What a job can run on."""
        return self._traits[job.job_id][0]

    def training(self, job: JobState) -> Training:
        """What its training consists of."""
        return self._traits[job.job_id][1]

    def rested(self, job: JobState, now: float) -> bool:
        """Whether a running job finished an epoch since it was last started or changed."""
        return finished_epoch(self.training(job), self._known[job.job_id].scheduled, job.done(now))

    def next_epoch_s(self, running: Sequence[JobState], now: float) -> float:
        """When the first of the running jobs will have finished another epoch, if its speed stays."""
        ends = [
            job.done_s((floor(training.epochs_done(job.done(now))) + 1) / training.epochs)
            for job, training in ((job, self.training(job)) for job in running)
        ]
        return max(now, min(ends, default=inf))

    def scale(self, running: Collection[JobState], now: float, two_epochs: str) -> list[JobState]:
        """Work out the limits of running jobs anew: double what they reached.

        Args:
            running: The elastic ones.
            now: The moment, seconds.
            two_epochs: Whose limits wait for two epochs: "none", "life" for two in all, "stretch" for two
                since the job was last started or changed.

        Returns:
            Those whose limits did not wait.
        """
        scaled = []
        for job in running:
            known = self._known[job.job_id]
            since = known.scheduled if two_epochs == "stretch" else 0.0
            if two_epochs == "none" or self._epochs_done(job, now, since) >= EPOCHS_TO_GUESS:
                known.grow(self.sizes(job), held_gpus(job))
                scaled.append(job)
        return scaled

    def shrink(self, jobs: Iterable[JobState], median_s: float, now: float, strength: float) -> None:
        """Lessen the limits of those of some running jobs that ran longer than the median, by sigma."""
        for job in jobs:
            known = self._known[job.job_id]
            known.shrink(self.sizes(job), held_gpus(job), job.run_s(now), median_s, strength)

    def roll(self, jobs: Sequence[JobState], capacity: int, now: float, rng: np.random.Generator) -> Roll:
        """These jobs as arrays, with a draw of the progress of each that is guessed of.

        Args:
            jobs: Running and waiting ones.
            capacity: GPUs that they share.
            now: The moment, seconds.
            rng: Of the draws.
        """
        known, sizes = [self._known[job.job_id] for job in jobs], [self.sizes(job) for job in jobs]
        rows = [self._speeds.row(job, now) for job in jobs]
        old = np.array([self._is_old(job, now) for job in jobs])
        return Roll(
            capacity=capacity,
            numbers=np.array([each.number for each in known]),
            least=np.array([each.least for each in sizes]),
            step=np.array([each.step for each in sizes]),
            limit=np.array([each.limit for each in known]),
            most=np.array([each.largest for each in known]),
            held=np.array([held_gpus(job) for job in jobs]),
            resize_s=np.array([self._costs.resize_s(job.job) for job in jobs]),
            restart_s=np.array([self._costs.restart_s(job.job) for job in jobs]),
            new=np.array([job.first_start_s == inf for job in jobs]),
            shrinks=np.array([each.least < each.most for each in sizes]),
            old=old,
            left_s=self._left_s(jobs, old, now, rng),
            speeds=np.concatenate(rows),
            offsets=np.cumsum([0, *map(len, rows[:-1])]),
        )

    def snapshot(self) -> dict[str, Any]:
        """What is known of jobs and what ended ones have taught, as plain data."""
        return {
            "arrived": self._arrived,
            "jobs": {job_id: known.plain() for job_id, known in self._known.items()},
            "predictor": self._predictor.snapshot(),
        }

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave."""
        self._arrived = learnt["arrived"]
        self._known = {job_id: SizeLimits(**known) for job_id, known in learnt["jobs"].items()}
        self._restored = set(self._known)
        self._predictor.restore(learnt["predictor"])

    def _is_old(self, job: JobState, now: float) -> bool:
        return job.first_start_s < inf and self._epochs_done(job, now) >= EPOCHS_TO_GUESS

    def _epochs_done(self, job: JobState, now: float, since: float = 0.0) -> float:
        return self.training(job).epochs_done(job.done(now) - since)

    def _left_s(self, jobs: Sequence[JobState], old: Bools, now: float, rng: np.random.Generator) -> Floats:
        """(jobs,) Y (1 / rho - 1) with one draw of rho each, ideal seconds; 0 unless two epochs are done."""
        left_s, rows = np.zeros(len(jobs)), np.flatnonzero(old).tolist()
        if rows:
            some = [jobs[row] for row in rows]
            inputs = np.array([self.training(job).features(job.done(now), self._log_size) for job in some])
            work_s = np.array([job.work_s(now) for job in some])
            left_s[rows] = work_s * (1 / self._predictor.sample(inputs, rng) - 1)
        return left_s
