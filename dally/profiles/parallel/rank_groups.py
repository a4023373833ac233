"""Which ranks of a parallel plan form a group, and over how many machines each group lies."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from math import prod

from dally.errors import InputError
from dally.jobs.parallelism import Axis, Parallelism


@dataclass(frozen=True, slots=True)
class RankGroup:
    """The widest-spread group of an axis.

    Attributes:
        axis: What its ranks share.
        size: Ranks of the group.
        machines: Machines (or NVLink domains) that it lies on.
        inside: The most of its ranks on one of them.
        sharers: The most groups of the axis that leave one machine: they share its links.
    """

    axis: Axis
    size: int
    machines: int
    inside: int
    sharers: int

    @property
    def crosses(self) -> bool:
        """Whether it spans machines."""
        return self.machines > 1


@dataclass(frozen=True, slots=True)
class GroupSpread:
    """The groups of a plan on a placement.

    Attributes:
        groups: The widest-spread group of each axis of two or more ranks. `dp` stands for the ranks with the
            same weights: those of dp and cp.
        machine_gpus: The plan's GPUs on its smallest machine.
    """

    groups: Mapping[Axis, RankGroup]
    machine_gpus: int

    @property
    def crossing(self) -> tuple[Axis, ...]:
        """The axes of which a group spans machines."""
        return tuple(axis for axis, group in self.groups.items() if group.crosses)


def whole_machines(gpus: int, each: int) -> tuple[int, ...]:
    """As few machines as hold so many GPUs: all full but for the last."""
    full, rest = divmod(gpus, each)
    return (*[each] * full, *([rest] if rest else []))


def spread_groups(plan: Parallelism, machines: Sequence[int]) -> GroupSpread:
    """Put a plan's ranks on machines, one machine after the other.

    Args:
        plan: The plan; rank numbers count its axes in its order, the first fastest.
        machines: GPUs that the plan has on each machine or NVLink domain.

    Raises:
        InputError: The machines' GPUs are not the plan's.
    """
    if sum(machines) != plan.gpus:
        raise InputError(f"placement: has {sum(machines)} GPUs, the plan {plan} needs {plan.gpus}")
    machine_of = list(chain.from_iterable(repeat(number, count) for number, count in enumerate(machines)))
    found: dict[Axis, RankGroup] = {}
    for axis in Axis:
        axes: set[Axis] = {Axis.DATA, Axis.CONTEXT} if axis is Axis.DATA else {axis}
        groups = list(_expert_groups(plan) if axis is Axis.EXPERT else _groups(plan, axes))
        if len(groups[0]) > 1:
            found[axis] = _widest(axis, [Counter(machine_of[rank] for rank in group) for group in groups])
    return GroupSpread(found, min(machines))


def _groups(plan: Parallelism, axes: set[Axis]) -> Iterator[list[int]]:
    """Ranks that differ in these axes alone."""
    members: dict[tuple[int, ...], list[int]] = {}
    sizes = [plan.size(axis) for axis in plan.order]
    strides = [prod(sizes[:place]) for place in range(len(sizes))]
    for rank in range(plan.gpus):
        place = tuple(
            rank // stride % size
            for axis, stride, size in zip(plan.order, strides, sizes, strict=True)
            if axis not in axes
        )
        members.setdefault(place, []).append(rank)
    yield from members.values()


def _expert_groups(plan: Parallelism) -> Iterator[list[int]]:
    """Neighbours among the ranks of one stage."""
    for stage in _groups(plan, {Axis.TENSOR, Axis.CONTEXT, Axis.DATA}):
        for first in range(0, len(stage), plan.ep):
            yield stage[first : first + plan.ep]


def _widest(axis: Axis, groups: Sequence[Counter[int]]) -> RankGroup:
    leaving = Counter(chain.from_iterable(group for group in groups if len(group) > 1))
    widest = max(groups, key=lambda group: (len(group), -max(group.values())))
    return RankGroup(
        axis, widest.total(), len(widest), max(widest.values()), max(leaving.values(), default=0)
    )
