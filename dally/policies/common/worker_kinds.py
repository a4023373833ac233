"""GPUs of one type as workers of one kind: how many are held, free, and whom they can hold."""

import numpy as np
from numpy.typing import NDArray

from dally.cluster.free import FreeGpus
from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Job

Ints = NDArray[np.int64]


def held_by_kind(topology: Topology, allocation: Allocation) -> Ints:
    """(kinds,) the GPUs of each type in an allocation, in the order of the cluster's types."""
    by_type = topology.by_type(allocation)
    return np.array([by_type.get(gpu_type, 0) for gpu_type in topology.gpu_types])


def free_by_kind(free: FreeGpus) -> Ints:
    """(kinds,) the free GPUs of each type."""
    return np.array([free.total(gpu_type) for gpu_type in free.topology.gpu_types])


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
