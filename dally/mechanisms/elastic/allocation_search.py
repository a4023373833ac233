"""Which job gets how many GPUs on which machine: a genetic search for the greatest mean speed-up.

An individual is a matrix, jobs by machines, of GPUs; a population is (individuals, jobs, machines). Each
generation crosses pairs of good ones, gives one job of each child another row, and repairs what then does not
fit. Source: Qiao et al., Pollux, OSDI 2021, section 4.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dally.mechanisms.elastic.allocation_speeds import Floats, Ints

States = NDArray[np.int16]
Flags = NDArray[np.bool_]

_LEAST_SPEEDUP = 1e-3
"""Added to each speed-up, so that a mean with a negative power exists while jobs wait."""

_BACK, _NONE = 0.1, 0.1
"""Shares of the children in which a job gets back what it has, or has nothing."""

_ROOMIER = 1e6
"""More GPUs than any machine has."""

_SAME = 1e-9
"""Fitnesses that differ by less, relatively, are taken as one."""


def _counted(states: NDArray[Any]) -> Ints:
    """(individuals, jobs) sums over the machines; a product with ones, as that is several times as fast."""
    ones = np.ones(states.shape[2], dtype=np.float32)
    return (states.astype(np.float32) @ ones).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Allocations:
    """What is shared out, among whom, and what it is worth to them.

    Attributes:
        held: (jobs, machines) the GPUs that they have now; who comes first keeps most in a repair.
        capacity: (machines,) GPUs to share out.
        usable: (jobs, machines) whether a job accepts GPUs there.
        least: (jobs,) fewest GPUs that a job runs on.
        most: (jobs,) most that it may have.
        share: (jobs,) exactly so many on each of its machines; 0: however they fit.
        speedups: (jobs, types, 2, GPUs) speed-up by type, closeness and number of GPUs.
        fewest: (types, GPUs) the fewest machines that hold so many.
        kinds: The machines of each type.
        factor: (jobs,) what is left of a speed-up if its row changes.
        weight: (jobs,) of its speed-up in the mean.
        taken: (machines,) whether a job over several machines that stays is there.
        avoid: At most one job over several machines on each machine.
        power: Of the mean.
    """

    held: States
    capacity: Ints
    usable: Flags
    least: Ints
    most: Ints
    share: Ints
    speedups: Floats
    fewest: Ints
    kinds: Sequence[Ints]
    factor: Floats
    weight: Floats
    taken: Flags
    avoid: bool
    power: float

    def values(self, states: States) -> Floats:
        """(individuals, jobs) the speed-ups, less for changed rows; the slowest type of a row counts."""
        gpus, machines = _counted(states), _counted(states > 0)
        jobs, value = np.arange(states.shape[1]), np.full(gpus.shape, np.inf)
        for kind, members in enumerate(self.kinds):
            apart = (machines > self.fewest[kind][gpus]).astype(np.intp)
            speedup = self.speedups[jobs, kind, apart, gpus]
            if len(self.kinds) > 1:
                speedup = np.where(_counted(states[:, :, members]) > 0, speedup, np.inf)
            value = np.minimum(value, speedup)
        value = np.where(gpus > 0, value, 0.0)
        return np.where(_counted(states != self.held) > 0, value * self.factor, value)

    def fitness(self, values: Floats) -> Floats:
        """(individuals,) the weighted power mean of speed-ups; the geometric one for power 0."""
        parts = values + _LEAST_SPEEDUP
        if self.power == 0:
            return np.asarray(np.exp(np.log(parts) @ self.weight))
        return np.asarray((parts**self.power @ self.weight) ** (1 / self.power))

    def bound(self) -> float:
        """A fitness that nothing exceeds: each job at its best, as if it were alone."""
        sizes = np.arange(self.speedups.shape[3])
        allowed = (sizes <= self.most[:, None])[:, None, None, :]
        alone = np.where(allowed, self.speedups, 0.0).max(axis=(1, 2, 3))
        kept = self.values(self.held[None])
        return float(self.fitness(np.maximum(alone * self.factor, kept))[0])

    def repair(self, states: States, capacity: Ints, taken: Flags) -> None:
        """Cut rows, in place, until all fits: those of later jobs first, and to nothing below the least.

        Args:
            states: (individuals, jobs, machines).
            capacity: (individuals, machines).
            taken: (individuals, machines).
        """
        if self.avoid:
            on = (some := states > 0) & (_counted(some) > 1)[:, :, None]
            before = on.cumsum(axis=1, dtype=np.int16) + taken[:, None, :]
            states[on & (before > 1)] = 0
        np.cumsum(states, axis=1, out=states)
        np.minimum(states, capacity[:, None, :], out=states)
        states[:, 1:] -= states[:, :-1].copy()
        if self.share.any():
            share = self.share[:, None]
            states[(share > 0) & (states != share)] = 0
        states[_counted(states) < self.least] = 0

    def filled(self, state: States) -> States:
        """(jobs, machines) a state plus least sizes of those who had nothing, in order, where they fit."""
        state = state.copy()
        free = self.capacity - state.sum(axis=0)
        wide = (np.count_nonzero(state, axis=1) > 1)[:, None] & (state > 0)
        taken = (self.taken | wide.any(axis=0)) if self.avoid else np.zeros_like(self.taken)
        for job in np.flatnonzero(~state.any(axis=1)):
            if not free.any():
                break
            row = self._least_row(job, free, taken)
            state[job] = row
            free -= row
            if self.avoid and np.count_nonzero(row) > 1:
                taken = taken | (row > 0)
        return state

    def _least_row(self, job: np.intp, free: Ints, taken: Flags) -> Ints:
        """(machines,) its least GPUs on the machine that just holds them, else on the roomiest; or none."""
        least, share = self.least[job], self.share[job]
        room = free * self.usable[job]
        if share:
            room = np.where(room >= share, share, 0)
        if room.max() >= least:
            machines = np.argmin(np.where(room >= least, free, free.max() + 1), keepdims=True)
        else:
            room = np.where(taken, 0, room)
            machines = np.argsort(-room, kind="stable")
        row = np.zeros_like(room)
        row[machines] = np.diff(np.minimum(room[machines].cumsum(), least), prepend=0)
        return row if row.sum() == least else np.zeros_like(row)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to.

    Attributes:
        states: (individuals, jobs, machines) the last population, best first.
        fitness: (individuals,) theirs.
        generations: How many were held.
    """

    states: States
    fitness: Floats
    generations: int


