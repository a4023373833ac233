"""Dealing out a round: which jobs run on which GPU type, by their turns, and on which GPUs of it."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dally.cluster.free import FreeGpus
from dally.cluster.topology import Allocation, Topology
from dally.policies.common.rounds import RoundTarget
from dally.policies.gavel.shares import Demand, Floats
from dally.policies.gavel.turns import Turns
from dally.state import JobState

Flags = NDArray[np.bool_]


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
    """

    def __init__(
        self, jobs: Sequence[JobState], speeds: Mapping[str, list[float]], capacity: Sequence[int]
    ) -> None:
        self.jobs, self.capacity = jobs, tuple(capacity)
        self.ids = [job.job.job_id for job in jobs]
        self.gangs = np.array([job.job.gpus for job in jobs], dtype=np.float64)
        self.speeds = np.array([speeds[job_id] for job_id in self.ids]).reshape(len(jobs), len(capacity))
        self._room = np.array(capacity, dtype=np.float64)
        alone = (self.speeds > 0) & (self.gangs[:, None] <= self._room)
        choosy = np.array([job.job.gpu_type is not None for job in jobs], dtype=bool)
        mixed = ~choosy & ~alone.any(axis=1) & (self.gangs <= self._room.sum())
        self.opens: Flags = np.column_stack([alone, mixed])
        self.able: Flags = np.asarray(self.opens.any(axis=1))

    def demand(self, aware: bool) -> Demand:
        """What the jobs that are able to run ask of the cluster.

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
        """Shares by pool where types are alike: those who may run on every type have time on each."""
        alike = np.append(self._room / max(1.0, self._room.sum()), 0.0)
        spread: Floats = np.where(self._everywhere(), parts[:, -1:] * alike, parts)
        return spread

    def _everywhere(self) -> Flags:
        return np.asarray(self.opens[self.able, :-1].all(axis=1, keepdims=True))


class Deal:
    """One round in the making.

    Args:
        free: GPUs as the round hands them out, on trial.
        pools: The pools of the cluster.
        table: The jobs.
        turns: Who had how many rounds where.
        reason: Says why a job runs on a pool, from its place in the table.
    """

    def __init__(
        self,
        free: FreeGpus,
        pools: Pools,
        table: RoundTable,
        turns: Turns,
        reason: Callable[[int, int], str],
    ) -> None:
        self._free, self._pools, self._table, self._turns = free, pools, table, turns
        self._reason = reason
        self._order = turns.order(table.ids)
        self._gangs: list[float] = table.gangs.tolist()
        self._opens: list[list[bool]] = table.opens.tolist()
        self._pool: dict[int, int] = {}
        self.targets: dict[str, RoundTarget] = {}

    def stay(self, sure: Callable[[JobState], bool]) -> None:
        """Running jobs that are sure of their GPUs keep them."""
        for place, job in enumerate(self._table.jobs):
            if job.allocation and sure(job):
                self._take(place, job.allocation, self._pools.of(job.allocation))

    def mix(self, due: bool) -> None:
        """Gangs that no type holds: only those that had less than promised, or all that fit."""
        mixed = self._pools.mixed
        for place in self._order[mixed][0]:
            if not self._opens[place][mixed] or place in self._pool:
                continue
            job_id = self._table.ids[place]
            if not due or self._turns.owed(job_id, mixed) + self._turns.of(job_id).shares[mixed] >= 0.5:
                self._place([place], mixed)

    def deal(self, types: Sequence[int], shares_first: bool) -> None:
        """Give out each type's GPUs.

        Args:
            types: The types, in this order.
            shares_first: On all types first those with a share there; else on each also those without.
        """
        left = [self._free.total(gpu_type) for gpu_type in self._pools.types]
        here: dict[int, list[int]] = {pool: [] for pool in types}
        for shares_only in (True, False) if shares_first else (False,):
            for pool in types:
                order, sharing = self._order[pool]
                picked = self._pick(pool, order[:sharing] if shares_only else order, left[pool])
                left[pool] -= sum(int(self._gangs[place]) for place in picked)
                here[pool] += picked
        for pool, picked in here.items():
            self._settle(picked, pool)

    def _pick(self, pool: int, order: Sequence[int], left: int) -> list[int]:
        """The next jobs that have no pool yet, as long as so many GPUs of this one last."""
        gangs, opens, pool_of = self._gangs, self._opens, self._pool
        picked = []
        for place in order:
            if not left:
                break
            if place not in pool_of and opens[place][pool] and gangs[place] <= left:
                pool_of[place] = pool
                picked.append(place)
                left -= int(gangs[place])
        return picked

    def _settle(self, picked: Sequence[int], pool: int) -> None:
        """GPUs for the jobs of a pool: who is there stays; if that leaves one none, it comes first."""
        wide_first = sorted(picked, key=lambda place: -self._gangs[place])
        wide_first.sort(key=lambda place: not self._is_there(place, pool))
        lost = self._place(wide_first, pool)
        if not lost:
            return
        rest = [place for place in wide_first if place not in {*lost}]
        for place in rest:
            self._free.give(self.targets.pop(self._table.ids[place]).allocation)
        self._place([*lost, *rest], pool)

    def _place(self, places: Sequence[int], pool: int) -> list[int]:
        """Place jobs in this order; those for which there were no GPUs."""
        lost = []
        for place in places:
            allocation = self._gpus(place, pool)
            if allocation is None:
                lost.append(place)
            else:
                self._take(place, allocation, pool)
        return lost

    def _gpus(self, place: int, pool: int) -> Allocation | None:
        """The GPUs that a job has there already, else the closest there are."""
        job = self._table.jobs[place]
        if self._is_there(place, pool) and self._free.holds(job.allocation):
            return job.allocation
        gang = job.job.gang
        if pool < self._pools.mixed:
            gang = gang._replace(gpu_type=self._pools.types[pool])
        level = self._free.lowest_level(gang)
        return None if level is None else self._free.find(gang, level)

    def _is_there(self, place: int, pool: int) -> bool:
        allocation = self._table.jobs[place].allocation
        return bool(allocation) and self._pools.of(allocation) == pool

    def _take(self, place: int, allocation: Allocation, pool: int) -> None:
        self._free.take(allocation)
        self._pool[place] = pool
        self.targets[self._table.ids[place]] = RoundTarget(allocation, self._reason(place, pool))
