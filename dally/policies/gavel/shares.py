"""Time shares: which part of its time each job is to spend on which GPU type, by linear programs.

The objectives are Gavel's: each asks for shares under which every job reaches the same multiple of a
throughput of its own, the greatest there is. Source: Narayanan et al., OSDI 2020, sections 4.1 and 4.2.
"""

from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from dally.policies.common.arrays import Floats

GAP = 1e-6
"""Part of the greatest multiple that shares in the middle give away at most."""

STEP = 0.1
"""What a step makes of the gap to the greatest multiple, if it can be taken in full."""

CLOSE = 0.9
"""A step goes this part of the way to where the first slack or price would be nothing."""

SETTLED = 1e-6
"""The middle is found once a step changes no part by more."""

MOST_STEPS = 200
"""Steps at most; 10 to 45 do."""

NARROW = 1e-2
"""The search for the least finish-time ratio ends with a step shorter than this part of it."""

MOST_RATIOS = 20
"""Ratios tried in that search at most; a few do."""


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


def least_served(demand: Demand) -> Shares:
    """Max-min fairness of attained service: the least of gang x throughput / fair speed is greatest."""
    return _equal_multiples(demand, demand.fair_speeds / demand.gangs)


def least_makespan(demand: Demand, remaining_s: Floats) -> Shares:
    """All work done soonest, if no other job comes; the value is that time, seconds.

    Args:
        demand: The jobs.
        remaining_s: (jobs,) ideal seconds of work left, positive.
    """
    # All jobs done by T is throughput >= remaining / T: one program finds the greatest 1 / T.
    shares = _equal_multiples(demand, remaining_s)
    return Shares(1 / shares.value, shares.parts)


def finish_time_fairness(demand: Demand, ages_s: Floats, remaining_s: Floats, alone_s: Floats) -> Shares:
    """The greatest ratio of a job's time to finish to that on its own part of the cluster is least.

    Found by Dinkelbach's steps: shares for one ratio reach another, for which the next shares are sought.

    Args:
        demand: The jobs.
        ages_s: (jobs,) seconds since each was submitted.
        remaining_s: (jobs,) ideal seconds of work left, positive.
        alone_s: (jobs,) seconds that each takes from start to end on its own part of the cluster.
    """

    def targets(ratio: float) -> Floats:
        return remaining_s / (ratio * alone_s - ages_s)

    # However fast it is from now on, a job is at least as late as its age alone makes it.
    ratio = float((ages_s / alone_s).max()) + 1.0
    for _ in range(MOST_RATIOS):
        found = _Program(demand, targets(ratio)).solve()
        speeds = np.maximum((demand.speeds * found.parts).sum(axis=1), 1e-9)
        reached = float(((ages_s + remaining_s / speeds) / alone_s).max())
        if ratio * (1 - NARROW) <= reached <= ratio:
            break
        ratio = reached
    return Shares(ratio, _equal_multiples(demand, targets(ratio)).parts)


def _equal_multiples(demand: Demand, targets: Floats) -> Shares:
    """Of the shares with the greatest multiple of the targets those in the middle, and that multiple."""
    found = _Program(demand, targets).solve()
    return Shares(found.value / float(targets.max()), found.parts)


