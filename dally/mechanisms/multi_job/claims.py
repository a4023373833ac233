"""Jobs of a cluster as an instance of multi-job placement: GPUs of one type are workers of one kind."""

from collections.abc import Sequence

import numpy as np

from dally.costs import CostModel
from dally.free import FreeGpus
from dally.job import Job
from dally.mechanisms.multi_job.instance import Floats, Instance, Ints
from dally.state import JobState
from dally.topology import Allocation, Topology


def workload_s(job: JobState, now: float) -> float:
    """T_i * Pi_i of a job: what is left of it, in seconds of one GPU at its best placement."""
    return job.remaining_s(now) * job.job.gpus


def held_by_kind(topology: Topology, allocation: Allocation) -> Ints:
    """(kinds,) the GPUs of each type in an allocation, in the order of the cluster's types."""
    by_type = topology.by_type(allocation)
    return np.array([by_type.get(gpu_type, 0) for gpu_type in topology.gpu_types])


def free_by_kind(free: FreeGpus) -> Ints:
    """(kinds,) the free GPUs of each type."""
    return np.array([free.total(gpu_type) for gpu_type in free.topology.gpu_types])


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
        self._rows: dict[tuple[str, str | None], Floats] = {}
        self._shares: dict[tuple[str, tuple[object, ...]], tuple[float, float, int]] = {}

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


class Room:
    """Whom the free workers can hold at their least sizes, one job after another.

    A job that accepts one type needs that many of it; any other takes what those leave. That is exact where
    jobs accept one type or all.

    Args:
        topology: The cluster.
        workers: (kinds,) how many GPUs of each type there are to hand out.
    """

    def __init__(self, topology: Topology, workers: Ints) -> None:
        self.left = int(workers.sum())
        self._of = dict(zip(topology.gpu_types, workers.tolist(), strict=True))

    def admits(self, job: Job) -> bool:
        """Whether it fits beside those admitted; if so it is admitted."""
        gpus = job.least_gpus
        of_type = self.left if job.gpu_type is None else self._of.get(job.gpu_type, 0)
        if gpus > min(self.left, of_type):
            return False
        self.left -= gpus
        if job.gpu_type is not None:
            self._of[job.gpu_type] -= gpus
        return True
