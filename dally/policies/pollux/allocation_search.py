"""Which job gets how many GPUs on which machine: a genetic search for the greatest mean speed-up.

Outside of a search an allocation of all GPUs is a matrix of GPUs, jobs by machines. Inside it is the job of
each GPU: (machines, GPUs of the largest machine) rows of that matrix, ascending on each machine, the number
of jobs where a GPU is free. A matrix of many jobs is nearly all zeros, so this is a hundredth of the work.

Each generation crosses pairs of good individuals, gives one job of each child another row, and repairs what
then does not fit. Source: Qiao et al., Pollux, OSDI 2021, section 4.2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dally.policies.common.arrays import Flags, Floats, Ints

States = NDArray[np.int16]
Owners = NDArray[np.unsignedinteger[Any]]

_LEAST_SPEEDUP = 1e-3
"""Added to each speed-up, so that a mean with a negative power exists while jobs wait."""

_BACK, _NONE = 0.1, 0.1
"""Shares of the children in which a job gets back what it has, or gets nothing."""

_ROOMIER = 1e6
"""More GPUs than any machine has."""

_SAME = 1e-9
"""Fitnesses that differ by less, relatively, are taken as one."""


@dataclass(frozen=True, slots=True)
class Allocations:
    """What is shared out, among whom, and what it is worth to them.

    Attributes:
        held: (jobs, machines) the GPUs that they have now; the first jobs keep most in a repair.
        capacity: (machines,) GPUs to share out.
        usable: (jobs, machines) whether a job accepts GPUs there.
        least: (jobs,) fewest GPUs that a job runs on.
        most: (jobs,) most that it may have.
        share: (jobs,) exactly so many on each of its machines; 0: however they fit.
        segment: (jobs,) in each block it has a multiple of so many machines.
        spread: (jobs,) whether that is so many at most.
        in_segments: (jobs,) whether a job has segments, or must be close together. Such jobs have a share
            and one size.
        whole_blocks: (jobs,) whether a job shares its blocks with no other.
        block: (machines,) the domain right above each, numbered from 0.
        area: (jobs, machines) the domain around each, numbered from 0, of the highest level at which one may
            hold the job.
        speedups: (jobs, types, 2, GPUs) speed-up by type, closeness and number of GPUs.
        fewest: (types, GPUs) the fewest machines that hold so many.
        kinds: The machines of each type.
        factor: (jobs,) what is left of a speed-up if its row changes.
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
    segment: Ints
    spread: Flags
    in_segments: Flags
    whole_blocks: Flags
    block: Ints
    area: Ints
    speedups: Floats
    fewest: Ints
    kinds: Sequence[Ints]
    factor: Floats
    taken: Flags
    avoid: bool
    power: float

    @property
    def jobs(self) -> int:
        """How many jobs there are; as the owner of a GPU: none."""
        return len(self.least)

    def owners(self, states: States) -> Owners:
        """(individuals, machines, GPUs) the job of each GPU, from (individuals, jobs, machines) GPUs."""
        by_machine = states.transpose(0, 2, 1)
        counts = by_machine.sum(axis=2, dtype=np.int64)
        gpus = max(int(self.capacity.max(initial=0)), int(counts.max(initial=0)))
        # The smallest type that holds them: most of the time goes into moving them.
        found = np.full((*counts.shape, gpus), self.jobs, dtype=np.min_scalar_type(self.jobs))
        found[np.arange(gpus) < counts[:, :, None]] = np.repeat(
            np.broadcast_to(np.arange(self.jobs), by_machine.shape).ravel(), by_machine.ravel()
        )
        return found

    def states(self, owners: Owners) -> States:
        """(individuals, jobs, machines) GPUs, from the job of each GPU."""
        individuals, machines, _ = owners.shape
        cells = self._rows(owners) * machines + np.arange(machines)[:, None]
        counts = np.bincount(cells.ravel(), minlength=individuals * (self.jobs + 1) * machines)
        return counts.reshape(individuals, self.jobs + 1, machines)[:, :-1].astype(np.int16)

    def values(self, owners: Owners) -> Floats:
        """(individuals, jobs) the speed-ups, less for changed rows; the slowest type of a row counts."""
        rows = self._rows(owners)
        gpus, machines = self._counted(rows), self._counted(rows[_first_of_each(owners)], len(owners))
        value = np.full(gpus.shape, np.inf)
        for kind, members in enumerate(self.kinds):
            apart = machines > self.fewest[kind][gpus]
            jobs, _, closeness, sizes = self.speedups.shape
            at = np.arange(jobs) * (closeness * sizes) + apart * sizes + gpus
            speedup = np.ascontiguousarray(self.speedups[:, kind]).take(at)
            if len(self.kinds) > 1:
                speedup[self._counted(rows[:, members]) == 0] = np.inf
            np.minimum(value, speedup, out=value)
        value[gpus == 0] = 0.0
        # A row that changes costs a restart, by which its speed-up is discounted (section 4.2).
        same = self._counted(rows[self._kept(owners)], len(owners)) == gpus
        same &= gpus == self.held.sum(axis=1)
        return np.where(same, value, value * self.factor)

    def fitness(self, values: Floats) -> Floats:
        """(individuals,) the power mean of speed-ups; the geometric one for power 0."""
        parts, weight = values + _LEAST_SPEEDUP, np.full(self.jobs, 1 / self.jobs)
        if self.power == 0:
            return np.asarray(np.exp(np.log(parts) @ weight))
        return np.asarray((parts**self.power @ weight) ** (1 / self.power))

    def bound(self) -> float:
        """A fitness that nothing exceeds: each job at its best, as if it were alone."""
        sizes = np.arange(self.speedups.shape[3])
        allowed = (sizes <= self.most[:, None])[:, None, None, :]
        alone = np.where(allowed, self.speedups, 0.0).max(axis=(1, 2, 3))
        kept = self.values(self.owners(self.held[None]))
        return float(self.fitness(np.maximum(alone * self.factor, kept))[0])

    def repaired(self, owners: Owners, capacity: Ints, taken: Flags) -> Owners:
        """What fits: rows of later jobs are cut first, and to nothing below the least.

        Args:
            owners: (individuals, machines, GPUs), ascending on each machine; more GPUs than there are may do.
            capacity: (individuals, machines).
            taken: (individuals, machines).
        """
        idle = self.jobs
        if self.avoid:
            rows = self._rows(owners)
            wide = self._of(self._counted(rows[_first_of_each(owners)], len(owners)) > 1, rows)
            # GPU by GPU: a minimum along the last, short axis takes thrice the time.
            first = reduce(np.minimum, np.moveaxis(np.where(wide, owners, idle), 2, 0))
            owners = np.where(wide & ((owners != first[:, :, None]) | taken[:, :, None]), idle, owners)
            owners.sort(axis=2)
        owners = owners[:, :, : int(self.capacity.max(initial=0))].copy()
        owners[np.arange(owners.shape[2]) >= capacity[:, :, None]] = idle
        shares, apart = bool(self.share.any()), bool(self.whole_blocks.any())
        if apart:
            owners[self._displaced(owners, owners)] = idle
        if shares:
            share = np.append(self.share, 0)[owners]
            on_machine = (owners[:, :, :, None] == owners[:, :, None, :]).sum(axis=3)
            owners[(share > 0) & (on_machine != share)] = idle
        if self.in_segments.any():
            owners[self._of(self._broken(owners), self._rows(owners))] = idle
        gangs = bool((self.least > 1).any())
        if gangs:  # else what is left of a row is enough
            self._cut_short_rows(owners)
        if shares or apart or gangs:  # GPUs came free amid the others
            owners.sort(axis=2)
        return owners

    def _cut_short_rows(self, owners: Owners) -> None:
        rows = self._rows(owners)
        owners[self._of(self._counted(rows) < self.least, rows)] = self.jobs

    def set_apart(self, owners: Owners, chosen: Ints) -> Owners:
        """What is left if, of jobs that cannot share a block, the chosen one of each individual stays.

        Args:
            owners: (individuals, machines, GPUs), that may share blocks with the chosen jobs only.
            chosen: (individuals,).
        """
        if not self.whole_blocks.any():
            return owners
        ranks = np.where(owners == chosen[:, None, None], -1, owners.astype(np.int64))
        owners = owners.copy()
        owners[self._displaced(owners, ranks)] = self.jobs
        self._cut_short_rows(owners)
        owners.sort(axis=2)
        return owners

    def _displaced(self, owners: Owners, ranks: Ints | Owners) -> Flags:
        """(individuals, machines, GPUs) whether a job must leave a block, where one shares it with nobody.

        In each block the job of the lowest rank stays, with all that can be there beside it.
        """
        alone = np.append(self.whole_blocks, False)[owners]
        keys = 2 * ranks.astype(np.int64) + alone  # odd: shares its blocks with nobody
        first = np.empty(owners.shape[:2], dtype=np.int64)
        for block in range(int(self.block.max(initial=-1)) + 1):
            inside = self.block == block
            first[:, inside] = keys[:, inside].min(axis=(1, 2))[:, None]
        lowest = first[:, :, None]
        stays = np.where(lowest % 2 == 1, keys == lowest, ~alone)
        return np.asarray(~stays & (owners < self.jobs))

    def _broken(self, owners: Owners) -> Flags:
        """(individuals, jobs) whether a job has part of a segment in a block, too many, or is far apart."""
        by_block = self._by_domain(owners, self.block[:, None])
        found = (by_block % self.segment[:, None] > 0).any(axis=2)
        if self.spread.any():
            found |= self.spread & (by_block.max(axis=2) > self.segment)
        if self.area.any():
            areas = np.vstack([self.area, np.zeros_like(self.area[:1])])[
                owners, np.arange(owners.shape[1])[:, None]
            ]
            found |= np.count_nonzero(self._by_domain(owners, areas), axis=2) > 1
        return np.asarray(found)

    def _by_domain(self, owners: Owners, domain: Ints) -> Ints:
        """(individuals, jobs, domains) the machines of each job, from the domain of each of its GPUs."""
        domains = int(domain.max()) + 1
        cells = (self._rows(owners) * domains + domain)[_first_of_each(owners)]
        counts = np.bincount(cells, minlength=len(owners) * (self.jobs + 1) * domains)
        return counts.reshape(len(owners), self.jobs + 1, domains)[:, :-1]

    def segments_row(self, job: int, room: Ints, blocks: Iterable[int]) -> Ints:
        """(machines,) the GPUs of a job in segments, block by block; none if the blocks have too few.

        Args:
            job: The job.
            room: (machines,) its share where it could have it, else 0.
            blocks: In this order.
        """
        area = self.area[job]
        if not area.any():
            return self._segments_within(job, room, blocks)
        in_order = [*blocks]
        of_block = area[np.unique(self.block, return_index=True)[1]]
        for one in dict.fromkeys(of_block[in_order].tolist()):
            row = self._segments_within(job, np.where(area == one, room, 0), in_order)
            if row.any():
                return row
        return np.zeros_like(room)

    def _segments_within(self, job: int, room: Ints, blocks: Iterable[int]) -> Ints:
        segment, share, spread = int(self.segment[job]), int(self.share[job]), bool(self.spread[job])
        wanted, row = int(self.least[job]) // share, np.zeros_like(room)
        for block in blocks:
            able = np.flatnonzero((room > 0) & (self.block == block))
            whole = segment if spread and len(able) > segment else len(able) // segment * segment
            taken = able[: min(whole, wanted)]
            row[taken] = share
            wanted -= len(taken)
        return row if wanted == 0 else np.zeros_like(room)

    def _rows(self, owners: Owners) -> Ints:
        """(individuals, machines, GPUs) where each GPU's job, or none, stands in a list of all."""
        return np.arange(len(owners))[:, None, None] * (self.jobs + 1) + owners

    def _counted(self, rows: Ints, individuals: int | None = None) -> Ints:
        """(individuals, jobs) how many GPUs each job has of those that `rows` tells of."""
        individuals = len(rows) if individuals is None else individuals
        counts = np.bincount(rows.ravel(), minlength=individuals * (self.jobs + 1))
        return counts.reshape(individuals, self.jobs + 1)[:, :-1]

    def _of(self, flags: Flags, rows: Ints) -> Flags:
        """(individuals, machines, GPUs) the flag of the job of each GPU; False where a GPU is free."""
        padded = np.zeros((len(flags), self.jobs + 1), dtype=bool)
        padded[:, :-1] = flags
        return np.asarray(padded.ravel().take(rows))

    def _kept(self, owners: Owners) -> Flags:
        """(individuals, machines, GPUs) whether a GPU is among those that its job holds now on that machine.

        The first h of a job on a machine where it holds h are; the owner h places before them is another.
        """
        individuals, machines, gpus = owners.shape
        places = np.arange(gpus)
        padded = np.zeros((self.jobs + 1, machines), dtype=np.int16)
        padded[:-1] = self.held
        held = padded.ravel().take(owners.astype(np.intp) * machines + np.arange(machines)[:, None])
        begin = gpus * np.arange(individuals * machines).reshape(individuals, machines, 1)
        before = owners.ravel().take(begin + np.maximum(places - held, 0))
        return np.asarray((places < held) | (before != owners))

    def filled(self, state: States) -> States:
        """(jobs, machines) a state plus least sizes of jobs that had nothing, in order, where they fit."""
        state = state.copy()
        free = self.capacity - state.sum(axis=0)
        wide = (np.count_nonzero(state, axis=1) > 1)[:, None] & (state > 0)
        taken = (self.taken | wide.any(axis=0)) if self.avoid else np.zeros_like(self.taken)
        for job in np.flatnonzero(~state.any(axis=1)):
            if not free.any():
                break
            # The least size on the machine that just holds it, else on the roomiest ones; or nothing.
            least, share = self.least[job], self.share[job]
            room = free * self.usable[job]
            if self.whole_blocks.any():
                barring = state if self.whole_blocks[job] else state[self.whole_blocks]
                room = np.where(np.isin(self.block, self.block[barring.any(axis=0)]), 0, room)
            if share:
                room = np.where(room >= share, share, 0)
            if room.max() >= least:
                machines = np.argmin(np.where(room >= least, free, free.max() + 1), keepdims=True)
            else:
                room = np.where(taken, 0, room)
                machines = np.argsort(-room, kind="stable")
            row = np.zeros_like(room)
            if self.in_segments[job]:
                blocks = np.bincount(self.block[room > 0])
                row = self.segments_row(int(job), room, np.argsort(-blocks, kind="stable").tolist())
                machines = np.flatnonzero(row)
            row[machines] = np.diff(np.minimum(room[machines].cumsum(), least), prepend=0)
            if row.sum() != least:
                continue
            state[job] = row
            free -= row
            if self.avoid and np.count_nonzero(row) > 1:
                taken = taken | (row > 0)
        return state


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search came to.

    Attributes:
        states: (kept, jobs, machines) the best of the last population, best first.
        fitness: (kept,) theirs.
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

    def run(self, seeds: States, generations: int, patience: int, kept: int = 1) -> SearchResult:
        """Breed until nothing can be better, or nothing better was found for a while.

        Args:
            seeds: (at least 1, jobs, machines) to start from; repaired first.
            generations: At most so many.
            patience: Stop after so many without a better best one.
            kept: How many of the best to tell.
        """
        problem = self.problem
        population = problem.owners(seeds[: self.size])
        shape = population.shape[:2]
        population = problem.repaired(
            population, np.broadcast_to(problem.capacity, shape), np.broadcast_to(problem.taken, shape)
        )
        values = problem.values(population)
        fitness = problem.fitness(values)
        bound, stale, held = problem.bound() * (1 - _SAME), 0, 0
        population, values, fitness = self._best(population, values, fitness)
        while held < generations and stale < patience and fitness[0] < bound:
            children = self._children(population, values)
            child_values, best = problem.values(children), fitness[0]
            population, values, fitness = self._best(
                np.concatenate((population, children)),
                np.concatenate((values, child_values)),
                np.concatenate((fitness, problem.fitness(child_values))),
            )
            held, stale = held + 1, 0 if fitness[0] > best * (1 + _SAME) else stale + 1
        return SearchResult(problem.states(population[:kept]), fitness[:kept], held)

    def _best(self, owners: Owners, values: Floats, fitness: Floats) -> tuple[Owners, Floats, Floats]:
        """The fittest, best first; those no fitter than the one before them only if others run out."""
        order = np.argsort(-fitness, kind="stable")
        again = np.diff(fitness[order], prepend=np.inf) == 0
        order = np.concatenate((order[~again], order[again]))[: self.size]
        order = order[np.argsort(-fitness[order], kind="stable")]
        return owners[order], values[order], fitness[order]

    def _children(self, population: Owners, values: Floats) -> Owners:
        """As many as there are to be individuals: two parents crossed, and another row for one job."""
        problem, rng, idle = self.problem, self.rng, self.problem.jobs
        parents = rng.integers(0, len(population), (2, 2, self.size)).min(axis=0)
        cut = rng.integers(0, 2 * idle, (self.size, 1))[:, :, None]
        first, second = population[parents[0]], population[parents[1]]
        crossed = np.concatenate(
            (np.where(first < cut, first, idle), np.where(second >= cut, second, idle)), axis=2
        )
        # The job that gets another row: of two at random the slower one.
        pair, worth = rng.integers(0, idle, (2, self.size)), values[parents[0]]
        slower = worth[self._rows, pair[0]] <= worth[self._rows, pair[1]]
        chosen = np.where(slower, pair[0], pair[1])
        crossed[crossed == chosen[:, None, None]] = idle
        crossed.sort(axis=2)
        rows = self._new_rows(np.count_nonzero(crossed < idle, axis=2), chosen)
        wide = (np.count_nonzero(rows, axis=1) > 1)[:, None] & (rows > 0)
        children = problem.repaired(crossed, problem.capacity - rows, problem.taken | wide)
        # The last GPUs of each machine are free now, as many as the new row needs.
        gpus = children.shape[2]
        new = np.arange(gpus) >= gpus - rows[:, :, None]
        children = np.where(new, chosen[:, None, None].astype(children.dtype), children)
        children.sort(axis=2)
        return problem.set_apart(children, chosen)

    def _new_rows(self, used: Ints, jobs: Ints) -> Ints:
        """(individuals, machines) another row for a job of each: of free GPUs, or of those of others too."""
        rng, problem = self.rng, self.problem
        free = np.maximum(problem.capacity - used, 0)
        anyhow = rng.random((self.size, 1)) < 0.5
        room = np.where(anyhow, problem.capacity, free) * problem.usable[jobs]
        if len(problem.kinds) > 1:  # GPUs of one type for half of them, of all for the others
            kinds = np.zeros(room.shape[1], dtype=np.int64)
            for kind, members in enumerate(problem.kinds):
                kinds[members] = kind
            drawn = rng.integers(0, 2 * len(problem.kinds), (self.size, 1))
            room *= (drawn >= len(problem.kinds)) | (kinds == drawn)
        # Sizes between the bounds, as likely to be doubled as to be halved.
        least, most = problem.least[jobs], problem.most[jobs]
        sizes = np.rint(least * (most / least) ** rng.random(self.size)).astype(np.int64)
        rows = self._fill(room, jobs, sizes)
        fate = rng.random((self.size, 1))
        held = problem.held[jobs]
        rows = np.where(fate < _BACK, np.minimum(held, problem.capacity), rows)
        rows[(fate[:, 0] > 1 - _NONE) | (rows.sum(axis=1) < least)] = 0
        return rows

    def _fill(self, room: Ints, jobs: Ints, gpus: Ints) -> Ints:
        """(individuals, machines) so many GPUs on one machine that just holds them, else on the roomiest."""
        share = self.problem.share[jobs][:, None]
        room = np.where(share > 0, np.where(room >= share, share, 0), room)
        # Of equal machines those that the job holds, then those near one at random: what is near in order is
        # near in the network.
        machines = room.shape[1]
        away = np.abs(np.arange(machines) - self.rng.integers(0, machines, (self.size, 1)))
        fits = room >= gpus[:, None]
        liking = np.where(fits, _ROOMIER - room, room) + (self.problem.held[jobs] > 0) - 2.0 * away / machines
        order = np.argsort(-liking, axis=1)
        taken = np.minimum(np.take_along_axis(room, order, axis=1).cumsum(axis=1), gpus[:, None])
        rows = np.zeros_like(room)
        np.put_along_axis(rows, order, np.diff(taken, axis=1, prepend=0), axis=1)
        rows[(rows != share) & (share > 0)] = 0
        blocks = int(self.problem.block.max(initial=0)) + 1
        for place in np.flatnonzero(self.problem.in_segments[jobs]):
            order = self.rng.permutation(blocks).tolist()
            rows[place] = self.problem.segments_row(int(jobs[place]), room[place], order)
        return rows


def _first_of_each(owners: Owners) -> Flags:
    """(individuals, machines, GPUs) whether a GPU is the first of its job on its machine."""
    first = np.ones(owners.shape, dtype=bool)
    np.not_equal(owners[:, :, 1:], owners[:, :, :-1], out=first[:, :, 1:])
    return first
