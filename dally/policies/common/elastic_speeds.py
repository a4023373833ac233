"""How fast jobs would run on other numbers of GPUs, as tables that policies search in."""

import numpy as np
from numpy.typing import NDArray

from dally.jobs.job import Job
from dally.policies.base import Cache
from dally.profiles.costs import CostModel
from dally.profiles.goodput import phase
from dally.state import JobState

Floats = NDArray[np.float64]

MOST_REMEMBERED = 20_000
"""Rows that are remembered at most."""


class Speeds:
    """Tables of speeds, remembered by what they depend on.

    Args:
        costs: Predicts them.
    """

    def __init__(self, costs: CostModel) -> None:
        self._costs = costs
        self._rows = Cache[tuple[object, ...], Floats]()

    def row(self, job: JobState, now: float) -> Floats:
        """(most + 1,) the speed on 0, 1, ... GPUs at their best placement on the idle cluster.

        In ideal seconds a second, as `JobState.speed`; 0 below the fewest that it runs on, and where they do
        not come out even with those that it wants on each machine. `most` is what it can use and get.
        """
        asked = job.job
        learning = self._costs.learning(asked)
        number = -1 if learning is None else phase(learning, job.done(now))
        own = self._costs.reported.get(asked.job_id)
        sizes = asked.least_gpus, asked.most_gpus
        key = asked.model, asked.gang, asked.batch, asked.kind, *sizes, number, own
        if key not in self._rows:
            if len(self._rows) > MOST_REMEMBERED:  # jobs that report get new rows now and then
                self._rows.clear()
            self._rows[key] = self._speeds(asked, job.done(now))
        return self._rows[key]

    def _speeds(self, job: Job, done: float) -> Floats:
        most, each = self._costs.most_gpus(job), job.gang.per_machine or 1
        row = np.zeros(most + 1)
        for gpus in range(job.least_gpus, most + 1):
            if gpus % each == 0:
                row[gpus] = 1 / self._costs.ideal(job, gpus, done).slowdown
        return row
