"""How far a job's training is, as ONES sees it: epochs, samples and the metric reported so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf, log

from dally.profiles.costs import CostModel
from dally.state import JobState

EPOCHS = 10
"""Epochs of a job of whose model no learning is known, and that reports none."""
LONGEST_EPOCH_S = 120.0
"""Where lengths are guessed an epoch counts as done after so many ideal seconds at the latest.

Guesses are time limits, often of days, and a job that begins on one GPU of eight would not be looked at again
for eight tenths of its limit. Nor would one that reports an epoch which is longer than all of its training.
"""
MOST_ROWS = 10
"""Rows that a finished job leaves to learn from at most."""
FEATURES = 5
EPOCHS_DONE = 2
"""Which of the features is Y / D."""


@dataclass(frozen=True, slots=True)
class Training:
    """What a whole training consists of; the scheduler is not shown its end, only how far it is.

    Attributes:
        epochs: Passes over the data until it ends.
        epoch_size: Samples of one, D; ideal seconds where no learning is known.
        reported_at: After how many epochs each metric is reported, ascending.
        metric: What is reported then; empty where no learning is known.
    """

    epochs: float
    epoch_size: float
    reported_at: Sequence[float]
    metric: Sequence[float]

    @classmethod
    def of(cls, job: JobState, costs: CostModel, longest_epoch_s: float = inf) -> "Training":
        """The training of a job as it reports it, else as its model's profile has it, else by its length.

        A job with epochs of its own learns in each as its model does, and ends sooner or later.
        """
        progress, asked, learning = job.progress, job.job, costs.curve(job.job)
        if progress is not None and progress.rate and progress.last.epoch:
            whole = progress.last.total or progress.rate * job.whole_s
            size = min(progress.last.epoch, progress.rate * longest_epoch_s)
            return cls(whole / size, size, (), ())
        if learning is None:
            epoch_s = min(job.expected_s / EPOCHS, longest_epoch_s)
            return cls(asked.epochs or job.whole_s / epoch_s, asked.epoch_samples or epoch_s, (), ())
        reported_at = [done * learning.epochs for done in learning.done]
        size = asked.epoch_samples or learning.samples / learning.epochs
        return cls(asked.epochs or learning.epochs, size, reported_at, learning.metric)

    def epochs_done(self, done: float) -> float:
        """Y / D when so much of the job, 0 to 1, is done; a hair more, so that rounding hides no epoch."""
        return done * self.epochs + 1e-9

    def features(self, done: float, log_size: bool = True) -> list[float]:
        """Log D, first metric, Y / D, 1 - metric / first metric, metric; 0 for what is not reported yet.

        The publication has the loss for the first and fourth; profiles have one metric and no loss.

        Args:
            done: How much of it is done, 0 to 1.
            log_size: False: D itself in place of its logarithm.
        """
        size = log(self.epoch_size) if log_size else self.epoch_size
        reported = sum(epochs <= self.epochs_done(done) for epochs in self.reported_at)
        if reported == 0:
            return [size, 0.0, self.epochs_done(done), 0.0, 0.0]
        start, last = self.metric[0], self.metric[reported - 1]
        return [size, start, self.epochs_done(done), 1 - last / start if start else 0.0, last]

    def history(self) -> list[tuple[list[float], float]]:
        """Features and the part done at some epochs of a job that has ended: what can be learnt from it."""
        rows = min(MOST_ROWS, floor(self.epochs) - 1)
        parts = [(row + 1) / (rows + 1) for row in range(rows)]
        return [(self.features(part), part) for part in parts]
