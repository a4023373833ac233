"""Which GPUs are free: indexes by machine, rack, ... and GPU type that answer best-fit questions at once."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from dally.cluster.free_index import DomainSegments, DomainShares, DomainUnits
from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Gang

_Wanted = tuple[str | None, int | None, frozenset[str] | None, int | None, bool, int | None]
"""What gangs of one index ask for: GPU type, share of each machine, machines, segment, whether segments are
spread, and the highest level of one domain that is to hold them; None if that is the topology's."""

_MOST_FILTERS = 64
"""Indexes for some machines only, or for segments, that are kept."""


def _may_go(wanted: _Wanted) -> bool:
    """Whether an index is one of those that may come to be too many."""
    _, _, machines, segment, _, highest = wanted
    return machines is not None or segment is not None or highest is not None


def most_units(topology: Topology, gang: Gang, gpus: Iterable[tuple[int, int]]) -> int:
    """The most that machines could give a gang together, in its units, whatever level it then spans.

    Args:
        topology: The cluster.
        gang: The gang; it must accept these machines.
        gpus: Machines, each once, with the GPUs that it could have there.
    """
    if gang.segment is None:
        return sum(gang.held(count) for _, count in gpus)
    blocks = Counter(topology.ancestors[machine][1] for machine, count in gpus if gang.held(count))
    return sum(map(gang.in_block, blocks.values()))


