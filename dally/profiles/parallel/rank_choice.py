"""Chooses the order in which machines get a job's ranks, by what a step takes in it."""

from collections.abc import Callable, Sequence

from dally.cluster.rank_order import orders_by_axis
from dally.cluster.topology import Topology
from dally.jobs.parallelism import Parallelism
from dally.profiles.parallel.rank_placement import RankPlacement, RankPlacer


def step_in_order(
    topology: Topology,
    order: Sequence[int],
    ranks_per_machine: int,
    step_s: Callable[[RankPlacement], float],
) -> float:
    """Seconds of a step whose ranks come in an order of machines."""
    allocation = tuple((machine, ranks_per_machine) for machine in sorted(order))
    return step_s(RankPlacer(topology, order).place(allocation))


def fastest_order(
    topology: Topology,
    machines: Sequence[int],
    plan: Parallelism,
    ranks_per_machine: int,
    step_s: Callable[[RankPlacement], float],
) -> tuple[int, ...]:
    """The order with the shortest step: as given, or that in which the groups of some axis lie close.

    Which axis sends most, its plan alone does not tell.

    Args:
        topology: The cluster.
        machines: Indexes of the machines of a job, in the order in which they get ranks without more ado.
        plan: Its plan.
        ranks_per_machine: Ranks on each.
        step_s: Seconds of a step with ranks placed so.
    """
    by_axis = (order for _, order in orders_by_axis(topology, machines, plan, ranks_per_machine))
    return min(
        (tuple(machines), *by_axis),
        key=lambda order: step_in_order(topology, order, ranks_per_machine, step_s),
    )
