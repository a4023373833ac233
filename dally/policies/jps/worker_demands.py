"""Jobs of a cluster as an instance of multi-job placement: GPUs of one type are workers of one kind."""

from collections.abc import Sequence

import numpy as np

from dally.jobs.job import Job
from dally.policies.base import Cache
from dally.policies.jps.instance import Floats, Instance, Ints
from dally.profiles.costs import CostModel
from dally.state import JobState


def workload_s(job: JobState, now: float) -> float:
    """T_i * Pi_i of a job: what is left of it, in seconds of one GPU at its best placement."""
    return job.remaining_s(now) * job.job.gpus


class WorkerDemands:
    """What jobs ask of the workers, from their profiles; remembers that by model and gang.

    Work is counted in seconds of a GPU of the fastest type that the job accepts. The most that a job gets is
    the size at which it is fastest by its profile: beyond, links are slower than the one r_min of the formula
    can say. Communication is what the profile leaves exposed there, at its best placement, taken back to
    D_i / r_min by the formula of the ring. By that formula more workers help only who computes on one for
    longer than very many would reduce; any other gets no more than it asked for.
    """

    def __init__(self, costs: CostModel) -> None:
        self._costs = costs
        self._rows = Cache[tuple[str, str | None], Floats]()
        self._shares = Cache[tuple[str, tuple[object, ...]], tuple[float, float, int]]()

    def instance(self, jobs: Sequence[JobState], workers: Ints, now: float) -> Instance:
        """The jobs on so many GPUs of each type; that their least sizes fit is for `Room` to see."""
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
        key = job.model, job.gpu_type
        if key not in self._rows:
            speeds = self._costs.worker_speeds(job)
            types = self._costs.topology.gpu_types
            self._rows[key] = np.array([speeds.get(gpu_type, 0.0) for gpu_type in types])
        return self._rows[key]

    def _share(self, job: Job) -> tuple[float, float, int]:
        """Compute of one ideal second, its all-reduce on very many workers, s, and the job's fastest size."""
        most = self._costs.most_gpus(job)
        key = job.model, (*job.gang, job.least_gpus, most)
        if key not in self._shares:
            sizes = [size for size in _doublings(most) if size >= job.least_gpus] or [most]
            fastest = min(sizes, key=lambda size: self._costs.ideal(job, size).slowdown)
            widest = self._costs.ideal(job, fastest)
            comm = widest.slowdown * widest.exposed / (1 - 1 / fastest) if fastest > 1 else 0.0
            self._shares[key] = 1 - self._costs.ideal(job, job.gpus).exposed, comm, fastest
        return self._shares[key]


def _doublings(most: int) -> list[int]:
    """1, 2, 4 and so on below the most, and the most."""
    return [*(1 << power for power in range((most - 1).bit_length())), most]
