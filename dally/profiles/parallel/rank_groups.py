"""Which ranks of a parallel plan form a group, and over how many machines and racks each group lies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dally.errors import InputError
from dally.jobs.parallelism import Axis, Parallelism
from dally.words import plural

_Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Crossing:
    """How the groups of an axis lie over the domains of one level: machines, racks, or what is above.

    Attributes:
        domains: That the widest-spread group lies on.
        inside: The most of its ranks in one of them.
        sharers: The most groups of the axis that leave one domain: they share its links.
    """

    domains: int
    inside: int
    sharers: int


@dataclass(frozen=True, slots=True)
class RankGroup:
    """The widest-spread group of an axis.

    Attributes:
        axis: What its ranks share.
        size: Ranks of the group.
        machines: Machines (or NVLink domains) that it lies on.
        inside: The most of its ranks on one of them.
        sharers: The most groups of the axis that leave one machine: they share its links.
        above: The same for racks, and so on up.
    """

    axis: Axis
    size: int
    machines: int
    inside: int
    sharers: int
    above: tuple[Crossing, ...] = ()

    @property
    def crosses(self) -> bool:
        """Whether it spans machines."""
        return self.machines > 1

    @property
    def crossings(self) -> tuple[Crossing, ...]:
        """By level, machines first."""
        return (Crossing(self.machines, self.inside, self.sharers), *self.above)


@dataclass(frozen=True, slots=True)
class GroupSpread:
    """The groups of a plan on a placement.

    Attributes:
        groups: The widest-spread group of each axis of two or more ranks. `dp` stands for the ranks with the
            same weights: those of dp and cp.
    """

    groups: Mapping[Axis, RankGroup]

    @property
    def crossing(self) -> tuple[Axis, ...]:
        """The axes of which a group spans machines."""
        return tuple(axis for axis, group in self.groups.items() if group.crosses)


def whole_machines(gpus: int, each: int) -> tuple[int, ...]:
    """As few machines as hold so many GPUs: all full but for the last."""
    full, rest = divmod(gpus, each)
    return (*[each] * full, *([rest] if rest else []))


def spread_groups(
    plan: Parallelism, machines: Sequence[int], domains: Sequence[Sequence[int]] = ()
) -> GroupSpread:
    """Put a plan's ranks on machines, one machine after the other.

    Args:
        plan: The plan; rank numbers count its axes in its order, the first fastest.
        machines: GPUs that the plan has on each machine or NVLink domain.
        domains: By level, the number of each one's domain, itself at the first; none: machines alone.

    Raises:
        InputError: The machines' GPUs are not the plan's.
    """
    if sum(machines) != plan.gpus:
        raise InputError(f"placement: has {plural(sum(machines), 'GPU')}, the plan {plan} needs {plan.gpus}")
    levels = [
        np.repeat(np.asarray(numbers, dtype=np.int64), machines)
        for numbers in domains or [range(len(machines))]
    ]
    ranks = np.arange(plan.gpus, dtype=np.int64).reshape([plan.size(axis) for axis in reversed(plan.order)])
    found: dict[Axis, RankGroup] = {}
    for axis in Axis:
        groups = _groups(plan, axis, ranks)
        if groups.shape[1] > 1:
            nearest, *farther = (_crossing(domain_of[groups]) for domain_of in levels)
            found[axis] = RankGroup(
                axis, groups.shape[1], nearest.domains, nearest.inside, nearest.sharers, tuple(farther)
            )
    return GroupSpread(found)


def _groups(plan: Parallelism, axis: Axis, ranks: _Ints) -> _Ints:
    """(groups, size) ranks that differ in one axis alone; experts are split among neighbours of one stage.

    Args:
        plan: The plan.
        axis: The axis; data stands for data and context.
        ranks: Their numbers by the places in all axes, the outermost first.
    """
    inner = {
        Axis.DATA: (Axis.DATA, Axis.CONTEXT),
        Axis.EXPERT: (Axis.TENSOR, Axis.CONTEXT, Axis.DATA),
    }.get(axis, (axis,))
    places = list(reversed(plan.order))
    apart = [place for place, each in enumerate(places) if each not in inner]
    together = [place for place, each in enumerate(places) if each in inner]
    size = plan.ep if axis is Axis.EXPERT else int(np.prod([ranks.shape[place] for place in together]))
    return ranks.transpose(apart + together).reshape(-1, size)


def _crossing(domains: _Ints) -> Crossing:
    """How groups lie over domains.

    Args:
        domains: (groups, size) the domain of each rank of each group.
    """
    groups, size = domains.shape
    if (domains == domains[:, :1]).all():
        return Crossing(1, size, 0)
    count = int(domains.max()) + 1
    pairs, ranks = np.unique(domains + count * np.arange(groups)[:, None], return_counts=True)
    group_of, domain_of = np.divmod(pairs, count)
    spans = np.bincount(group_of, minlength=groups)
    fullest = np.maximum.reduceat(ranks, np.searchsorted(group_of, np.arange(groups)))
    widest = int(spans.max())
    leaving: NDArray[Any] = np.bincount(domain_of[spans[group_of] > 1])
    return Crossing(widest, int(fullest[spans == widest].min()), int(leaving.max()))
