"""The placement of a round: which jobs run on which GPU type, by their credits, and on which GPUs of it."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dally.cluster.free import FreeGpus
from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Gang
from dally.policies.common.arrays import Flags, Floats
from dally.policies.common.rounds import RoundTarget
from dally.policies.gavel.round_credits import RoundCredits
from dally.policies.gavel.shares import Demand
from dally.state import JobState


class Pools:
    """Where a gang may run: on GPUs of one type, or, the last pool, on all types mixed.

    Attributes:
        types: The GPU types, one pool each.
        names: The pools' names.
        mixed: The place of the last pool.
    """

    def __init__(self, topology: Topology) -> None:
        self.types = topology.gpu_types
        self.names = (*self.types, "any")
        self.mixed = len(self.types)
        self._place = {gpu_type: place for place, gpu_type in enumerate(self.types)}
        self._machines = topology.machines

    def of(self, allocation: Allocation) -> int:
        """The pool that an allocation is of."""
        types = {self._machines[machine].gpu_type for machine, _ in allocation}
        return self._place[types.pop()] if len(types) == 1 else self.mixed


class RoundTable:
    """The jobs that a round may give GPUs, as arrays.

    Attributes:
        jobs: The jobs, in order of arrival.
        ids: Their names.
        gangs: (jobs,) GPUs of each.
        speeds: (jobs, types) of each on each type that can hold it when idle; 0 on others.
        opens: (jobs, pools) whether it may run there with the machines at hand.
        able: (jobs,) whether it may run anywhere with them.
        capacity: GPUs of each type that the round hands out.

    Args:
        jobs: The jobs.
        speeds: (types,) of each on each type that can hold it when idle, by name.
        free: GPUs as the round hands them out.
    """

    def __init__(self, jobs: Sequence[JobState], speeds: Mapping[str, list[float]], free: FreeGpus) -> None:
        types = free.topology.gpu_types
        capacity = [free.total(gpu_type) for gpu_type in types]
        self.jobs, self.capacity = jobs, tuple(capacity)
        self.ids = [job.job.job_id for job in jobs]
        self.gangs = np.array([job.job.gpus for job in jobs], dtype=np.float64)
        self.speeds = np.array([speeds[job_id] for job_id in self.ids]).reshape(len(jobs), len(capacity))
        self._room = np.array(capacity, dtype=np.float64)
        usable = np.tile(self._room, (len(jobs), 1))  # of each type, on machines that a job accepts
        for row, job in zip(usable, jobs, strict=True):
            if job.job.machines is not None:
                row[:] = [free.total(gpu_type, job.job.machines) for gpu_type in types]
        alone = (self.speeds > 0) & (self.gangs[:, None] <= usable)
        typed = np.array([job.job.gpu_type is not None for job in jobs], dtype=bool)
        mixed = ~typed & ~alone.any(axis=1) & (self.gangs <= usable.sum(axis=1))
        self.opens: Flags = np.column_stack([alone, mixed])
        self.able: Flags = np.asarray(self.opens.any(axis=1))

    def demand(self, aware: bool) -> Demand:
        """What the jobs that may run somewhere ask of the cluster.

        Args:
            aware: Types differ in speed; else a job that may run on every type runs on all alike.
        """
        pools = np.vstack([np.eye(len(self._room)), self._room / max(1.0, self._room.sum())])
        opens = self.opens[self.able]
        speeds = np.column_stack([self.speeds[self.able], np.ones(len(opens))])
        if not aware:
            speeds = np.ones_like(speeds)
            opens = np.where(self._everywhere(), np.eye(len(pools), dtype=bool)[-1], opens)
        return Demand(self.gangs[self.able], np.where(opens, speeds, 0.0), pools, self._room)

    def spread(self, parts: Floats) -> Floats:
        """Shares by pool where types are alike: jobs that may run on every type have time on each."""
        alike = np.append(self._room / max(1.0, self._room.sum()), 0.0)
        spread: Floats = np.where(self._everywhere(), parts[:, -1:] * alike, parts)
        return spread

    def _everywhere(self) -> Flags:
        return np.asarray(self.opens[self.able, :-1].all(axis=1, keepdims=True))


class GpusLeft:
    """GPUs of a type that are left as one gang after another is picked, on each set of machines accepted.

    Args:
        free: The GPUs.
        gpu_type: Their type.
        jobs: Those that may be picked.
    """

    def __init__(self, free: FreeGpus, gpu_type: str, jobs: Sequence[JobState]) -> None:
        accepted = dict.fromkeys((None, *(job.job.machines for job in jobs)))
        self._on = {machines: free.total(gpu_type, machines) for machines in accepted}

    @property
    def total(self) -> int:
        """On all machines."""
        return self._on[None]

    def take(self, gang: Gang) -> bool:
        """Take the GPUs of a gang; False if too few are left on the machines that it accepts."""
        around = [
            machines
            for machines in self._on
            if machines is None or (gang.machines is not None and gang.machines <= machines)
        ]
        if any(self._on[machines] < gang.gpus for machines in around):
            return False
        for machines in around:
            self._on[machines] -= gang.gpus
        return True


class RoundPlacement:
    """One round in the making: which jobs run on which pool, and on which GPUs of it.

    Args:
        free: GPUs as the round hands them out, on trial.
        pools: The pools of the cluster.
        table: The jobs.
        credits: The rounds that each job was promised and had on each pool.
        reason: Says why a job runs on a pool, from its place in the table.

    Attributes:
        targets: What jobs are to have so far, by name.
    """

    def __init__(
        self,
        free: FreeGpus,
        pools: Pools,
        table: RoundTable,
        credits: RoundCredits,
        reason: Callable[[int, int], str],
    ) -> None:
        self._free, self._pools, self._table, self._credits = free, pools, table, credits
        self._reason = reason
        self._order = credits.order(table.ids)
        self._gangs: list[float] = table.gangs.tolist()
        self._opens: list[list[bool]] = table.opens.tolist()
        self._pool: dict[int, int] = {}
        self.targets: dict[str, RoundTarget] = {}

    def keep(self, sure: Callable[[JobState], bool]) -> None:
        """Running jobs that are sure of their GPUs keep them."""
        for place, job in enumerate(self._table.jobs):
            if job.allocation and sure(job):
                self._take(place, job.allocation, self._pools.of(job.allocation))

    def place_mixed(self, due: bool) -> None:
        """Place gangs that no type holds: only those that had less than promised, or all that fit."""
        mixed = self._pools.mixed
        for place in self._order[mixed][0]:
            if not self._opens[place][mixed] or place in self._pool:
                continue
            job_id = self._table.ids[place]
            if not due or self._credits.owed(job_id, mixed) + self._credits.of(job_id).shares[mixed] >= 0.5:
                self._place([place], mixed)

    def place_by_type(self, types: Sequence[int], shares_first: bool) -> None:
        """Give out each type's GPUs.

        Args:
            types: The types, in this order.
            shares_first: On all types first those with a share there; else on each also those without.
        """
        left = [GpusLeft(self._free, gpu_type, self._table.jobs) for gpu_type in self._pools.types]
        picked: dict[int, list[int]] = {pool: [] for pool in types}
        for shares_only in (True, False) if shares_first else (False,):
            for pool in types:
                order, sharing = self._order[pool]
                for place in order[:sharing] if shares_only else order:
                    if not left[pool].total:
                        break
                    if (
                        place not in self._pool
                        and self._opens[place][pool]
                        and left[pool].take(self._table.jobs[place].job.gang)
                    ):
                        self._pool[place] = pool
                        picked[pool].append(place)
        for pool, places in picked.items():
            # Jobs that are there already stay; the others follow, the largest first. If that leaves one
            # without GPUs, those come first and all others of the pool are placed again.
            places.sort(key=lambda place: (not self._is_there(place, pool), -self._gangs[place]))
            lost = self._place(places, pool)
            if lost:
                rest = [place for place in places if place not in {*lost}]
                for place in rest:
                    self._free.give(self.targets.pop(self._table.ids[place]).allocation)
                self._place([*lost, *rest], pool)

    def _place(self, places: Sequence[int], pool: int) -> list[int]:
        """Place jobs in this order, where they are already or else on the closest GPUs.

        Returns:
            Those for which there were no GPUs.
        """
        lost = []
        for place in places:
            job = self._table.jobs[place]
            if self._is_there(place, pool) and self._free.holds(job.allocation):
                self._take(place, job.allocation, pool)
                continue
            gang = job.job.gang
            if pool < self._pools.mixed:
                gang = gang._replace(gpu_type=self._pools.types[pool])
            found = self._free.find_closest(gang)
            if found is None:
                lost.append(place)
            else:
                self._take(place, found, pool)
        return lost

    def _is_there(self, place: int, pool: int) -> bool:
        allocation = self._table.jobs[place].allocation
        return bool(allocation) and self._pools.of(allocation) == pool

    def _take(self, place: int, allocation: Allocation, pool: int) -> None:
        self._free.take(allocation)
        self._pool[place] = pool
        self.targets[self._table.ids[place]] = RoundTarget(allocation, self._reason(place, pool))
