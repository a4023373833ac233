"""Placements of gangs: the closest on free GPUs, and which jobs to stop so that there is one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import fsum

from dally.cluster.free import FreeGpus, most_units
from dally.cluster.topology import Allocation
from dally.jobs.job import Gang, Job
from dally.state import JobState
from dally.words import plural


@dataclass(frozen=True, slots=True)
class Placement:
    """GPUs for a gang, all in one domain of `level`."""

    allocation: Allocation
    level: int


def closest(free: FreeGpus, job: Job, lowest: int, highest: int) -> Placement | None:
    """The best fit at the lowest level, from `lowest` to `highest`, that holds the gang now; None if none."""
    level = free.lowest_level(job.gang, lowest)
    if level is None or level > highest:
        return None
    allocation = free.find(job.gang, level)
    return None if allocation is None else Placement(allocation, level)


def accepted(gang: Gang) -> str:
    """Which free GPUs are counted for a gang, in words; see `FreeGpus.usable`."""
    if gang.segment is not None:
        return f"in segments of {plural(gang.segment, 'machine')}{gang.layout}"
    if gang.layout:
        return gang.layout.removeprefix(", ")
    return "in all" if gang.machines is None else "on machines that it accepts"


def takers(free: FreeGpus, job: JobState, places: Iterable[tuple[str, Allocation]]) -> tuple[str, ...]:
    """The names of the jobs, with their new places, that get GPUs on machines which a job loses."""
    machines = {machine for machine, _ in free.taken_by(job.allocation)}
    return tuple(
        name for name, place in places if any(machine in machines for machine, _ in free.taken_by(place))
    )


class Gains:
    """What one domain after another could give a gang as allocations come free.

    Args:
        free: What is free now.
        gang: The GPUs that are asked for.
        level: Level of the domains; above the highest that may hold the gang, that one.
    """

    def __init__(self, free: FreeGpus, gang: Gang, level: int) -> None:
        self._free, self._gang, self._level = free, gang, min(level, free.highest(gang))
        self._takes_all = gang.machines is None and (
            gang.gpu_type is None or free.topology.gpu_types == (gang.gpu_type,)
        )
        self._on: dict[int, int] = {}
        self._units: dict[int, int] = {}
        self._in_block: dict[int, int] = {}
        self._busy: dict[int, int] = {}

    def lacks(self) -> int:
        """How many units must come free at the least before any domain holds the gang; 0 if one does."""
        gang = self._gang.unsegmented
        roomiest = self._free.roomiest(self._level, gang)
        has = 0 if roomiest is None else self._free.held(roomiest, gang)
        return max(0, gang.units - has)

    def most(self, allocation: Allocation) -> int:
        """The most units that an allocation could give a domain: of equal shares each machine gives one."""
        if self._gang.whole_blocks:  # the last GPU in use keeps all of its block from it
            return self._gang.units
        taken = self._free.taken_by(allocation)
        return len(taken) if self._gang.per_machine is not None else sum(gpus for _, gpus in taken)

    def add(self, allocation: Allocation) -> list[int]:
        """Count GPUs that come free; the domains that gain some and hold the gang now."""
        gaining = self._gain(self._usable(allocation))
        return [domain for domain in gaining if self.spare(domain) >= 0]

    def spare(self, domain: int) -> int:
        """What a domain could give beyond what the gang needs, in its units; negative: what it lacks."""
        return self._free.held(domain, self._gang) + self._units.get(domain, 0) - self._gang.units

    def needs(self, allocation: Allocation, domain: int) -> bool:
        """Whether the gang no longer fits without this part of what came free; if it does, it is dropped."""
        ancestors, level = self._free.topology.ancestors, self._level
        if self._gang.whole_blocks and level == 0:
            domain_of, within = self._free.block, self._free.block(domain)
        else:
            domain_of, within = (lambda machine: ancestors[machine][level]), domain
        there = [part for part in self._usable(allocation) if domain_of(part[0]) == within]
        self._gain([(machine, -gpus) for machine, gpus in there])
        if self.spare(domain) >= 0:
            return False
        self._gain(there)
        return True

    def _usable(self, allocation: Allocation) -> Sequence[tuple[int, int]]:
        """The part of what an allocation takes that the gang may use, or that keeps a block from it."""
        taken = self._free.taken_by(allocation)
        if self._takes_all or self._gang.whole_blocks:
            return taken
        return [part for part in taken if self._free.accepts(self._gang, part[0])]

    def _gain(self, allocation: Sequence[tuple[int, int]]) -> Iterable[int]:
        """Count GPUs that come free; the domains of their machines."""
        if self._gang.whole_blocks:
            return self._gain_blocks(allocation)
        free, gang, on, units = self._free, self._gang, self._on, self._units
        ancestors, level, share = free.topology.ancestors, self._level, gang.per_machine
        gaining: dict[int, None] = {}
        for machine, gpus in allocation:
            before = on[machine] if machine in on else free.on(machine)
            on[machine] = after = before + gpus
            domain = ancestors[machine][level]
            gain = gpus if share is None else (after >= share) - (before >= share)
            if gain and gang.segment is not None:
                gain = self._in_segments(machine, gain)
            units[domain] = units.get(domain, 0) + gain
            gaining[domain] = None
        return gaining

    def _gain_blocks(self, allocation: Sequence[tuple[int, int]]) -> Iterable[int]:
        """The same for a gang that shares its blocks with nobody: a block counts once nobody uses it."""
        gaining: dict[int, None] = {}
        for machine, gpus in allocation:
            block = self._free.block(machine)
            before = self._busy[block] if block in self._busy else self._free.busy(block)
            self._busy[block] = after = before - gpus
            if bool(before) == bool(after):
                continue
            for domain, units in self._in_unused(block):
                self._units[domain] = self._units.get(domain, 0) + (-units if after else units)
                gaining[domain] = None
        return gaining

    def _in_unused(self, block: int) -> Iterable[tuple[int, int]]:
        """The domains to which a block that nobody uses gives units, and how many."""
        free, gang, topology = self._free, self._gang, self._free.topology
        could_have = [
            (machine, free.capacity[machine])
            for machine in topology.domains[block].children
            if free.accepts(gang, machine)
        ]
        if self._level == 0:
            return [(machine, gang.held(gpus)) for machine, gpus in could_have]
        around = topology.ancestors[topology.domains[block].children[0]][self._level]
        return [(around, most_units(topology, gang, could_have))]

    def _in_segments(self, machine: int, gain: int) -> int:
        """What a gain of a block's machines is worth in whole segments."""
        block = self._free.topology.ancestors[machine][1]
        if block not in self._in_block:
            self._in_block[block] = self._free.held(block, self._gang.unsegmented)
        before = self._in_block[block]
        self._in_block[block] = after = before + gain
        return self._gang.in_block(after) - self._gang.in_block(before)


