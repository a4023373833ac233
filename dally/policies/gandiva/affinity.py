"""Which machines are dedicated to gangs of which size: Gandiva's affinity."""

from collections.abc import Iterable, Sequence

from dally.cluster.topology import Allocation


class Affinity:
    """An idle machine is dedicated to the size of the first gang it takes, until it is idle again.

    Sets of machines are bit sets of machine indexes.
    """

    def __init__(self) -> None:
        self._machines: dict[int, int] = {}
        self._size_of: dict[int, int] = {}
        self._gangs_on: dict[int, int] = {}
        self._restored: dict[int, int] = {}

    def add(self, gpus: int, allocation: Allocation) -> None:
        """A gang of `gpus` GPUs runs on an allocation."""
        for machine, _ in allocation:
            self._gangs_on[machine] = self._gangs_on.get(machine, 0) + 1
            if machine not in self._size_of:
                size = self._size_of[machine] = self._restored.pop(machine, gpus)
                self._machines[size] = self._machines.get(size, 0) | 1 << machine

    def remove(self, allocation: Allocation) -> None:
        """A gang has left an allocation."""
        for machine, _ in allocation:
            self._gangs_on[machine] -= 1
            if not self._gangs_on[machine]:
                size = self._size_of.pop(machine)
                self._machines[size] ^= 1 << machine

    def snapshot(self) -> list[list[int]]:
        """The size to which each machine is dedicated, as plain data."""
        return [list(part) for part in sorted(self._size_of.items())]

    def restore(self, sizes: Iterable[Sequence[int]]) -> None:
        """Take back what `snapshot` gave, before the gangs that run are added again."""
        self._restored = {part[0]: part[1] for part in sizes}

    def forget_restored(self) -> None:
        """All gangs are here again: whatever else was restored was of gangs that are gone."""
        self._restored.clear()

    def sets(self) -> dict[int, int]:
        """The machines dedicated to each size, as a copy to try placements with."""
        return dict(self._machines)
