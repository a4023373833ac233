"""The GPUs that a policy shares out, by type, and which jobs they can hold beside each other."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dally.cluster.free import FreeGpus
from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Job
from dally.policies.common.arrays import Ints


def held_by_kind(topology: Topology, allocation: Allocation) -> Ints:
    """(types,) the GPUs of each type in an allocation, in the order of the cluster's types."""
    by_type = topology.by_type(allocation)
    return np.array([by_type.get(gpu_type, 0) for gpu_type in topology.gpu_types])


def free_by_kind(free: FreeGpus) -> Ints:
    """(types,) the free GPUs of each type."""
    return np.array([free.total(gpu_type) for gpu_type in free.topology.gpu_types])


@dataclass(frozen=True, slots=True)
class Pool:
    """GPUs to hand out: how many, and of each type."""

    total: int
    of_type: Mapping[str, int]

    @classmethod
    def of(cls, topology: Topology, gpus: Ints) -> "Pool":
        """The pool of so many GPUs of each type, (types,) in the order of the cluster's types."""
        return cls(int(gpus.sum()), dict(zip(topology.gpu_types, gpus.tolist(), strict=True)))


class Room:
    """What is left of a pool as one job after another takes GPUs.

    A job that accepts one type needs that many of it; any other takes what those leave. That is exact where
    jobs accept one type or all.
    """

    def __init__(self, pool: Pool) -> None:
        self.left = pool.total
        self._of_type = dict(pool.of_type)

    def for_type(self, gpu_type: str | None) -> int:
        """How many more GPUs a job could get that accepts this type; None for any."""
        return self.left if gpu_type is None else min(self.left, self._of_type.get(gpu_type, 0))

    def take(self, gpu_type: str | None, gpus: int) -> None:
        """Take GPUs for a job that accepts this type."""
        self.left -= gpus
        if gpu_type is not None:
            self._of_type[gpu_type] = self._of_type.get(gpu_type, 0) - gpus

    def admits(self, job: Job) -> bool:
        """Whether the least size of a job fits beside those admitted; if so it is admitted."""
        if job.least_gpus > self.for_type(job.gpu_type):
            return False
        self.take(job.gpu_type, job.least_gpus)
        return True