def might_fit_closer(free: FreeGpus, job: JobState, lowest: int) -> bool:
    """Whether a running gang could be closer together if it gave its GPUs back; False is certain.

    That is at a lower level or, where its level is the lowest, on fewer machines. Nothing is released.

    Args:
        free: What is free besides.
        job: The running job.
        lowest: The lowest level that could hold it at all.
    """
    gang, level = job.job.gang, job.level - 1
    if level >= lowest:
        gains = Gains(free, gang, level)
        return free.lowest_level(gang, level) == level or bool(gains.add(job.allocation))
    fewer = len(job.allocation) - 1
    roomiest = free.roomiest(0, gang)
    most = 0 if roomiest is None else free.on(roomiest, gang.gpu_type)
    there = [free.on(machine, gang.gpu_type) + gpus for machine, gpus in free.taken_by(job.allocation)]
    return sum(nlargest(fewer, [*there, *[most] * fewer])) >= gang.gpus


def find_victims(free: FreeGpus, running: Iterable[JobState], job: Job, level: int) -> list[JobState]:
    """The running jobs that must stop so that one domain of `level` holds a gang that does not fit now.

    They are taken in the order given, until that is enough in some domain; those that turn out not to be
    needed there are spared, the last first. Arithmetic only: nothing is released.

    Returns:
        The victims in the order given, each of them needed; empty if stopping all of them would not do.
    """
    gains = Gains(free, job.gang, level)
    lacks = gains.lacks()
    scanned: list[JobState] = []
    added = 0
    for victim in running:
        scanned.append(victim)
        lacks -= gains.most(victim.allocation)
        while lacks <= 0 and added < len(scanned):  # before that, no domain can hold it
            domains = gains.add(scanned[added].allocation)
            added += 1
            if domains:
                needed = (
                    [other for other in reversed(scanned) if gains.needs(other.allocation, domain)][::-1]
                    for domain in domains
                )
                victims = min(needed, key=len)
                # Without those spared, fewer still may do in another domain.
                return victims if len(victims) == len(scanned) else find_victims(free, victims, job, level)
    return []


