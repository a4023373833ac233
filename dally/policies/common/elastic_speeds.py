"""How fast jobs would run on other numbers of GPUs, as tables that policies search in."""

import numpy as np

from dally.policies.base import Cache
from dally.policies.common.arrays import Floats
from dally.profiles.costs import CostModel
from dally.profiles.goodput import phase
from dally.state import JobState

MOST_REMEMBERED = 20_000
"""Rows that are remembered at most."""


def speeds_key(costs: CostModel, job: JobState, now: float) -> tuple[object, ...]:
    """All that the predicted speeds of a job depend on; jobs with equal keys have equal speeds."""
    asked, learning = job.job, costs.learning(job.job)
    number = -1 if learning is None else phase(learning, job.done(now))
    sizes = asked.least_gpus, asked.most_gpus
    told = costs.reported.get(asked.job_id)
    return costs.group(asked), asked.gang, asked.kind, *sizes, number, told, costs.revision


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
        asked, key = job.job, speeds_key(self._costs, job, now)
        if key not in self._rows:
            if len(self._rows) > MOST_REMEMBERED:  # jobs that report get new rows now and then
                self._rows.clear()
            most, each = self._costs.most_gpus(asked), asked.gang.per_machine or 1
            self._rows[key] = row = np.zeros(most + 1)
            for gpus in range(asked.least_gpus, most + 1):
                if gpus % each == 0:
                    row[gpus] = 1 / self._costs.ideal(asked, gpus, job.done(now)).slowdown
        return self._rows[key]
