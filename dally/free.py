"""Which GPUs are free: indexes by machine, rack, ... and GPU type that answer best-fit questions at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from dally.topology import Allocation, Topology


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
        counts = self._counts >> count << count
        while counts:
            lowest = counts & -counts
            members = self._members[lowest.bit_length() - 1] & ~exclude
            if members:
                return (members & -members).bit_length() - 1
            counts ^= lowest
        return None

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
    """Free GPUs of one type, or of all, in every domain of the tree."""

    __slots__ = ("_paths", "_topology", "by_level", "children", "free")

    def __init__(self, topology: Topology, gpu_type: str | None) -> None:
        self._topology = topology
        self.free = [0] * len(topology.domains)
        self.by_level = [FreeIndex() for _ in topology.levels]
        self.children = {domain.index: FreeIndex() for domain in topology.domains if domain.children}
        for index, machine in enumerate(topology.machines):
            if gpu_type in (None, machine.gpu_type):
                for ancestor in topology.ancestors[index]:
                    self.free[ancestor] += machine.gpus
        position = {
            child: place for parent in topology.domains for place, child in enumerate(parent.children)
        }
        starts = [domains[0].index for domains in topology.level_domains]
        indexes: list[list[tuple[FreeIndex, int]]] = []
        for domain in topology.domains:
            kept = [(self.by_level[domain.level], domain.index - starts[domain.level])]
            if domain.parent is not None and domain.parent != topology.root.index:
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

    def best_domain(self, gpus: int, level: int) -> int | None:
        """The domain of `level` with the fewest free GPUs that still holds `gpus`."""
        member = self.by_level[level].best_fit(gpus)
        return None if member is None else self._topology.level_domains[level][member].index

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


class FreeGpus:
    """The free GPUs of a cluster: taken and given back by allocations, searched by best fit.

    Args:
        topology: The cluster, all free at first.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._pools: dict[str | None, _Pool] = {None: _Pool(topology, None)}
        for gpu_type in topology.gpu_types:
            several = len(topology.gpu_types) > 1
            self._pools[gpu_type] = _Pool(topology, gpu_type) if several else self._pools[None]
        everything = self._pools[None]
        self._pools_of = [
            [everything]
            if self._pools[machine.gpu_type] is everything
            else [everything, self._pools[machine.gpu_type]]
            for machine in topology.machines
        ]
        self._log: list[tuple[int, int]] | None = None

    def total(self, gpu_type: str | None = None) -> int:
        """Free GPUs of one type, or of all for None."""
        return self._pools[gpu_type].free[self.topology.root.index] if gpu_type in self._pools else 0

    def on(self, domain: int, gpu_type: str | None = None) -> int:
        """Free GPUs in one domain."""
        return self._pools[gpu_type].free[domain]

    def take(self, allocation: Allocation) -> None:
        """Mark GPUs as used. The caller must have checked that they are free."""
        for machine, gpus in allocation:
            if gpus > self._pools[None].free[machine]:
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
        free = self._pools[None].free
        return all(free[machine] >= gpus for machine, gpus in allocation)

    def lowest_level(self, gpus: int, gpu_type: str | None = None, start: int = 0) -> int | None:
        """The lowest level, from `start` up, at which one domain has `gpus` free GPUs; None if none has."""
        pool = self._pools.get(gpu_type)
        if pool is None or pool.free[self.topology.root.index] < gpus:
            return None
        for level in range(start, self.topology.top):
            if pool.by_level[level].most >= gpus:
                return level
        return self.topology.top

    def find(self, gpus: int, level: int, gpu_type: str | None = None) -> Allocation | None:
        """Free GPUs in the best-fitting domain of `level`, on few of its children; None if there are none.

        Best fit is the domain with the fewest free GPUs that suffice; ties go to the lowest index.
        """
        pool = self._pools.get(gpu_type)
        domain = None if pool is None else pool.best_domain(gpus, level)
        if pool is None or domain is None:
            return None
        return self.pack(domain, gpus, gpu_type)

    def machine_among(self, machines: int, gpus: int, gpu_type: str | None = None) -> int | None:
        """The best-fitting machine, of a bit set of machine indexes, that holds `gpus`; None if none."""
        pool = self._pools.get(gpu_type)
        return None if pool is None else pool.by_level[0].best_fit(gpus, ~machines)

    def roomiest(self, level: int, gpu_type: str | None = None) -> int | None:
        """The domain of `level` with the most free GPUs, on ties the lowest; None if none has any."""
        pool = self._pools.get(gpu_type)
        member = None if pool is None else pool.by_level[level].fullest()
        return None if member is None else self.topology.level_domains[level][member].index

    def pack(self, domain: int, gpus: int, gpu_type: str | None = None) -> Allocation:
        """`gpus` of the free GPUs of `domain`, on the fewest racks, then the fewest machines."""
        packed: list[tuple[int, int]] = []
        self._pools[gpu_type].pack(domain, gpus, packed)
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