def find_cheapest_victims(
    free: FreeGpus, running: Iterable[JobState], job: Job, level: int, cost: Callable[[JobState], float]
) -> list[JobState]:
    """The same for a gang in segments, or for all of a block, where it costs least to clear the blocks.

    A gang that one block is to hold gets the block whose victims cost least together. A gang in several
    blocks gets segment by segment the cheapest; victims in several blocks are counted in each, so that is no
    optimum. It costs no more than what `find_victims` finds, and finds something whenever that does.

    Args:
        free: What is free now.
        running: The jobs that may be stopped; of a block the first ones are.
        job: With a segment, or one that shares its one block with nobody.
        level: Level of the domains, above the machines; 1 for a gang without segments.
        cost: What stopping a job costs.
    """
    candidates = list(running)
    in_turn = find_victims(free, candidates, job, level)
    if not in_turn:
        return []
    cheapest = find_victims(free, _by_cost_of_segments(free, candidates, job.gang, level, cost), job, level)
    return min(cheapest, in_turn, key=lambda victims: fsum(map(cost, victims)))


def _by_cost_of_segments(
    free: FreeGpus,
    candidates: Iterable[JobState],
    gang: Gang,
    level: int,
    cost: Callable[[JobState], float],
) -> list[JobState]:
    """The jobs that must stop for one more segment in some block, the cheapest segment first."""
    inside: dict[int, list[JobState]] = {}
    for victim in candidates:
        for block in dict.fromkeys(free.topology.ancestors[machine][1] for machine, _ in victim.allocation):
            inside.setdefault(block, []).append(victim)
    units = gang.units if level == 1 else gang.segment
    assert units is not None, "what is in several blocks comes in segments"
    whole = gang.unsegmented
    segments: list[tuple[float, int, list[JobState]]] = []
    for block, jobs in inside.items():
        has = free.held(block, whole) // units
        before: set[int] = set()
        dearest = 0.0
        more = int(has == 0) if gang.spread else gang.units // units
        for number in range(has + 1, has + 1 + more):
            wanted = whole._replace(gpus=number * units * (gang.per_machine or 1))
            victims = _victims_in(free, jobs, wanted, block)
            if not victims:
                break
            # A block's next segment must come after those before it, which it builds on.
            dearest = max(dearest, fsum(cost(victim) for victim in victims if victim.order not in before))
            before = {victim.order for victim in victims}
            segments.append((dearest, block, victims))
    segments.sort(key=lambda segment: segment[:2])
    return list({victim.order: victim for _, _, victims in segments for victim in victims}.values())


def _victims_in(free: FreeGpus, running: Sequence[JobState], gang: Gang, block: int) -> list[JobState]:
    """The first running jobs that must stop so that one block holds a gang; empty if all are too few."""
    gains = Gains(free, gang, 1)
    for count, victim in enumerate(running, start=1):
        gains.add(victim.allocation)
        if gains.spare(block) >= 0:
            return [other for other in reversed(running[:count]) if gains.needs(other.allocation, block)][
                ::-1
            ]
    return []
