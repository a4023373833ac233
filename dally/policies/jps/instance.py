"""Jobs that share workers of several kinds: how long each runs on what it is given, and how fairly.

The model of JPS (Liu et al., TPDS 2024; partly read, the rest is reconstruction): a job's batch is split in
proportion to its workers' speeds, so that all finish together, then a ring reduces the gradients over the
slowest link of the cluster.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """What is to be placed where. Workers of a kind are alike; kinds of one worker each are the general case.

    Attributes:
        speeds: (jobs, kinds) work that one worker of the kind does in a second; 0: the job accepts none.
        workers: (kinds,) how many there are.
        work: (jobs,) work left, T_i * Pi_i: iterations by global batch.
        comm_s: (jobs,) 2 * T_i * D_i / r_min: seconds of all-reduce that are left on very many workers.
        least: (jobs,) fewest workers of each job, 1 or more.
        most: (jobs,) most workers of each job.
    """

    speeds: Floats
    workers: Ints
    work: Floats
    comm_s: Floats
    least: Ints
    most: Ints

    @property
    def placed(self) -> int:
        """Workers that a category hands out: all, or as many as the jobs can use."""
        return min(int(self.workers.sum()), int(self.most.sum()))

    @property
    def mean_speeds(self) -> Floats:
        """(jobs,) the mean speed of the workers that a job accepts."""
        accepted = np.where(self.speeds > 0, self.workers, 0)
        return np.asarray((self.speeds * accepted).sum(axis=1) / np.maximum(accepted.sum(axis=1), 1))

    def times_s(self, given: Ints) -> Floats:
        """(jobs,) J_i = T_i (l_p + l_c): how long each job runs on its workers, seconds.

        Args:
            given: (jobs, kinds) workers of each job, at least one; inf where it accepts none such.
        """
        refused = ((given > 0) & (self.speeds <= 0)).any(axis=1)
        speed = (given * self.speeds).sum(axis=1)
        speed[refused] = np.nan
        times = self.work / speed + self.all_reduce_s(given.sum(axis=1))
        return np.asarray(np.where(refused, np.inf, times))

    def all_reduce_s(self, sizes: Ints | Floats) -> Floats:
        """(jobs,) T_i * l_c = 2 (K_i - 1) T_i D_i / (r_min K_i) of jobs on so many workers, seconds."""
        return np.asarray(self.comm_s * (1 - 1 / np.maximum(sizes, 1)))

    def equal_share_s(self) -> Floats:
        """(jobs,) how long each would run on an equal part of the workers of every kind, seconds."""
        jobs = len(self.work)
        speed = (self.speeds * self.workers).sum(axis=1) / jobs
        return np.asarray(self.work / speed + self.all_reduce_s(np.full(jobs, self.workers.sum() / jobs)))


def jain(values: Floats) -> float:
    """Jain's fairness index of values not all 0: 1 / number if one has all, 1 if all have the same.

    Source: Jain, Chiu and Hawe, DEC-TR-301, 1984.
    """
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))
