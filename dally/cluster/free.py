"""Which GPUs are free: indexes by machine, rack, ... and GPU type that answer best-fit questions at once."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

from dally.cluster.free_index import DomainSegments, DomainShares, DomainUnits
from dally.cluster.topology import Allocation, Topology, WholeBlocks
from dally.jobs.job import Gang

_Wanted = tuple[str | None, int | None, frozenset[str] | None, int | None, bool, bool, int | None]
"""What gangs of one index ask for: GPU type, share of each machine, machines, segment, whether segments are
spread, whether they share their blocks with nobody, and the highest level of one domain that is to hold them;
None if that is the topology's."""

_MOST_FILTERS = 64
"""Indexes for some machines only, or for segments, that are kept."""

_MOST_ACCEPTED = 1000
"""Sets of machines that gangs accept which are kept."""


def _may_go(wanted: _Wanted) -> bool:
    """Whether an index is one of those that may come to be too many."""
    _, _, machines, segment, _, whole_blocks, highest = wanted
    return machines is not None or segment is not None or whole_blocks or highest is not None


def placed(gang: Gang, allocation: Allocation) -> Allocation:
    """A gang's allocation as one that takes what the gang keeps from others, too."""
    return WholeBlocks(allocation) if gang.whole_blocks else allocation


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

    A block, the domain right above some machines, is unused if nobody has a GPU there. Only such blocks have
    something for gangs that share theirs with nobody.

    Args:
        topology: The cluster, all free at first.

    Attributes:
        capacity: GPUs of each machine that are not withheld.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.capacity = [machine.gpus for machine in topology.machines]
        self._everything = DomainUnits(topology, self.capacity)
        self._pools: dict[_Wanted, DomainUnits] = {(None,) * 4 + (False, False, None): self._everything}
        # Each index with whether it has a machine; None: it has all.
        self._indexes: list[tuple[DomainUnits, Sequence[bool] | None]] = [(self._everything, None)]
        # The same of indexes to which machines of blocks in use have no GPUs.
        self._of_unused: list[tuple[DomainUnits, Sequence[bool]]] = []
        if len(topology.gpu_types) == 1:
            self._pools[topology.gpu_types[0], None, None, None, False, False, None] = self._everything
        self._highest: dict[Gang, int] = {}
        self._least = min(self.capacity)
        self._accepted: dict[tuple[str | None, int, frozenset[str] | None], frozenset[str]] = {}
        self._log: list[tuple[int, int]] | None = None
        self._used: Counter[int] = Counter()
        self._foreign = [0] * len(topology.machines)
        self._whole: set[int] = set()

    def _pool(
        self,
        gpu_type: str | None,
        share: int | None = None,
        machines: frozenset[str] | None = None,
        segment: int | None = None,
        spread: bool = False,
        whole_blocks: bool = False,
        highest: int | None = None,
    ) -> DomainUnits | None:
        """The index for GPUs of a type, or shares of them, made when first asked for; None: no such type.

        Of the indexes for some machines only, or for segments, those not asked for longest go: which
        machines jobs accept changes with the cluster, users choose segments as they like, and every index
        costs time whenever a GPU is taken.
        """
        wanted = gpu_type, share, machines, segment, spread, whole_blocks, highest
        pool = self._pools.get(wanted)
        if pool is not None:
            if _may_go(wanted):
                self._pools[wanted] = self._pools.pop(wanted)
        elif gpu_type is None or gpu_type in self.topology.gpu_types:
            self._forget_oldest()
            gang = Gang(1, gpu_type, share, machines, segment, spread)
            accepted = [self.accepts(gang, machine) for machine in range(len(self.topology.machines))]
            free = [self._everything.free[index] if is_in else 0 for index, is_in in enumerate(accepted)]
            if whole_blocks:
                free = [gpus if self._is_unused(index) else 0 for index, gpus in enumerate(free)]
            pool = self._made(free, gang, highest)
            self._pools[wanted] = pool
            if whole_blocks:
                self._of_unused.append((pool, accepted))
            else:
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
            self._of_unused = [each for each in self._of_unused if each[0] is not oldest]

    def _pool_of(self, gang: Gang) -> DomainUnits | None:
        highest = self.highest(gang) if gang.consolidated else None
        highest = None if highest == self.topology.widest else highest
        layout = gang.segment, gang.spread, gang.whole_blocks, highest
        return self._pool(gang.gpu_type, gang.per_machine, gang.machines, *layout)

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

        Of a consolidated one the most of one domain that may hold it; of one that shares its blocks with
        nobody those in unused blocks.
        """
        if gang.segment is not None or gang.consolidated or gang.whole_blocks:
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

    def accepted(self, gang: Gang) -> frozenset[str] | None:
        """Names of the only machines that a gang could ever use, by name, GPU type and GPUs; None for all."""
        each = gang.per_machine or 1
        if each <= self._least and (gang.gpu_type is None or self.topology.gpu_types == (gang.gpu_type,)):
            return gang.machines
        key = gang.gpu_type, each, gang.machines
        if key not in self._accepted:
            if len(self._accepted) == _MOST_ACCEPTED:  # which machines jobs name changes with the cluster
                self._accepted.clear()
            self._accepted[key] = frozenset(
                machine.name
                for index, machine in enumerate(self.topology.machines)
                if machine.gpus >= each and self.accepts(gang, index)
            )
        return self._accepted[key]

    def held(self, domain: int, gang: Gang) -> int:
        """What a domain can give a gang, in the gang's units; it fits if that is `gang.units` or more."""
        pool = self._pool_of(gang)
        return 0 if pool is None else pool.held(domain)

    def block(self, machine: int) -> int:
        """The domain right above a machine."""
        return self.topology.ancestors[machine][1]

    def is_shared(self, machine: int) -> bool:
        """Whether somebody has GPUs in a machine's block who takes none from here."""
        return any(self._foreign[each] for each in self.topology.domains[self.block(machine)].children)

    def busy(self, block: int) -> int:
        """GPUs of a block that somebody uses, or keeps from others; 0 if the block is unused."""
        machines = self.topology.domains[block].children
        return self._used[block] + sum(self._foreign[machine] for machine in machines)

    def in_unused(self, left: Sequence[int], gang: Gang) -> list[int]:
        """What is left of each machine's GPUs for a gang that shares its blocks with nobody.

        Args:
            left: Per machine, by whatever plan; a block is unused if all that is not withheld is left of it.
            gang: The gang.
        """
        used = {self.block(machine) for machine, gpus in enumerate(self.capacity) if left[machine] < gpus} | {
            self.block(machine) for machine, gpus in enumerate(self._foreign) if gpus
        }
        return [
            gpus if self.block(machine) not in used and self.accepts(gang, machine) else 0
            for machine, gpus in enumerate(left)
        ]

    def _is_unused(self, machine: int) -> bool:
        return not self.busy(self.block(machine))

    def taken_by(self, allocation: Allocation) -> Sequence[tuple[int, int]]:
        """The GPUs that nobody else can have beside an allocation: its own, or all of its whole blocks."""
        if not isinstance(allocation, WholeBlocks):
            return allocation
        machines = self.topology.beside(machine for machine, _ in allocation)
        return [(machine, self.capacity[machine]) for machine in machines if self.capacity[machine]]

    def take(self, allocation: Allocation) -> None:
        """Mark GPUs as used. The caller must have checked that they are free."""
        taken = self.taken_by(allocation)
        for machine, gpus in taken:
            if gpus > self._everything.free[machine]:
                raise AssertionError(f"machine {machine} has no {gpus} free GPUs")
        if isinstance(allocation, WholeBlocks):
            self._whole |= {self.block(machine) for machine, _ in allocation}
        self._change([(machine, -gpus) for machine, gpus in taken])

    def give(self, allocation: Allocation) -> None:
        """Mark GPUs as free again."""
        if isinstance(allocation, WholeBlocks):
            self._whole -= {self.block(machine) for machine, _ in allocation}
        self._change(self.taken_by(allocation))

    def withhold(self, machine: int, gpus: int, closed: bool) -> None:
        """Nobody can have so many GPUs of a machine; not in a trial.

        Args:
            machine: Which.
            gpus: So many, instead of those until now; 0: all can be had.
            closed: Nobody has them either: they do not keep its block from being unused.
        """
        assert self._log is None, "a trial is under way"
        change = gpus - (self.topology.machines[machine].gpus - self.capacity[machine])
        whole = self.block(machine) in self._whole  # of such a block nothing is free
        if change > (self.capacity[machine] if whole else self._everything.free[machine]):
            raise AssertionError(f"machine {machine} has no {change} free GPUs")
        before = self._unused(((machine, 0),))
        self.capacity[machine] -= change
        self._foreign[machine] = 0 if closed else gpus
        if whole:
            self._used[self.block(machine)] -= change
        else:
            self._tell([(machine, -change)])
        self._tell_of_unused(before)

    def _change(self, deltas: Sequence[tuple[int, int]]) -> None:
        """Machines, each once, have so many more free GPUs, or fewer."""
        before = self._unused(deltas)
        for machine, gpus in deltas:
            self._used[self.block(machine)] -= gpus
        self._tell(deltas)
        self._tell_of_unused(before)
        if self._log is not None:
            self._log.extend(deltas)

    def _tell(self, deltas: Sequence[tuple[int, int]]) -> None:
        for pool, accepted in self._indexes:
            pool.change(deltas if accepted is None else [each for each in deltas if accepted[each[0]]])

    def _unused(self, machines: Iterable[tuple[int, int]]) -> dict[int, int]:
        """What the blocks of some machines have for gangs that share theirs with nobody, by machine."""
        if not self._of_unused:
            return {}
        found: dict[int, int] = {}
        for block in {self.block(machine) for machine, _ in machines}:
            unused = not self.busy(block)
            for machine in self.topology.domains[block].children:
                found[machine] = self._everything.free[machine] if unused else 0
        return found

    def _tell_of_unused(self, before: Mapping[int, int]) -> None:
        after = self._unused((machine, 0) for machine in before)
        deltas = [(each, after[each] - had) for each, had in before.items() if after[each] != had]
        for pool, accepted in self._of_unused if deltas else ():
            pool.change([each for each in deltas if accepted[each[0]]])

    def holds(self, allocation: Allocation) -> bool:
        """Whether all GPUs of an allocation are free; of whole blocks, whether nobody uses these."""
        free = self._everything.free
        if isinstance(allocation, WholeBlocks) and not all(self._is_unused(each) for each, _ in allocation):
            return False
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

    def find_closest(self, gang: Gang) -> Allocation | None:
        """The closest free GPUs for a gang; None if there are too few in any one domain."""
        level = self.lowest_level(gang)
        return None if level is None else self.find(gang, level)

    def machine_among(self, machines: int, gang: Gang) -> int | None:
        """The best-fitting machine, of a bit set of machine indexes, that holds the gang; None if none."""
        pool = self._pool(gang.gpu_type, machines=gang.machines, whole_blocks=gang.whole_blocks)
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
        return placed(gang, tuple(sorted(packed)))

    @contextmanager
    def trial(self) -> Iterator[Self]:
        """Try placements: everything taken or given inside is undone at the end."""
        if self._log is not None:
            raise AssertionError("a trial is under way")
        log: list[tuple[int, int]] = []
        self._log, whole = log, set(self._whole)
        try:
            yield self
        finally:
            self._log, self._whole = None, whole
            back: Counter[int] = Counter()
            for machine, delta in log:
                back[machine] -= delta
            self._change([(machine, delta) for machine, delta in back.items() if delta])
