"""Jobs that share workers of several kinds: how long each runs on what it is given, and how fairly.

The model of JPS (Liu et al., TPDS 2024; partly read, the rest is reconstruction): a job's batch is split in
proportion to its workers' speeds, so that all finish together, then a ring reduces the gradients over the
slowest link of the cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dally.jobs.job import Job
from dally.policies.base import Cache
from dally.policies.common.arrays import Floats, Ints
from dally.profiles.corrected_iterations import CostGroup
from dally.profiles.costs import CostModel
from dally.state import JobState


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


def workload_s(job: JobState, now: float) -> float:
    """T_i * Pi_i: what is left of a job, in seconds of one GPU at its best placement."""
    return job.remaining_s(now) * job.job.gpus


class WorkerDemands:
    """Makes jobs of a cluster an instance, from their profiles: GPUs of one type are workers of one kind.

    What a profile or plan says is remembered by `CostModel.group` and gang. Work is counted in seconds of a
    GPU of the fastest type that the job accepts. The most that a job gets is the size at which it is fastest
    by its profile: beyond, links are slower than the one r_min of the formula can say. Communication is what
    the profile leaves exposed there, at its best placement, taken back to D_i / r_min by the formula of the
    ring. By that formula more workers help only a job that computes on one for longer than very many would
    reduce; any other gets no more than it asked for.
    """

    def __init__(self, costs: CostModel) -> None:
        self._costs = costs
        self._rows = Cache[tuple[CostGroup, str | None, int], Floats]()
        self._shares = Cache[tuple[CostGroup, tuple[object, ...], int], tuple[float, float, int]]()

    def instance(self, jobs: Sequence[JobState], workers: Ints, now: float) -> Instance:
        """The jobs on so many GPUs of each type; `Room` has seen that their least sizes fit."""
        left_s = np.array([max(job.remaining_s(now), 1e-6) for job in jobs])
        gpus = np.array([job.job.gpus for job in jobs])
        shares = np.array([self._share(job.job) for job in jobs])
        speeds = np.array([self._row(job.job) for job in jobs])
        least = np.array([job.job.least_gpus for job in jobs])
        work, comm_s = left_s * gpus * shares[:, 0], left_s * shares[:, 1]
        most = np.where(work > comm_s, shares[:, 2].astype(np.int64), np.maximum(least, gpus))
        usable = (np.where(speeds > 0, 1, 0) * workers).sum(axis=1)
        return Instance(
            speeds=speeds,
            workers=workers,
            work=work,
            comm_s=comm_s,
            least=least,
            most=np.maximum(least, np.minimum(usable, most)),
        )

    def _row(self, job: Job) -> Floats:
        """(kinds,) the speed of one GPU of each type; 0 where the job does not accept it."""
        key = self._costs.group(job), job.gpu_type, self._costs.revision
        if key not in self._rows:
            speeds = self._costs.worker_speeds(job)
            types = self._costs.topology.gpu_types
            self._rows[key] = np.array([speeds.get(gpu_type, 0.0) for gpu_type in types])
        return self._rows[key]

    def _share(self, job: Job) -> tuple[float, float, int]:
        """Compute of one ideal second, its all-reduce on very many workers, s, and the job's fastest size."""
        most = self._costs.most_gpus(job)
        key = self._costs.group(job), (*job.gang, job.least_gpus, most), self._costs.revision
        if key not in self._shares:
            doublings = (1 << power for power in range((most - 1).bit_length()))
            sizes = [*(size for size in doublings if size >= job.least_gpus), most]
            fastest = min(sizes, key=lambda size: self._costs.ideal(job, size).slowdown)
            widest = self._costs.ideal(job, fastest)
            comm = widest.slowdown * widest.exposed / (1 - 1 / fastest) if fastest > 1 else 0.0
            self._shares[key] = 1 - self._costs.ideal(job, job.gpus).exposed, comm, fastest
        return self._shares[key]
