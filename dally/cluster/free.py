"""Which GPUs are free: indexes by machine, rack, ... and GPU type that answer best-fit questions at once."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Gang


class FreeIndex:
    """Members 0..n-1, each with a count of free GPUs, found by count.

    For every count a bit set of its members, and a bit set of the counts in use. Python's integers make each
    operation a few machine words per 64 members, so a thousand racks cost what one does.
    """

    __slots__ = ("_counts", "_members")

    def __init__(self) -> None:
        self._members: dict[int, int] = {}
        self._counts = 0

    def add(self, member: int, count: int) -> None:
        """Insert a member that is not in the index."""
        self._members[count] = self._members.get(count, 0) | 1 << member
        self._counts |= 1 << count

    def move(self, member: int, old: int, new: int) -> None:
        """Change a member's count from `old` to `new`."""
        members, bit = self._members, 1 << member
        left = members[old] ^ bit
        if left:
            members[old] = left
        else:
            del members[old]
            self._counts ^= 1 << old
        if new in members:
            members[new] |= bit
        else:
            members[new] = bit
            self._counts |= 1 << new

    @property
    def most(self) -> int:
        """The greatest count."""
        return self._counts.bit_length() - 1

    def best_fit(self, count: int, exclude: int = 0) -> int | None:
        """The lowest member among those with the fewest free GPUs that are still at least `count`."""
        return next(self.fits(count, exclude), None)

    def fits(self, count: int, exclude: int = 0) -> Iterator[int]:
        """The members with at least `count` free GPUs, those with the fewest first; on ties the lowest."""
        counts = self._counts >> count << count
        while counts:
            lowest = counts & -counts
            members = self._members[lowest.bit_length() - 1] & ~exclude
            while members:
                yield (members & -members).bit_length() - 1
                members &= members - 1
            counts ^= lowest

    def needed(self, count: int, step: int = 1) -> int:
        """The fewest members that have `count` free GPUs together, each a multiple of `step`, as all do."""
        counts, needed = self._counts, 0
        while count > 0:
            most = counts.bit_length() - 1
            given = most - most % step
            taken = min(self._members[most].bit_count(), -(-count // given))
            needed += taken
            count -= taken * given
            counts ^= 1 << most
        return needed

    def fullest(self, exclude: int = 0) -> int | None:
        """The lowest member among those with the most free GPUs, at least one."""
        counts = self._counts & ~1
        while counts:
            highest = counts.bit_length() - 1
            members = self._members[highest] & ~exclude
            if members:
                return (members & -members).bit_length() - 1
            counts ^= 1 << highest
        return None


class _Pool:
    """Free units in every domain of the tree: GPUs of one type, or of all.

    Args:
        topology: The cluster.
        units: The free units of each machine.
    """

    __slots__ = ("_paths", "_topology", "by_level", "children", "free")

    def __init__(self, topology: Topology, units: Sequence[int]) -> None:
        self._topology = topology
        self.free = [0] * len(topology.domains)
        self.by_level = [FreeIndex() for _ in topology.levels[:-1]]
        self.children = {domain.index: FreeIndex() for domain in topology.domains if domain.children}
        for machine, count in enumerate(units):
            for ancestor in topology.ancestors[machine]:
                self.free[ancestor] += count
        position = {child: at for parent in topology.domains for at, child in enumerate(parent.children)}
        starts = [domains[0].index for domains in topology.level_domains]
        indexes: list[list[tuple[FreeIndex, int]]] = []
        for domain in topology.domains:
            kept = []
            if domain.parent is not None:
                kept.append((self.by_level[domain.level], domain.index - starts[domain.level]))
                if domain.parent != topology.root.index:
                    kept.append((self.children[domain.parent], position[domain.index]))
            for ranking, member in kept:
                ranking.add(member, self.free[domain.index])
            indexes.append(kept)
        # The root's children are one whole level, whose index serves both questions.
        self.children[topology.root.index] = self.by_level[topology.top - 1]
        self._paths = [[(domain, indexes[domain]) for domain in path] for path in topology.ancestors]

    def change(self, machine: int, delta: int) -> None:
        free = self.free
        for domain, indexes in self._paths[machine]:
            old = free[domain]
            free[domain] = new = old + delta
            for index, member in indexes:
                index.move(member, old, new)

    def best_domain(self, units: int, level: int) -> int | None:
        """The domain of `level` that holds `units` on the fewest children, then with the least to spare."""
        level = min(level, self._topology.widest)
        if level == self._topology.top:
            root = self._topology.root.index
            return root if self.free[root] >= units else None
        domains = self._topology.level_domains[level]
        if level == 0:
            machine = self.by_level[0].best_fit(units)
            return None if machine is None else domains[machine].index
        best, fewest = None, units + 1
        for member in self.by_level[level].fits(units):
            domain = domains[member].index
            needed = self._needed(domain, units)
            if needed < fewest:
                best, fewest = domain, needed
            if fewest == -(-units // self.by_level[level - 1].most):
                break
        return best

    def _needed(self, domain: int, units: int) -> int:
        """The fewest children of a domain that hold so many units together."""
        return self.children[domain].needed(units)

    def roomiest(self, level: int) -> int | None:
        """The domain of `level` with the most free units, at least one; on ties the lowest."""
        level = min(level, self._topology.widest)
        if level == self._topology.top:
            root = self._topology.root.index
            return root if self.free[root] else None
        member = self.by_level[level].fullest()
        return None if member is None else self._topology.level_domains[level][member].index

    def held(self, domain: int) -> int:
        """The most units that a domain can give one gang."""
        if self._topology.islands and domain == self._topology.root.index:
            return self.by_level[self._topology.widest].most
        return self.free[domain]

    def pack(self, domain: int, gpus: int, packed: list[tuple[int, int]]) -> None:
        """Choose `gpus` free GPUs in `domain` on the fewest children, level by level, best fit last."""
        children = self._topology.domains[domain].children
        if not children:
            packed.append((domain, gpus))
            return
        index, used = self.children[domain], 0
        while gpus:
            child = index.best_fit(gpus, used)
            if child is None:
                child = index.fullest(used)
            if child is None:
                raise AssertionError(f"domain {domain} has fewer free GPUs than its children say")
            used |= 1 << child
            share = min(gpus, self.free[children[child]])
            self.pack(children[child], share, packed)
            gpus -= share


class _Shares(_Pool):
    """Machines that have a fixed share of GPUs free, in every domain: the units of gangs of equal shares."""

    __slots__ = ("_gpus", "share")

    def __init__(self, topology: Topology, gpus: Sequence[int], share: int) -> None:
        super().__init__(topology, [int(count >= share) for count in gpus])
        self._gpus, self.share = list(gpus), share

    def change(self, machine: int, delta: int) -> None:
        before = self._gpus[machine]
        self._gpus[machine] = after = before + delta
        if (before >= self.share) != (after >= self.share):
            super().change(machine, 1 if delta > 0 else -1)

    def pack(self, domain: int, gpus: int, packed: list[tuple[int, int]]) -> None:
        """Choose `gpus` machines in `domain` on the fewest children, those with least to spare first."""
        children = self._topology.domains[domain].children
        if children and not self._topology.domains[children[0]].children:
            able = sorted((self._gpus[child], child) for child in children if self.free[child])
            packed.extend((child, self.share) for _, child in able[:gpus])
        elif children:
            super().pack(domain, gpus, packed)
        else:
            packed.append((domain, self.share))


class _Segments(_Shares):
    """The same for gangs whose machines come in segments, each in one block, the domain above the machines.

    Blocks are ranked by all of their machines; what one gives, also to the domains above, is a multiple of
    the segment.
    """

    __slots__ = ("_blocks", "_segment")

    def __init__(self, topology: Topology, gpus: Sequence[int], share: int, segment: int) -> None:
        self._segment = segment
        self._blocks = dict.fromkeys((domain.index for domain in topology.level_domains[1]), 0)
        super().__init__(topology, [0] * len(topology.machines), share)
        for machine, count in enumerate(gpus):
            if count:
                self.change(machine, count)

    def change(self, machine: int, delta: int) -> None:
        before = self._gpus[machine]
        self._gpus[machine] = after = before + delta
        if (before >= self.share) == (after >= self.share):
            return
        step, free = (1 if delta > 0 else -1), self.free
        own, (block, indexes), *above = self._paths[machine]
        for index, member in own[1]:
            index.move(member, free[machine], free[machine] + step)
        free[machine] += step
        had = self._blocks[block]
        self._blocks[block] = has = had + step
        for index, member in indexes:
            index.move(member, had, has)
        given = has - has % self._segment
        gained, free[block] = given - free[block], given
        if gained:
            for domain, indexes in above:
                old = free[domain]
                free[domain] = old + gained
                for index, member in indexes:
                    index.move(member, old, old + gained)

    def held(self, domain: int) -> int:
        most = super().held(domain)  # over islands that are blocks, machines of one
        return most - most % self._segment

    def _needed(self, domain: int, units: int) -> int:
        over_blocks = self._topology.domains[domain].level == 2
        return self.children[domain].needed(units, self._segment if over_blocks else 1)


_Wanted = tuple[str | None, int | None, frozenset[str] | None, int | None]
"""What gangs of one index ask for: GPU type, share of each machine, machines, segment."""

_MOST_FILTERS = 64
"""Indexes for some machines only that are kept."""


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
    return sum(count - count % gang.segment for count in blocks.values())


class FreeGpus:
    """The free GPUs of a cluster: taken and given back by allocations, searched by best fit.

    Args:
        topology: The cluster, all free at first.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._everything = _Pool(topology, [machine.gpus for machine in topology.machines])
        self._pools: dict[_Wanted, _Pool] = {(None, None, None, None): self._everything}
        self._pools_of: list[list[_Pool]] = [[self._everything] for _ in topology.machines]
        if len(topology.gpu_types) == 1:
            self._pools[topology.gpu_types[0], None, None, None] = self._everything
        self._log: list[tuple[int, int]] | None = None

    def _pool(
        self,
        gpu_type: str | None,
        share: int | None = None,
        machines: frozenset[str] | None = None,
        segment: int | None = None,
    ) -> _Pool | None:
        """The index for GPUs of a type, or shares of them, made when first asked for; None: no such type.

        Of the indexes for some machines only, those that were not asked for longest go: which machines jobs
        accept changes with the cluster, and every index costs time whenever a GPU is taken.
        """
        wanted = gpu_type, share, machines, segment
        pool = self._pools.get(wanted)
        if pool is not None:
            if machines is not None:
                self._pools[wanted] = self._pools.pop(wanted)
        elif gpu_type is None or gpu_type in self.topology.gpu_types:
            self._forget_oldest()
            gang = Gang(1, gpu_type, share, machines)
            accepted = [self.accepts(gang, machine) for machine in range(len(self.topology.machines))]
            free = [self._everything.free[index] if is_in else 0 for index, is_in in enumerate(accepted)]
            pool = self._made(free, share, segment)
            self._pools[wanted] = pool
            for is_in, pools in zip(accepted, self._pools_of, strict=True):
                if is_in:
                    pools.append(pool)
        return pool

    def _made(self, free: Sequence[int], share: int | None, segment: int | None) -> _Pool:
        if share is None:
            return _Pool(self.topology, free)
        if segment is None:
            return _Shares(self.topology, free, share)
        return _Segments(self.topology, free, share, segment)

    def _forget_oldest(self) -> None:
        of_some = [wanted for wanted in self._pools if wanted[2] is not None]
        for wanted in of_some[: len(of_some) + 1 - _MOST_FILTERS]:
            oldest = self._pools.pop(wanted)
            for pools in self._pools_of:
                pools[:] = [pool for pool in pools if pool is not oldest]

    def _pool_of(self, gang: Gang) -> _Pool | None:
        return self._pool(gang.gpu_type, gang.per_machine, gang.machines, gang.segment)

    def total(self, gpu_type: str | None = None, machines: frozenset[str] | None = None) -> int:
        """Free GPUs of one type, or of all for None, on some machines, or on all for None."""
        pool = self._pool(gpu_type, machines=machines)
        return 0 if pool is None else pool.free[self.topology.root.index]

    def usable(self, gang: Gang) -> int:
        """Free GPUs that a gang accepts, wherever they are; of one in segments those that make whole ones."""
        if gang.segment is not None:
            return self.held(self.topology.root.index, gang) * (gang.per_machine or 1)
        return self.total(gang.gpu_type, gang.machines)

    def on(self, domain: int, gpu_type: str | None = None) -> int:
        """Free GPUs in one domain."""
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
            self._change(machine, -gpus)

    def give(self, allocation: Allocation) -> None:
        """Mark GPUs as free again."""
        for machine, gpus in allocation:
            self._change(machine, gpus)

    def _change(self, machine: int, delta: int) -> None:
        for pool in self._pools_of[machine]:
            pool.change(machine, delta)
        if self._log is not None:
            self._log.append((machine, delta))

    def holds(self, allocation: Allocation) -> bool:
        """Whether all GPUs of an allocation are free."""
        free = self._everything.free
        return all(free[machine] >= gpus for machine, gpus in allocation)

    def lowest_level(self, gang: Gang, start: int = 0) -> int | None:
        """The lowest level, from `start` up, at which one domain holds the gang; None if none does."""
        pool, units = self._pool_of(gang), gang.units
        if pool is None or pool.free[self.topology.root.index] < units:
            return None
        for level in range(min(start, self.topology.widest), self.topology.top):
            if pool.by_level[level].most >= units:
                return max(level, start)
        return None if self.topology.islands else self.topology.top

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
        pool = self._pool_of(gang if level else gang._replace(per_machine=None, segment=None))
        return None if pool is None else pool.roomiest(level)

    def pack(self, domain: int, gang: Gang) -> Allocation:
        """GPUs for the gang out of those free in `domain`, on the fewest racks, then the fewest machines."""
        pool = self._pool_of(gang)
        if pool is None or pool.held(domain) < gang.units:
            raise AssertionError(f"domain {domain} does not hold {gang}")
        if self.topology.islands and domain == self.topology.root.index:
            island = pool.best_domain(gang.units, self.topology.widest)
            assert island is not None, "the root holds what its fullest island does"
            return self.pack(island, gang)
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
            for machine, delta in reversed(log):
                self._change(machine, -delta)
