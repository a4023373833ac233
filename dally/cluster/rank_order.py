"""In which order a job's machines get its ranks, so that groups of neighbouring ranks lie close."""

from collections.abc import Iterator, Sequence
from math import ceil

from dally.cluster.topology import Topology
from dally.jobs.parallelism import Axis, Parallelism


def group_machines(plan: Parallelism, ranks_per_machine: int) -> int:
    """Machines of the innermost group of a plan that does not fit into one; 1 if each fits, or spans all.

    Args:
        plan: The plan.
        ranks_per_machine: Ranks on each machine.
    """
    ranks = 1
    for axis in plan.order:
        ranks *= plan.size(axis)
        if ranks > ranks_per_machine:
            return ceil(ranks / ranks_per_machine) if ranks < plan.gpus else 1
    return 1


def rank_order(topology: Topology, machines: Sequence[int], group: int) -> tuple[int, ...]:
    """Order machines so that as few groups as possible span two domains of a level, the lowest level first.

    Each domain keeps as many whole groups as it can. What is left over in it makes up groups with what is
    left over in the domains beside it. A last group that is not whole lies in one rack where that costs no
    rack a whole one.

    Args:
        topology: The cluster.
        machines: Indexes of the machines of a job.
        group: Machines of a group; groups are consecutive in the order.
    """
    every, left = frozenset(machines), len(machines) % group
    leftovers = (_kept(topology, rack.index, every, group)[1] for rack in topology.level_domains[1])
    last = next((rest[:left] for rest in leftovers if len(rest) >= left), [])
    whole, rest = _kept(topology, topology.root.index, every.difference(last), group)
    return (*whole, *rest, *last)


def _kept(
    topology: Topology, domain: int, machines: frozenset[int], group: int
) -> tuple[list[int], list[int]]:
    """The machines of a domain in whole groups, and those left over."""
    if domain < len(topology.machines):
        whole: list[int] = []
        rest = [domain] if domain in machines else []
    else:
        parts = [_kept(topology, child, machines, group) for child in topology.domains[domain].children]
        whole = [machine for part, _ in parts for machine in part]
        rest = [machine for _, part in sorted(parts, key=lambda each: -len(each[1])) for machine in part]
    full = len(rest) // group * group
    return whole + rest[:full], rest[full:]


def orders_by_axis(
    topology: Topology, machines: Sequence[int], plan: Parallelism, ranks_per_machine: int
) -> Iterator[tuple[Axis, tuple[int, ...]]]:
    """For each axis whose groups do not fit into machines, an order in which they lie as close as can be.

    Args:
        topology: The cluster.
        machines: Indexes of the machines of a job.
        plan: The plan.
        ranks_per_machine: Ranks on each machine; an axis with whose groups they do not come out even is
            left out.
    """
    inner = outer = 1
    for axis in plan.order:
        inner, outer = outer, outer * plan.size(axis)
        if plan.size(axis) == 1 or outer <= ranks_per_machine:
            continue
        apart = max(1, inner // ranks_per_machine)
        group = ceil(outer / ranks_per_machine) // apart
        if len(machines) % (group * apart):
            continue
        ordered = rank_order(topology, machines, group if group < len(machines) else 1)
        # One machine of each of `apart` groups after the other, then the next of each.
        yield (
            axis,
            tuple(
                ordered[first + other * group + member]
                for first in range(0, len(ordered), group * apart)
                for member in range(group)
                for other in range(apart)
            ),
        )


def spanning_groups(topology: Topology, order: Sequence[int], group: int, level: int) -> int:
    """How many groups of an order lie in several domains of a level."""
    groups = (order[first : first + group] for first in range(0, len(order), group))
    return sum(len({topology.ancestors[machine][level] for machine in each}) > 1 for each in groups)
