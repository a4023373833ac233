"""Which machines a gang would get, given what is left on each, where no index of free GPUs helps."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from dally.cluster.free import placed
from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Gang

LEAF = 1
"""The level of leaf switches: the domains right above the machines."""


def best_fit(topology: Topology, left: Sequence[int], gang: Gang, highest: int) -> Allocation | None:
    """The lowest domain, up to a level, that holds the gang on the fewest machines; None if none does.

    A gang in segments is held in the fewest blocks instead, as it is on so many machines anyway.

    Of equal domains the one with the least to spare.

    Args:
        topology: The cluster.
        left: GPUs that each machine could give, in order of the machines.
        gang: The GPUs that are asked for.
        highest: The highest level of one domain.
    """
    units = _units(left, gang)
    blocks: dict[int, list[int]] = {}
    if gang.segment is not None:  # blocks are packed, each with whole segments of machines
        for machine in sorted(units, key=lambda machine: (left[machine], machine)):
            blocks.setdefault(topology.ancestors[machine][LEAF], []).append(machine)
        units = {block: gang.in_block(len(each)) for block, each in blocks.items()}
    if sum(units.values()) < gang.units:
        return None
    lowest = LEAF if blocks else 0
    for level in range(lowest, min(highest, topology.widest) + 1):
        members: dict[int, list[int]] = {}
        for part in units:
            machine = blocks[part][0] if blocks else part
            members.setdefault(topology.ancestors[machine][level], []).append(part)
        best: tuple[int, int, list[tuple[int, int]]] | None = None
        for parts in members.values():
            spare = sum(units[part] for part in parts) - gang.units
            if spare < 0:
                continue
            packed = _packed(units, parts, gang.units)
            if best is None or (len(packed), spare) < best[:2]:
                best = len(packed), spare, packed
        if best is not None and blocks:
            return _allocation(
                ((each, 1) for block, count in best[2] for each in blocks[block][:count]), gang
            )
        if best is not None:
            return _allocation(best[2], gang)
    return None


def as_topology_tree(topology: Topology, left: Sequence[int], gang: Gang) -> Allocation | None:
    """What Slurm's select/cons_tres gives under topology/tree; None if there is not enough.

    Machines with more GPUs left, up to the gang's, come first. Of the fewest such classes that hold the gang
    all but the last are used up. Of the last one it takes what lies under leaf switches that it uses already,
    then leaf switches one after the other: the closest, of these the one with the fewest such machines that
    are as many as the job names; without a number of machines that is one. There it takes machines in order
    until it has enough. So a gang may be spread over switches though another one could hold it.
    Source: Slurm 22.05, `_eval_nodes_topo` and `_topo_choose_best_switch` in
    src/plugins/select/cons_tres/job_test.c, and `can_job_run_on_node` there for the classes.

    Args:
        topology: The cluster.
        left: GPUs that each machine could give, in order of the machines.
        gang: The GPUs that are asked for; it names a number of machines if it has so many GPUs on each.
    """
    islands: dict[int, dict[int, int]] = {}
    for machine, count in _units(left, gang).items():
        islands.setdefault(topology.ancestors[machine][topology.widest], {})[machine] = count
    for units in islands.values():
        classes: dict[int, list[int]] = {}
        for machine in units:
            classes.setdefault(min(left[machine], gang.gpus), []).append(machine)
        sure, last, held = list[int](), list[int](), 0
        for _, machines in sorted(classes.items(), reverse=True):
            sure, last = sure + last, machines
            held += sum(units[machine] for machine in machines)
            if held >= gang.units:
                return _allocation(_take(topology, units, gang, sure, last), gang)
    return None


def leaves_of(topology: Topology, allocation: Allocation) -> int:
    """How many leaf switches an allocation is under."""
    return len({topology.ancestors[machine][LEAF] for machine, _ in allocation})


def _units(left: Sequence[int], gang: Gang) -> dict[int, int]:
    """What each machine that has any could give, in the gang's units."""
    share = gang.per_machine
    return {
        machine: gpus if share is None else 1
        for machine, gpus in enumerate(left)
        if gpus and (share is None or gpus >= share)
    }


def _take(
    topology: Topology, units: Mapping[int, int], gang: Gang, sure: list[int], last: list[int]
) -> list[tuple[int, int]]:
    """The machines of a gang, with their units: the sure ones, then as many of the last class as it takes."""
    ancestors, chosen, wanted = topology.ancestors, list[tuple[int, int]](), gang.units
    queue, rest = sorted(sure), set(last)
    used = {ancestors[machine][LEAF] for machine in sure}
    queue += sorted((each for each in last if ancestors[each][LEAF] in used), key=ancestors.__getitem__)
    while wanted > 0:
        for machine in queue:
            taken = min(units[machine], wanted)
            chosen += [(machine, taken)] if taken else []
            wanted -= taken
        rest.difference_update(queue)
        if wanted > 0:
            machines = 1 if gang.per_machine is None else wanted
            leaf = _next_leaf(topology, rest, machines, used)
            used.add(leaf)
            queue = sorted(machine for machine in rest if ancestors[machine][LEAF] == leaf)
    return chosen


def _next_leaf(topology: Topology, able: Collection[int], machines: int, used: Iterable[int]) -> int:
    """The leaf switch closest to those in use; of these the one with the fewest machines that are enough."""
    ancestors, domains = topology.ancestors, topology.domains
    counts = Counter(domain for machine in able for domain in ancestors[machine][LEAF:])
    paths = {ancestors[machine][LEAF]: ancestors[machine][LEAF:] for machine in able}
    near = []
    for leaf in used:
        path, above = [leaf], domains[leaf].parent
        while above is not None:
            path.append(above)
            above = domains[above].parent
        near.append(path)

    def rank(leaf: int) -> tuple[int, int, int, int, int]:
        path = paths[leaf]
        apart = sum(next(level for level, each in enumerate(path) if each in other) for other in near)
        fits = next((level for level, domain in enumerate(path) if counts[domain] >= machines), len(path))
        holder = counts[path[min(fits, len(path) - 1)]]
        return apart, fits, holder, -counts[leaf], leaf

    return min(paths, key=rank)


def _packed(units: dict[int, int], parts: list[int], wanted: int) -> list[tuple[int, int]]:
    """The fullest machines or blocks first, the last one the tightest that holds the rest."""
    order, packed = sorted(parts, key=lambda part: -units[part]), list[tuple[int, int]]()
    for place, part in enumerate(order):
        if units[part] >= wanted:
            tightest = min(order[place:], key=lambda each: (units[each] < wanted, units[each], each))
            return [*packed, (tightest, wanted)]
        packed.append((part, units[part]))
        wanted -= units[part]
    raise AssertionError("these hold the gang")


def _allocation(parts: Iterable[tuple[int, int]], gang: Gang) -> Allocation:
    share = gang.per_machine or 1
    return placed(gang, tuple(sorted((machine, units * share) for machine, units in parts)))