class _Program:
    """max z: throughput >= z target for each job, time <= 1 for each job, GPUs <= capacity for each type.

    Often many shares reach the greatest z, and the others' slack says which are found: a simplex method ends
    in a corner, where most have the least that is fair. Gavel's authors solve it by an interior-point method,
    ECOS, which ends in the middle. So does this one, a primal-dual method that follows the central path:
    with slack s_i and price p_i of each constraint all s_i p_i are made alike and smaller, and at last
    the shares are those of the greatest product of slacks. Source: Wright, Primal-Dual Interior-Point
    Methods, SIAM 1997, chapters 2 and 5.

    Constraints are in one array: a job's part of each pool >= 0, throughputs, times, GPUs. Targets are
    divided by the largest, so that seconds and speeds are of one size.
    """

    def __init__(self, demand: Demand, targets: Floats) -> None:
        self._shape = jobs, pools = demand.speeds.shape
        self._open = demand.speeds > 0
        self._speeds, self._targets = demand.speeds, targets / targets.max()
        self._held = np.where(self._open, demand.gangs[:, None], 0.0)[:, :, None] * demand.pools
        self._asked = self._held.sum(axis=(0, 1))
        self._capacity = np.where(self._asked > 0, demand.capacity, 1.0)
        closed = 1.0 * ~self._open.ravel()
        self._bounds = np.concatenate([closed, np.zeros(jobs), np.ones(jobs), self._capacity])
        self._binds = np.concatenate([self._open.ravel(), np.ones(2 * jobs + len(demand.capacity), bool)])
        # For each job a system in its parts, and in the forces of its throughput and its time; what all jobs
        # share, z and the forces of the types, is the border.
        self._system = np.zeros((jobs, pools + 2, pools + 2))
        self._system[:, :pools, pools] = self._system[:, pools, :pools] = self._speeds
        self._system[:, :pools, -1] = self._system[:, -1, :pools] = -1.0 * self._open
        self._border = np.zeros((jobs, pools + 2, 1 + len(demand.capacity)))
        self._border[:, pools, 0] = -self._targets
        self._border[:, :pools, 1:] = -self._held

    def solve(self) -> Shares:
        """The greatest z, and the parts."""
        room = float((self._capacity / np.maximum(self._asked, self._capacity)).min())
        parts = np.where(self._open, room / (2 * self._shape[1]), 0.0)
        z = float(((self._speeds * parts).sum(axis=1) / self._targets).min()) / 2
        # How the constraints change with the parts and z, and from where.
        spent = (self._speeds * parts).sum(axis=1) - z * self._targets, -parts.sum(axis=1)
        used = -np.einsum("jpt,jp->t", self._held, parts)
        slacks = np.concatenate([parts.ravel(), *spent, used]) + self._bounds
        prices = np.where(self._binds, z / slacks, 0.0)
        taken = 0.0
        for _ in range(MOST_STEPS):
            gap, end = float(slacks @ prices), GAP * z
            # After a short step the next one goes for the middle, rather than on.
            aim = max(STEP * gap, (1 - taken) ** 2 * gap, end) / int(self._binds.sum())
            step, step_z, forces = self._newton(slacks, prices, aim)
            towards = forces * slacks / np.where(self._binds, prices, 1.0)
            prices_towards = np.where(self._binds, aim / slacks - prices - forces, 0.0)
            part, prices_part = _within(slacks, towards), _within(prices, prices_towards)
            taken = min(part, prices_part)
            parts, z = parts + part * step, z + part * step_z
            slacks, prices = slacks + part * towards, prices + prices_part * prices_towards
            if gap <= 2 * end and part == 1.0 and np.abs(step).max() < SETTLED:
                break
        assert isfinite(z), f"no time shares for {self._shape[0]} jobs"
        return Shares(z, parts.round(6))

    def _newton(self, slacks: Floats, prices: Floats, aim: float) -> tuple[Floats, float, Floats]:
        """The step to where each slack times its price is `aim`: parts, z, and its force on each constraint.

        The force on a constraint is price / slack x change of the slack.
        """
        jobs, pools = self._shape
        cuts = np.cumsum([jobs * pools, jobs, jobs])
        stay, speed, time, gpus = np.split(aim / slacks, cuts)
        soft = np.split(slacks / np.where(self._binds, prices, 1.0), cuts)
        places = np.arange(pools + 2)
        self._system[:, places, places] = np.column_stack(
            [1 / soft[0].reshape(self._shape), -soft[1], -soft[2]]
        )
        pull = stay.reshape(self._shape) + speed[:, None] * self._speeds - time[:, None] - self._held @ gpus
        right = np.zeros((jobs, pools + 2, 1))
        right[:, :pools, 0] = np.where(self._open, pull, 0.0)
        solved = np.linalg.solve(self._system, np.concatenate([self._border, right], axis=2))
        shared = np.einsum("jpi,jpk->ik", self._border, solved)
        matrix = -shared[:, :-1] - np.diag(np.concatenate([[0.0], soft[3]]))
        wanted = -shared[:, -1]
        wanted[0] += 1.0 - speed @ self._targets
        common = np.linalg.solve(matrix, wanted)
        own = solved[:, :, -1] - solved[:, :, :-1] @ common
        step = own[:, :pools]
        forces = np.concatenate([step.ravel() / soft[0], own[:, pools], own[:, -1], common[1:]])
        return step, float(common[0]), forces


def _within(values: Floats, change: Floats) -> float:
    """Which part of a change, at most 1, leaves all values positive."""
    falls = change < 0
    return min(1.0, float((CLOSE * values[falls] / -change[falls]).min(initial=inf)))
