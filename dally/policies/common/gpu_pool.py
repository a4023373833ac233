"""The GPUs that a policy shares out, by type, and which jobs they can hold beside each other."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dally.cluster.free import FreeGpus
from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Job
from dally.policies.common.arrays import Ints
from dally.state import JobState

Accepted = frozenset[str]
"""Names of machines, the only ones that some jobs accept."""


def held_by_kind(topology: Topology, allocation: Allocation) -> Ints:
    """(types,) the GPUs of each type in an allocation, in the order of the cluster's types."""
    by_type = topology.by_type(allocation)
    return np.array([by_type.get(gpu_type, 0) for gpu_type in topology.gpu_types])


def free_by_kind(free: FreeGpus) -> Ints:
    """(types,) the free GPUs of each type."""
    return np.array([free.total(gpu_type) for gpu_type in free.topology.gpu_types])


class MachineGpus:
    """The GPUs of each machine that are free or held by some jobs, and which machines a job accepts.

    Args:
        free: The free GPUs.
        holders: The jobs.
    """

    def __init__(self, free: FreeGpus, holders: Sequence[JobState]) -> None:
        self._free, machines = free, free.topology.machines
        self._least = min(machine.gpus for machine in machines)
        self._held = Counter[str]()
        for job in holders:
            for machine, gpus in job.allocation:
                self._held[machines[machine].name] += gpus
        self._of_type: dict[str, Accepted] = {
            gpu_type: Accepted(each.name for each in machines if each.gpu_type == gpu_type)
            for gpu_type in free.topology.gpu_types
        }

    def on(self, accepted: Accepted) -> int:
        """How many GPUs of some machines there are."""
        return self._free.total(machines=accepted) + sum(
            self._held[name] for name in accepted & self._held.keys()
        )

    def accepted(self, job: Job) -> Accepted | None:
        """The machines that a job accepts, by name, GPU type and GPUs; None for all."""
        if self._wants_large(job):
            return self._free.accepted(job.gang)
        if job.gpu_type is None:
            return job.machines
        of_type = self._of_type.get(job.gpu_type, Accepted())
        return of_type if job.machines is None else job.machines & of_type

    def is_choosy(self, job: Job) -> bool:
        """Whether a job accepts some machines only, for another reason than their GPU type."""
        return job.machines is not None or self._wants_large(job)

    def _wants_large(self, job: Job) -> bool:
        """Whether a job wants more GPUs on each machine than the smallest has."""
        return (job.gang.per_machine or 1) > self._least


@dataclass(frozen=True, slots=True)
class Pool:
    """GPUs to hand out: how many, and of each type."""

    total: int
    of_type: Mapping[str, int]

    @classmethod
    def of(cls, topology: Topology, gpus: Ints) -> "Pool":
        """The pool of so many GPUs of each type, (types,) in the order of the cluster's types."""
        return cls(int(gpus.sum()), dict(zip(topology.gpu_types, gpus.tolist(), strict=True)))

    def holds(self, jobs: Iterable[Job]) -> bool:
        """Whether the least sizes of some jobs fit, wherever they may run."""
        needed = Counter[str | None]()
        for job in jobs:
            needed[job.gpu_type] += job.least_gpus
        fits_types = all(
            gpus <= self.of_type.get(gpu_type, 0) for gpu_type, gpus in needed.items() if gpu_type is not None
        )
        return fits_types and needed.total() <= self.total


class Room:
    """What is left of a pool as one job after another takes GPUs.

    A job that accepts one type needs that many of it; any other takes what those leave. That is exact where
    jobs accept one type or all. A job that accepts some machines only needs that many of theirs, too, and of
    all machines together that it and jobs admitted before compete for, by machines or by type.

    Args:
        pool: The GPUs.
        machines: On which machines they are; None: no jobs are to be admitted.

    Attributes:
        left: GPUs that are left.
        kept: Names of machines of which nothing more is to be had.
    """

    def __init__(self, pool: Pool, machines: MachineGpus | None = None) -> None:
        self.left = pool.total
        self.kept = Accepted()
        self._of_type = dict(pool.of_type)
        self._machines = machines
        self._left_on: dict[Accepted, int] = {}
        self._taken_on = Counter[Accepted]()

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
        accepted = self._known_machines.accepted(job)
        if accepted is not None:
            # Types alone are counted above; machines that somebody asked for may be some of theirs.
            is_contested = self._known_machines.is_choosy(job) or bool(self._left_on)
            if is_contested and not self._take_on(accepted, job.least_gpus):
                return False
            self._taken_on[accepted] += job.least_gpus
        self.take(job.gpu_type, job.least_gpus)
        return True

    @property
    def _known_machines(self) -> MachineGpus:
        if self._machines is None:
            raise AssertionError("nothing is known of machines")
        return self._machines

    def keep(self, machines: Accepted) -> None:
        """Leave what is left of some machines to a job that waits for more of them."""
        new = machines - self.kept
        self.left -= max(0, self._left(machines))
        for each, left in self._left_on.items():
            if not new.isdisjoint(each):
                self._left_on[each] = min(left, self._known_machines.on(each - machines))
        self.kept |= machines
        self._left_on[machines] = 0

    def _left(self, machines: Accepted) -> int:
        """What is left of some machines."""
        if machines not in self._left_on:
            taken = sum(before for part, before in self._taken_on.items() if part <= machines)
            self._left_on[machines] = self._known_machines.on(machines - self.kept) - taken
        return self._left_on[machines]

    def _take_on(self, machines: Accepted, gpus: int) -> bool:
        """Take GPUs of some machines, and so of each set that they are part of; False if one has too few."""
        contested = machines
        while more := {part for part in self._taken_on if not part <= contested and part & contested}:
            contested = contested.union(*more)
        for each in (machines, contested):
            self._left(each)
        around = [each for each in self._left_on if machines <= each]
        if any(self._left_on[each] < gpus for each in around):
            return False
        for each in around:
            self._left_on[each] -= gpus
        return True
