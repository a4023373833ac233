"""Time shares: which part of its time each job is to spend on which GPU type, by linear programs.

The objectives are Gavel's: each asks for shares under which every job reaches the same multiple of a
throughput of its own, the greatest there is. Source: Narayanan et al., OSDI 2020, sections 4.1 and 4.2.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array

Floats = NDArray[np.float64]

SLACK = 1e-7
"""Part of the greatest multiple that the second program may give away, for the solver's tolerance."""

_INFEASIBLE = 2
"""Of scipy's `linprog`."""

NARROW = 1e-2
"""The search for the least finish-time ratio ends with a step shorter than this part of it."""

MOST_STEPS = 20
"""Steps of that search at most; a few do."""


@dataclass(frozen=True)
class Demand:
    """Jobs that share a cluster. A pool is where a gang may run: on one GPU type, or on several mixed.

    Attributes:
        gangs: (jobs,) GPUs that each takes while it runs.
        speeds: (jobs, pools) ideal seconds of work a second; 0 where it cannot run, positive somewhere.
        pools: (pools, types) part of a pool's GPUs that is of each type; each row's sum is 1.
        capacity: (types,) GPUs.
    """

    gangs: Floats
    speeds: Floats
    pools: Floats
    capacity: Floats

    @property
    def fair_speeds(self) -> Floats:
        """(jobs,) speed of a job that runs on each pool open to it in proportion to the pool's GPUs."""
        weights = np.where(self.speeds > 0, self.pools @ self.capacity, 0.0)
        fair: Floats = (self.speeds * weights).sum(axis=1) / weights.sum(axis=1)
        return fair


@dataclass(frozen=True)
class Shares:
    """What a program found.

    Attributes:
        value: The objective reached.
        parts: (jobs, pools) part of its time that each job is to spend on each pool.
    """

    value: float
    parts: Floats


def least_served(demand: Demand, most_work: bool = False) -> Shares:
    """Max-min fairness of attained service: the least of gang x throughput / fair speed is greatest.

    Args:
        demand: The jobs.
        most_work: Of the shares that reach that, those that do most work.
    """
    return _equal_multiples(demand, demand.fair_speeds / demand.gangs, most_work)


def least_makespan(demand: Demand, remaining_s: Floats, most_work: bool = False) -> Shares:
    """All work done soonest, if nobody else comes; the value is that time, seconds.

    Args:
        demand: The jobs.
        remaining_s: (jobs,) ideal seconds of work left, positive.
        most_work: Of the shares that reach that, those that do most work.
    """
    # Everybody done by T is throughput >= remaining / T: one program finds the greatest 1 / T.
    shares = _equal_multiples(demand, remaining_s, most_work)
    return Shares(1 / shares.value, shares.parts)


def finish_time_fairness(
    demand: Demand, ages_s: Floats, remaining_s: Floats, alone_s: Floats, most_work: bool = False
) -> Shares:
    """The greatest ratio of a job's time to finish to that on its own part of the cluster is least.

    Found by Dinkelbach's steps: shares for one ratio reach another, for which the next shares are sought.

    Args:
        demand: The jobs.
        ages_s: (jobs,) seconds since each was submitted.
        remaining_s: (jobs,) ideal seconds of work left, positive.
        alone_s: (jobs,) seconds that each takes from start to end on its own part of the cluster.
        most_work: Of the shares that reach that, those that do most work.
    """

    def targets(ratio: float) -> Floats:
        return remaining_s / (ratio * alone_s - ages_s)

    # However fast it is from now on, somebody is as late as its age alone makes it.
    ratio = float((ages_s / alone_s).max()) + 1.0
    for _ in range(MOST_STEPS):
        found = _Program(demand, targets(ratio)).solve(work=False)
        assert found, "no time at all for anybody fits"
        speeds = np.maximum((demand.speeds * found.parts).sum(axis=1), 1e-9)
        reached = float(((ages_s + remaining_s / speeds) / alone_s).max())
        if ratio * (1 - NARROW) <= reached <= ratio:
            break
        ratio = reached
    return Shares(ratio, _equal_multiples(demand, targets(ratio), most_work).parts)


def _equal_multiples(demand: Demand, targets: Floats, most_work: bool) -> Shares:
    """Shares with that greatest multiple and, if asked for, among these the most GPUs x throughput.

    Where the solver finds no second solution so near to its first one, that stands.
    """
    program = _Program(demand, targets)
    first = program.solve(work=False)
    assert first, "no time at all for anybody fits"
    most = program.solve(work=True, least=-first.value) if most_work else None
    return Shares(-first.value / float(targets.max()), (most or first).parts)


class _Program:
    """max z: throughput >= z target for each job, time <= 1 for each job, GPUs <= capacity for each type.

    Its variables are a job's parts on the pools open to it, then z. Targets are divided by the largest, so
    that seconds and speeds are of one size for the solver.
    """

    def __init__(self, demand: Demand, targets: Floats) -> None:
        self._demand = demand
        self._jobs, self._pools = np.nonzero(demand.speeds > 0)
        self._speeds = demand.speeds[self._jobs, self._pools]
        count, parts = len(demand.gangs), len(self._jobs)
        variables = np.arange(parts)
        held = demand.gangs[self._jobs, None] * demand.pools[self._pools]
        part, gpu_type = np.nonzero(held)
        rows = (self._jobs, np.arange(count), count + self._jobs, 2 * count + gpu_type)
        columns = (variables, np.full(count, parts), variables, part)
        values = (-self._speeds, targets / targets.max(), np.ones(parts), held[part, gpu_type])
        shape = 2 * count + len(demand.capacity), parts + 1
        self._matrix = coo_array(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape
        )
        self._bounds = np.concatenate([np.zeros(count), np.ones(count), demand.capacity])

    def solve(self, work: bool, least: float = 0.0) -> Shares | None:
        """The greatest z, or the most work while z is at least `least`; the value is what is minimised.

        None if that cannot be.
        """
        costs = np.zeros(self._matrix.shape[1])
        if work:
            costs[:-1] = -self._demand.gangs[self._jobs] * self._speeds
        else:
            costs[-1] = -1.0
        lower = np.zeros_like(costs)
        lower[-1] = least * (1 - SLACK)
        found = linprog(
            costs,
            A_ub=self._matrix.tocsr(),
            b_ub=self._bounds,
            bounds=np.column_stack([lower, np.full_like(lower, np.inf)]),
            method="highs",
        )
        if found.status == _INFEASIBLE:
            return None
        if found.status:
            raise AssertionError(f"no time shares for {len(self._demand.gangs)} jobs: {found.message}")
        parts = np.zeros(self._demand.speeds.shape)
        parts[self._jobs, self._pools] = np.clip(found.x[:-1], 0.0, 1.0)
        return Shares(float(found.fun), np.round(parts, 6))