class FreeGpus:
    """The free GPUs of a cluster: taken and given back by allocations, searched by best fit.

    Args:
        topology: The cluster, all free at first.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._everything = DomainUnits(topology, [machine.gpus for machine in topology.machines])
        self._pools: dict[_Wanted, DomainUnits] = {(None,) * 4 + (False, None): self._everything}
        # Each index with whether it has a machine; None: it has all.
        self._indexes: list[tuple[DomainUnits, Sequence[bool] | None]] = [(self._everything, None)]
        if len(topology.gpu_types) == 1:
            self._pools[topology.gpu_types[0], None, None, None, False, None] = self._everything
        self._highest: dict[Gang, int] = {}
        self._log: list[tuple[int, int]] | None = None

    def _pool(
        self,
        gpu_type: str | None,
        share: int | None = None,
        machines: frozenset[str] | None = None,
        segment: int | None = None,
        spread: bool = False,
        highest: int | None = None,
    ) -> DomainUnits | None:
        """The index for GPUs of a type, or shares of them, made when first asked for; None: no such type.

        Of the indexes for some machines only, or for segments, those not asked for longest go: which
        machines jobs accept changes with the cluster, users choose segments as they like, and every index
        costs time whenever a GPU is taken.
        """
        wanted = gpu_type, share, machines, segment, spread, highest
        pool = self._pools.get(wanted)
        if pool is not None:
            if _may_go(wanted):
                self._pools[wanted] = self._pools.pop(wanted)
        elif gpu_type is None or gpu_type in self.topology.gpu_types:
            self._forget_oldest()
            gang = Gang(1, gpu_type, share, machines, segment, spread)
            accepted = [self.accepts(gang, machine) for machine in range(len(self.topology.machines))]
            free = [self._everything.free[index] if is_in else 0 for index, is_in in enumerate(accepted)]
            pool = self._made(free, gang, highest)
            self._pools[wanted] = pool
            self._indexes.append((pool, None if all(accepted) else accepted))
        return pool

    def _made(self, free: Sequence[int], gang: Gang, highest: int | None) -> DomainUnits:
        if gang.per_machine is None:
            return DomainUnits(self.topology, free, highest)
        if gang.segment is None:
            return DomainShares(self.topology, free, gang.per_machine, highest)
        return DomainSegments(self.topology, free, gang, highest)

    def _forget_oldest(self) -> None:
        of_some = [wanted for wanted in self._pools if _may_go(wanted)]
        for wanted in of_some[: len(of_some) + 1 - _MOST_FILTERS]:
            oldest = self._pools.pop(wanted)
            self._indexes = [each for each in self._indexes if each[0] is not oldest]

    def _pool_of(self, gang: Gang) -> DomainUnits | None:
        highest = self.highest(gang) if gang.consolidated else None
        highest = None if highest == self.topology.widest else highest
        return self._pool(gang.gpu_type, gang.per_machine, gang.machines, gang.segment, gang.spread, highest)

    def highest(self, gang: Gang) -> int:
        """Index of the highest level at which one domain may hold a gang.

        That of one that is consolidated is the lowest at which a domain has enough machines, or where its
        segments are spread, enough blocks: whatever GPUs they have, and whoever holds these. Source: the use
        of CONSOLIDATE_SEGMENTS in Slurm's topology/block/eval_nodes_block.c.
        """
        if not gang.consolidated:
            return self.topology.widest
        key = Gang(gang.units, segment=gang.segment, spread=gang.spread)
        if key not in self._highest:
            wanted = gang.units // (gang.segment or 1) if gang.spread else gang.units
            self._highest[key] = next(
                (level for level, most in enumerate(self._most_in(gang.spread)) if most >= wanted),
                self.topology.widest,
            )
        return self._highest[key]

    def _most_in(self, blocks: bool) -> Iterator[int]:
        """The most machines, or blocks, that a domain of each level has, from the lowest level up."""
        paths = {path[int(blocks) :] for path in self.topology.ancestors}
        for above in range(-int(blocks), self.topology.widest + 1 - int(blocks)):
            yield max(Counter(path[above] for path in paths).values()) if above >= 0 else 0

    def total(self, gpu_type: str | None = None, machines: frozenset[str] | None = None) -> int:
        """Free GPUs of one type, or of all for None, on some machines, or on all for None."""
        pool = self._pool(gpu_type, machines=machines)
        return 0 if pool is None else pool.free[self.topology.root.index]

    def usable(self, gang: Gang) -> int:
        """Free GPUs that a gang accepts, wherever they are; of one in segments those that make whole ones.

        Of a consolidated one the most of one domain that may hold it.
        """
        if gang.segment is not None or gang.consolidated:
            return self.held(self.topology.root.index, gang) * (gang.per_machine or 1)
        return self.total(gang.gpu_type, gang.machines)

    def on(self, domain: int, gpu_type: str | None = None) -> int:
        """Free GPUs in one domain."""
        if gpu_type is None:
            return self._everything.free[domain]
        pool = self._pool(gpu_type)
        return 0 if pool is None else pool.free[domain]

    def accepts(self, gang: Gang, machine: int) -> bool:
        """Whether a gang may use a machine: one of its type, and one of those that it accepts."""
        asked = self.topology.machines[machine]
        return gang.gpu_type in (None, asked.gpu_type) and (
            gang.machines is None or asked.name in gang.machines
        )

    def held(self, domain: int, gang: Gang) -> int:
        """What a domain can give a gang, in the gang's units; it fits if that is `gang.units` or more."""
        pool = self._pool_of(gang)
        return 0 if pool is None else pool.held(domain)

    def take(self, allocation: Allocation) -> None:
        """Mark GPUs as used. The caller must have checked that they are free."""
        for machine, gpus in allocation:
            if gpus > self._everything.free[machine]:
                raise AssertionError(f"machine {machine} has no {gpus} free GPUs")
        self._change([(machine, -gpus) for machine, gpus in allocation])

    def give(self, allocation: Allocation) -> None:
        """Mark GPUs as free again."""
        self._change(allocation)

    def _change(self, deltas: Sequence[tuple[int, int]]) -> None:
        """Machines, each once, have so many more free GPUs, or fewer."""
        for pool, accepted in self._indexes:
            pool.change(deltas if accepted is None else [each for each in deltas if accepted[each[0]]])
        if self._log is not None:
            self._log.extend(deltas)

    def holds(self, allocation: Allocation) -> bool:
        """Whether all GPUs of an allocation are free."""
        free = self._everything.free
        return all(free[machine] >= gpus for machine, gpus in allocation)

    def lowest_level(self, gang: Gang, start: int = 0) -> int | None:
        """The lowest level, from `start` up, at which one domain holds the gang; None if none does."""
        pool, units = self._pool_of(gang), gang.units
        if pool is None or pool.free[self.topology.root.index] < units:
            return None
        for level in range(min(start, pool.highest), min(pool.highest + 1, self.topology.top)):
            if pool.by_level[level].most >= units:
                return max(level, start)
        return self.topology.top if pool.highest == self.topology.top else None

    def find(self, gang: Gang, level: int) -> Allocation | None:
        """Free GPUs in the best-fitting domain of `level`, on few of its children; None if there are none.

        Best fit is the domain that holds the gang on the fewest children: the network slows gangs on more
        machines of a rack down more. Of those it is the one with least to spare; ties go to the lowest index.
        """
        if level == 0 and gang.gpus == gang.per_machine:
            return self.find(gang._replace(per_machine=None), level)
        pool = self._pool_of(gang)
        domain = None if pool is None else pool.best_domain(gang.units, level)
        return None if domain is None else self.pack(domain, gang)

    def machine_among(self, machines: int, gang: Gang) -> int | None:
        """The best-fitting machine, of a bit set of machine indexes, that holds the gang; None if none."""
        pool = self._pool(gang.gpu_type, machines=gang.machines)
        return None if pool is None else pool.by_level[0].best_fit(gang.gpus, ~machines)

    def roomiest(self, level: int, gang: Gang) -> int | None:
        """The domain of `level` that could give the gang most, on ties the lowest; None if none has any."""
        pool = self._pool_of(gang if level else gang.unsegmented._replace(per_machine=None))
        return None if pool is None else pool.roomiest(level)

    def pack(self, domain: int, gang: Gang) -> Allocation:
        """GPUs for the gang out of those free in `domain`, on the fewest racks, then the fewest machines."""
        pool = self._pool_of(gang)
        if pool is None or pool.held(domain) < gang.units:
            raise AssertionError(f"domain {domain} does not hold {gang}")
        if self.topology.domains[domain].level > pool.highest:
            inside = pool.holding(domain, gang.units)
            assert inside is not None, "a domain above holds what the fullest inside does"
            return self.pack(inside, gang)
        packed: list[tuple[int, int]] = []
        pool.pack(domain, gang.units, packed)
        return tuple(sorted(packed))

    @contextmanager
    def trial(self) -> Iterator[Self]:
        """Try placements: everything taken or given inside is undone at the end."""
        if self._log is not None:
            raise AssertionError("a trial is under way")
        log: list[tuple[int, int]] = []
        self._log = log
        try:
            yield self
        finally:
            self._log = None
            back: Counter[int] = Counter()
            for machine, delta in log:
                back[machine] -= delta
            self._change([(machine, delta) for machine, delta in back.items() if delta])
