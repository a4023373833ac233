"""What ONES knows of each job: its sizes and limits, its epochs, and how much of it may be left."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import floor, inf
from typing import Any

import numpy as np

from dally.jobs.job import Job, JobKind
from dally.policies.common.elastic_speeds import Speeds
from dally.policies.common.sizing import held_gpus
from dally.policies.ones.beta import ProgressPredictor
from dally.policies.ones.job_arrays import JobArrays
from dally.policies.ones.progress import EPOCHS_DONE, FEATURES, LONGEST_EPOCH_S, Training
from dally.profiles.costs import CostModel
from dally.state import JobState

ASKED_FACTOR = 4
"""The most GPUs of an elastic job, over those it asked for."""

EPOCHS_TO_GUESS = 2
"""Epochs of a job that must be done before its progress is guessed and it may be stopped."""


@dataclass(frozen=True, slots=True)
class SizeRange:
    """The numbers of GPUs that a job can run on: from `least` to `most` by steps of `step`."""

    least: int
    most: int
    step: int

    @classmethod
    def of(cls, job: Job, costs: CostModel) -> "SizeRange":
        """The range of a job; one that is not elastic has one size, that of one copy if it is forked."""
        step = job.gang.per_machine or 1
        if job.kind is not JobKind.ELASTIC:
            return cls(job.gpus, job.gpus, step)
        most = min(costs.most_gpus(job), ASKED_FACTOR * job.gpus) // step * step
        return cls(-(-job.least_gpus // step) * step, most, step)


@dataclass(slots=True)
class SizeLimits:
    """How many GPUs a job may have for now.

    Source: Bian et al., ONES, SC 2021; when limits are worked out anew is a reconstruction.

    Attributes:
        number: Identifies the job in candidates.
        limit: R, the GPUs that it may have as long as other jobs want some.
        largest: max_size, the GPUs that it may have if they are left over.
        scheduled: How much of it was done when it was last started or changed, 0 to 1.
    """

    number: int
    limit: int
    largest: int
    scheduled: float = 0.0

    def grow(self, sizes: SizeRange, held: int) -> None:
        """Double the limit if the job runs on so many GPUs."""
        if held >= self.largest:
            self.largest = min(2 * self.largest, sizes.most)
        self.limit = self.largest

    def shrink(self, sizes: SizeRange, held: int, run_s: float, median_s: float, strength: float) -> None:
        """Lower the limit of a job that has run for longer than the median job.

        With c GPUs held, running time t and median T it is 2 c / (sigma t / T + 1), made even.

        Args:
            sizes: What it can run on.
            held: Its GPUs.
            run_s: How long it has run, seconds.
            median_s: How long the running elastic jobs have, seconds.
            strength: sigma.
        """
        if run_s > median_s > 0:
            less = max(1, int(2 * held / (strength * run_s / median_s + 1)))
            self.limit = max(sizes.least, min(self.limit, less + less % 2))

    def halve(self, sizes: SizeRange) -> None:
        """Halve the limit of a job that was stopped."""
        self.limit = max(sizes.least, self.limit // 2)


class JobRegistry:
    """Sizes, limits, epochs and guessed progress of all jobs that have not ended.

    Args:
        costs: Predicts speeds, and says how models learn.
        log_size: False: the predictor is asked with the raw size of an epoch.
        guesses: Whether lengths of jobs are guessed.
    """

    def __init__(self, costs: CostModel, log_size: bool = True, guesses: bool = False) -> None:
        self._costs, self._log_size = costs, log_size
        self._longest_epoch_s = LONGEST_EPOCH_S if guesses else inf
        self._speeds = Speeds(costs)
        self._predictor = ProgressPredictor(FEATURES, EPOCHS_DONE, seed=0)
        self._limits: dict[str, SizeLimits] = {}
        self._traits: dict[str, tuple[SizeRange, Training]] = {}
        self._arrived = 0
        self._restored: set[str] = set()

    def add(self, job: JobState, first_size: str) -> None:
        """Register a job; it may begin with up to its fewest GPUs, those asked for, or its most."""
        sizes = SizeRange.of(job.job, self._costs)
        self._traits[job.job_id] = sizes, Training.of(job, self._costs, self._longest_epoch_s)
        if job.job_id not in self._limits:  # else `restore` knew it
            size = {"least": sizes.least, "asked": min(job.job.gpus, sizes.most), "most": sizes.most}
            self._limits[job.job_id] = SizeLimits(self._arrived, size[first_size], size[first_size])
            self._arrived += 1

    def renew(self, job: JobState, now: float) -> None:
        """Take over what a job reported of its training; it may have done less than was believed."""
        self._traits[job.job_id] = self.sizes(job), Training.of(job, self._costs, self._longest_epoch_s)
        limits = self._limits[job.job_id]
        limits.scheduled = min(limits.scheduled, job.done(now))

    def remove(self, job: JobState) -> None:
        """Forget a job."""
        del self._limits[job.job_id], self._traits[job.job_id]

    def start(self, job: JobState, now: float) -> None:
        """Count the next epoch of a job from here: it starts, or goes on on other GPUs."""
        self._limits[job.job_id].scheduled = job.done(now)

    def resume(self, job: JobState, now: float) -> None:
        """Register a job that ran before a restart; if it was known then, its next epoch counts on."""
        if job.job_id not in self._restored:
            self.start(job, now)

    def stop(self, job: JobState) -> None:
        """Halve the limit of a job that lost its GPUs."""
        self._limits[job.job_id].halve(self.sizes(job))

    def end(self, job: JobState) -> None:
        """Learn from a job that has ended, and forget it."""
        self._predictor.learn(self.training(job).history())
        self.remove(job)

    def sizes(self, job: JobState) -> SizeRange:
        """The numbers of GPUs that a job can run on."""
        return self._traits[job.job_id][0]

    def training(self, job: JobState) -> Training:
        """What a job's training consists of."""
        return self._traits[job.job_id][1]

    def finished_epoch(self, job: JobState, now: float) -> bool:
        """Whether a running job finished an epoch since it was last started or changed."""
        epochs_done = self.training(job).epochs_done
        return floor(epochs_done(job.done(now))) > floor(epochs_done(self._limits[job.job_id].scheduled))

    def next_epoch_s(self, running: Sequence[JobState], now: float) -> float:
        """When the first of the running jobs will have finished another epoch, if its speed stays."""
        ends = [
            job.done_s((floor(training.epochs_done(job.done(now))) + 1) / training.epochs)
            for job, training in ((job, self.training(job)) for job in running)
        ]
        return max(now, min(ends, default=inf))

    def grow(self, running: Collection[JobState], now: float, two_epochs: str) -> list[JobState]:
        """Work out the limits of running jobs anew: double those that were reached.

        Args:
            running: The elastic ones.
            now: The moment, seconds.
            two_epochs: Which limits wait for two epochs: "none", "life" for two in all, "stretch" for two
                since the job was last started or changed.

        Returns:
            The jobs with limits that did not wait.
        """
        grown = []
        for job in running:
            limits = self._limits[job.job_id]
            since = limits.scheduled if two_epochs == "stretch" else 0.0
            if two_epochs == "none" or self._epochs_done(job, now, since) >= EPOCHS_TO_GUESS:
                limits.grow(self.sizes(job), held_gpus(job))
                grown.append(job)
        return grown

    def shrink(self, jobs: Iterable[JobState], median_s: float, now: float, strength: float) -> None:
        """Lower the limits of those of the running jobs that ran longer than the median."""
        for job in jobs:
            self._limits[job.job_id].shrink(
                self.sizes(job), held_gpus(job), job.run_s(now), median_s, strength
            )

    def arrays(
        self, jobs: Sequence[JobState], capacity: int, now: float, rng: np.random.Generator
    ) -> JobArrays:
        """These jobs as arrays, with a draw of the progress of each that two epochs are done of.

        Args:
            jobs: Running and waiting ones.
            capacity: GPUs that they share.
            now: The moment, seconds.
            rng: Of the draws.
        """
        limits, sizes = [self._limits[job.job_id] for job in jobs], [self.sizes(job) for job in jobs]
        rows = [self._speeds.row(job, now) for job in jobs]
        old = np.array(
            [job.first_start_s < inf and self._epochs_done(job, now) >= EPOCHS_TO_GUESS for job in jobs]
        )
        left_s = np.zeros(len(jobs))
        if old.any():
            some = [jobs[row] for row in np.flatnonzero(old).tolist()]
            inputs = np.array([self.training(job).features(job.done(now), self._log_size) for job in some])
            work_s = np.array([job.work_s(now) for job in some])
            left_s[old] = work_s * (1 / self._predictor.sample(inputs, rng) - 1)
        return JobArrays(
            capacity=capacity,
            numbers=np.array([each.number for each in limits]),
            least=np.array([each.least for each in sizes]),
            step=np.array([each.step for each in sizes]),
            limit=np.array([each.limit for each in limits]),
            most=np.array([each.largest for each in limits]),
            held=np.array([held_gpus(job) for job in jobs]),
            resize_s=np.array([self._costs.resize_s(job.job) for job in jobs]),
            restart_s=np.array([self._costs.restart_s(job.job) for job in jobs]),
            new=np.array([job.first_start_s == inf for job in jobs]),
            shrinks=np.array([each.least < each.most for each in sizes]),
            old=old,
            left_s=left_s,
            speeds=np.concatenate(rows),
            offsets=np.cumsum([0, *map(len, rows[:-1])]),
        )

    def snapshot(self) -> dict[str, Any]:
        """What is known of jobs and what ended ones have taught, as plain data."""
        return {
            "arrived": self._arrived,
            "jobs": {job_id: asdict(limits) for job_id, limits in self._limits.items()},
            "predictor": self._predictor.snapshot(),
        }

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave."""
        self._arrived = learnt["arrived"]
        self._limits = {job_id: SizeLimits(**limits) for job_id, limits in learnt["jobs"].items()}
        self._restored = set(self._limits)
        self._predictor.restore(learnt["predictor"])

    def _epochs_done(self, job: JobState, now: float, since: float = 0.0) -> float:
        return self.training(job).epochs_done(job.done(now) - since)