class AllocationSearch:
    """A genetic search over allocation matrices.

    Args:
        problem: What is shared out.
        rng: Where all chance comes from.
        size: Individuals.
    """

    def __init__(self, problem: Allocations, rng: np.random.Generator, size: int) -> None:
        self.problem = problem
        self.rng = rng
        self.size = size
        self._rows = np.arange(size)

    def run(self, seeds: States, generations: int, patience: int) -> Found:
        """Breed until nothing can be better, or nothing better was found for a while.

        Args:
            seeds: (at least 1, jobs, machines) to start from; repaired first.
            generations: At most so many.
            patience: Stop after so many without a better best one.
        """
        problem = self.problem
        population = seeds[: self.size].astype(np.int16)
        self._fit(population)
        values, fitness = self._judge(population)
        bound, stale, held = problem.bound() * (1 - _SAME), 0, 0
        population, values, fitness = self._best(population, values, fitness)
        while held < generations and stale < patience and fitness[0] < bound:
            children = self._children(population, values)
            child_values, child_fitness = self._judge(children)
            best = fitness[0]
            population, values, fitness = self._best(
                np.concatenate((population, children)),
                np.concatenate((values, child_values)),
                np.concatenate((fitness, child_fitness)),
            )
            held, stale = held + 1, 0 if fitness[0] > best * (1 + _SAME) else stale + 1
        return Found(population, fitness, held)

    def _judge(self, states: States) -> tuple[Floats, Floats]:
        values = self.problem.values(states)
        return values, self.problem.fitness(values)

    def _fit(self, states: States) -> None:
        problem, shape = self.problem, (len(states), len(self.problem.capacity))
        self.problem.repair(
            states, np.broadcast_to(problem.capacity, shape), np.broadcast_to(problem.taken, shape)
        )

    def _best(self, states: States, values: Floats, fitness: Floats) -> tuple[States, Floats, Floats]:
        """The fittest, best first; those no fitter than the one before them only if others run out."""
        order = np.argsort(-fitness, kind="stable")
        again = np.diff(fitness[order], prepend=np.inf) == 0
        order = np.concatenate((order[~again], order[again]))[: self.size]
        order = order[np.argsort(-fitness[order], kind="stable")]
        return states[order], values[order], fitness[order]

    def _children(self, population: States, values: Floats) -> States:
        """As many as there are to be individuals: two parents crossed, and another row for one job."""
        rng, jobs = self.rng, population.shape[1]
        parents = rng.integers(0, len(population), (2, 2, self.size)).min(axis=0)
        cut = rng.integers(0, 2 * jobs, (self.size, 1))
        first = np.arange(jobs) < cut
        children = population[np.where(first, *parents[:, :, None]), np.arange(jobs)]
        chosen = self._chosen(values[parents[0]])
        children[self._rows, chosen] = 0
        rows = self._new_rows(children, chosen)
        wide = (np.count_nonzero(rows, axis=1) > 1)[:, None] & (rows > 0)
        problem = self.problem
        problem.repair(children, problem.capacity - rows, problem.taken | wide)
        children[self._rows, chosen] = rows
        return np.asarray(children)

    def _chosen(self, values: Floats) -> Ints:
        """(individuals,) the job that gets another row: of two at random the slower one."""
        pair = self.rng.integers(0, values.shape[1], (2, self.size))
        slower = values[self._rows, pair[0]] <= values[self._rows, pair[1]]
        return np.asarray(np.where(slower, pair[0], pair[1]))

    def _new_rows(self, states: States, jobs: Ints) -> Ints:
        """(individuals, machines) another row for a job of each: of free GPUs, or of those of others too."""
        rng, problem = self.rng, self.problem
        free = np.maximum(problem.capacity - states.sum(axis=1), 0)
        anyhow = rng.random((self.size, 1)) < 0.5
        room = np.where(anyhow, problem.capacity, free) * problem.usable[jobs]
        if len(problem.kinds) > 1:
            room *= self._one_kind(room.shape)
        rows = self._fill(room, jobs, self._sizes(jobs))
        fate = rng.random((self.size, 1))
        held = problem.held[jobs]
        rows = np.where(fate < _BACK, np.minimum(held, problem.capacity), rows)
        rows[(fate[:, 0] > 1 - _NONE) | (rows.sum(axis=1) < problem.least[jobs])] = 0
        return rows

    def _sizes(self, jobs: Ints) -> Ints:
        """(individuals,) GPUs for a job of each: as likely to be doubled as to be halved."""
        least, most = self.problem.least[jobs], self.problem.most[jobs]
        return np.rint(least * (most / least) ** self.rng.random(self.size)).astype(np.int64)

    def _one_kind(self, shape: tuple[int, ...]) -> Flags:
        """(individuals, machines) those of one GPU type for half of them, all for the others."""
        kinds = np.zeros(shape[1], dtype=np.int64)
        for kind, members in enumerate(self.problem.kinds):
            kinds[members] = kind
        drawn = self.rng.integers(0, 2 * len(self.problem.kinds), (shape[0], 1))
        return np.asarray((drawn >= len(self.problem.kinds)) | (kinds == drawn))

    def _distance(self, room: Ints) -> Floats:
        """(individuals, machines) from one at random, 0 to 2: who is near in order is near in the network."""
        size, machines = room.shape
        away = np.abs(np.arange(machines) - self.rng.integers(0, machines, (size, 1)))
        return np.asarray(2.0 * away / machines)

    def _fill(self, room: Ints, jobs: Ints, gpus: Ints) -> Ints:
        """(individuals, machines) so many GPUs on one machine that just holds them, else on the roomiest."""
        share = self.problem.share[jobs][:, None]
        room = np.where(share > 0, np.where(room >= share, share, 0), room)
        fits = room >= gpus[:, None]
        liking = np.where(fits, _ROOMIER - room, room) + (self.problem.held[jobs] > 0) - self._distance(room)
        order = np.argsort(-liking, axis=1)
        taken = np.minimum(np.take_along_axis(room, order, axis=1).cumsum(axis=1), gpus[:, None])
        rows = np.zeros_like(room)
        np.put_along_axis(rows, order, np.diff(taken, axis=1, prepend=0), axis=1)
        rows[(rows != share) & (share > 0)] = 0
        return rows
