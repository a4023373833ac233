"""How fast a job runs on so many GPUs of a type on so many machines, as tables that a search looks up in."""

from math import ceil

import numpy as np

from dally.cluster.free import FreeGpus
from dally.jobs.job import Job
from dally.policies.base import Cache
from dally.policies.common.arrays import Floats, Ints
from dally.policies.common.elastic_speeds import MOST_REMEMBERED, speeds_key
from dally.profiles.costs import CostModel
from dally.state import JobState

CLOSE, APART = 0, 1
"""On as few machines as can hold the GPUs, or on more."""


class PlacedSpeeds:
    """Tables of speeds by GPU type, closeness and number of GPUs, remembered by what they depend on.

    Placements are told apart as far as a search can afford it, on the idle cluster: the closest one speaks
    for all on the fewest machines, an even one on twice as many machines for all that are wider.

    Args:
        costs: Predicts the speeds.
    """

    def __init__(self, costs: CostModel) -> None:
        self._costs = costs
        self._topology = costs.topology
        self._idle = FreeGpus(costs.topology)
        self._tables = Cache[tuple[object, ...], Floats]()

    def fewest(self, most: int) -> Ints:
        """(types, most + 1) the fewest machines of each type that hold 0, 1, ... GPUs; all if they cannot."""
        rows = []
        for gpu_type in self._topology.gpu_types:
            sizes = [machine.gpus for machine in self._topology.machines if machine.gpu_type == gpu_type]
            held = np.cumsum(sorted(sizes, reverse=True))
            rows.append(np.minimum(np.searchsorted(held, np.arange(most + 1)) + 1, len(held)))
        return np.array(rows)

    def table(self, job: JobState, now: float, most: int) -> Floats:
        """(types, 2, most + 1) the speed on 0, 1, ... GPUs of a type, `CLOSE` together or `APART`.

        In ideal seconds a second, as `JobState.speed`; 0 where it does not run. Where a type alone holds too
        few GPUs, those of all types together count.
        """
        key = *speeds_key(self._costs, job, now), most
        if key not in self._tables:
            if len(self._tables) > MOST_REMEMBERED:  # jobs that report get new tables now and then
                self._tables.clear()
            asked, done = job.job, job.done(now)
            each, top = asked.gang.per_machine or 1, min(most, self._costs.most_gpus(asked))
            self._tables[key] = table = np.zeros((len(self._topology.gpu_types), 2, most + 1))
            for place, gpu_type in enumerate(self._topology.gpu_types):
                if asked.gpu_type in (None, gpu_type):
                    for gpus in range(asked.least_gpus, top + 1):
                        if gpus % each == 0:
                            table[place, :, gpus] = self._close_and_apart(asked, gpu_type, gpus, done)
        return self._tables[key]

    def _close_and_apart(self, job: Job, gpu_type: str, gpus: int, done: float) -> tuple[float, float]:
        """The speed close together and that apart, as evenly as can be on twice as many machines."""
        gang = job.gang._replace(gpus=gpus, gpu_type=gpu_type)
        close = self._idle.find_closest(gang)
        if close is None:
            mixed = 1 / self._costs.ideal(job, gpus, done).slowdown
            return mixed, mixed
        speed = 1 / self._costs.cost(job, close, done).slowdown
        machines = min(gpus, 2 * len(close))
        share = ceil(gpus / machines)
        even = gang._replace(gpus=share * machines, per_machine=share)
        found = None if gang.per_machine else self._idle.find_closest(even)
        if found is None:
            return speed, speed
        fewer = share * machines - gpus
        apart = tuple((machine, has - (place < fewer)) for place, (machine, has) in enumerate(found))
        return speed, 1 / self._costs.cost(job, apart, done).slowdown
