"""Indexes of free GPUs by machine, rack, ...: best fit and packing, for one kind of gang each."""

from collections.abc import Iterable, Iterator, Sequence

from dally.cluster.topology import Topology
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

    def move(self, moved: int, old: int, new: int) -> None:
        """Change the count of members, a bit set, from `old` to `new`."""
        members = self._members
        left = members[old] ^ moved
        if left:
            members[old] = left
        else:
            del members[old]
            self._counts ^= 1 << old
        if new in members:
            members[new] |= moved
        else:
            members[new] = moved
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


class DomainUnits:
    """Free units in every domain of the tree: GPUs of one type, or of all.

    Args:
        topology: The cluster.
        units: The free units of each machine.
        highest: Index of the highest level at which one domain may hold a gang; None: the topology's.
    """

    __slots__ = ("_parents", "_places", "_topology", "by_level", "children", "free", "highest")

    def __init__(self, topology: Topology, units: Sequence[int], highest: int | None = None) -> None:
        self._topology = topology
        self.highest = topology.widest if highest is None else highest
        self.free = [0] * len(topology.domains)
        self.by_level = [FreeIndex() for _ in topology.levels[:-1]]
        self.children = {domain.index: FreeIndex() for domain in topology.domains if domain.children}
        # The root's children are one whole level, whose index serves both questions.
        self.children[topology.root.index] = self.by_level[topology.top - 1]
        self._parents = [-1 if domain.parent is None else domain.parent for domain in topology.domains]
        self._places = [0] * len(topology.domains)
        for machine, count in enumerate(units):
            for ancestor in topology.ancestors[machine]:
                self.free[ancestor] += count
        for parent in topology.domains:
            for place, child in enumerate(parent.children):
                self._places[child] = place
                self.children[parent.index].add(place, self.free[child])
        for domains, index in zip(topology.level_domains[:-2], self.by_level, strict=False):
            for place, domain in enumerate(domains):
                index.add(place, self.free[domain.index])

    def change(self, deltas: Iterable[tuple[int, int]]) -> None:
        """Machines, each once, have so many more free units, or fewer."""
        for level in range(self._topology.top + 1):
            deltas = self._change_level(level, deltas)

    def _change_level(self, level: int, deltas: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
        """Change domains of one level; what that changes on the next one.

        Those that come to have the same count are moved together: a gang often takes whole machines.
        """
        free, places, parents, children = self.free, self._places, self._parents, self.children
        if level == self._topology.top:
            for root, delta in deltas:
                free[root] += delta
            return ()
        first, root = self._topology.level_domains[level][0].index, self._topology.root.index
        moved: dict[tuple[int, int], int] = {}
        above: dict[int, int] = {}
        for domain, delta in deltas:
            old = free[domain]
            free[domain] = new = old + delta
            change = old, new
            moved[change] = moved.get(change, 0) | 1 << domain - first
            parent = parents[domain]
            above[parent] = above.get(parent, 0) + delta
            if parent != root:
                children[parent].move(1 << places[domain], old, new)
        for (old, new), members in moved.items():
            self.by_level[level].move(members, old, new)
        return above.items()

    def best_domain(self, units: int, level: int) -> int | None:
        """The domain of `level` that holds `units` on the fewest children, then with the least to spare."""
        level = min(level, self.highest)
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
        level = min(level, self.highest)
        if level == self._topology.top:
            root = self._topology.root.index
            return root if self.free[root] else None
        member = self.by_level[level].fullest()
        return None if member is None else self._topology.level_domains[level][member].index

    def held(self, domain: int) -> int:
        """The most units that a domain can give one gang."""
        if self._topology.domains[domain].level <= self.highest:
            return self.free[domain]
        if domain == self._topology.root.index:
            return self.by_level[self.highest].most
        return max(map(self.held, self._topology.domains[domain].children))

    def holding(self, domain: int, units: int) -> int | None:
        """A domain inside one above the highest level that holds so many units; None if there is none."""
        if domain == self._topology.root.index:
            return self.best_domain(units, self.highest)
        fits = [each for each in self._topology.domains[domain].children if self.held(each) >= units]
        return min(fits, key=self.held, default=None)

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
            share = min(gpus, self.held(children[child]))
            self.pack(children[child], share, packed)
            gpus -= share


class DomainShares(DomainUnits):
    """Machines that have a fixed share of GPUs free, in every domain: the units of gangs of equal shares."""

    __slots__ = ("_gpus", "share")

    def __init__(
        self, topology: Topology, gpus: Sequence[int], share: int, highest: int | None = None
    ) -> None:
        super().__init__(topology, [int(count >= share) for count in gpus], highest)
        self._gpus, self.share = list(gpus), share

    def change(self, deltas: Iterable[tuple[int, int]]) -> None:
        """Machines, each once, have so many more free GPUs, or fewer."""
        gpus, share = self._gpus, self.share
        steps = []
        for machine, delta in deltas:
            before = gpus[machine]
            gpus[machine] = after = before + delta
            if (before >= share) != (after >= share):
                steps.append((machine, 1 if delta > 0 else -1))
        if steps:
            super().change(steps)

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


class DomainSegments(DomainShares):
    """The same for gangs whose machines come in segments, each in one block, the domain above the machines.

    Blocks are ranked by all of their machines, or where segments are spread, by those of one; what one gives,
    also to the domains above, is a multiple of the segment.
    """

    __slots__ = ("_able", "_gang")

    def __init__(
        self, topology: Topology, gpus: Sequence[int], gang: Gang, highest: int | None = None
    ) -> None:
        assert gang.per_machine is not None, "segments have whole machines"
        self._gang = gang
        self._able = dict.fromkeys((domain.index for domain in topology.level_domains[1]), 0)
        super().__init__(topology, [0] * len(topology.machines), gang.per_machine, highest)
        self.change([(machine, count) for machine, count in enumerate(gpus) if count])

    def _change_level(self, level: int, deltas: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
        """The same; blocks pass on what changes in whole segments."""
        if level != 1:
            return super()._change_level(level, deltas)
        in_block = self._gang.in_block
        rank = in_block if level == self._topology.top else self._rank
        ranked: list[tuple[int, int]] = []
        above: dict[int, int] = {}
        for block, delta in deltas:
            had = self._able[block]
            self._able[block] = has = had + delta
            ranked.append((block, rank(has) - rank(had)))
            parent = self._parents[block]
            above[parent] = above.get(parent, 0) + in_block(has) - in_block(had)
        super()._change_level(level, ranked)
        return above.items()

    def _rank(self, machines: int) -> int:
        """By how many machines a block is ranked that has so many."""
        return min(machines, self._gang.segment or 0) if self._gang.spread else machines

    def held(self, domain: int) -> int:
        """The most machines that a domain can give one gang, in whole segments."""
        most = super().held(domain)  # where one domain is a block, by its machines
        return most - most % (self._gang.segment or 1)

    def _needed(self, domain: int, units: int) -> int:
        over_blocks = self._topology.domains[domain].level == 2
        return self.children[domain].needed(units, (self._gang.segment or 1) if over_blocks else 1)
