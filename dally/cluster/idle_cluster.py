"""What a cluster could give a gang if nobody else were there: its closest placements, and the most GPUs."""

from collections.abc import Iterable, Sequence

from dally.cluster.free import FreeGpus
from dally.cluster.topology import Allocation, Topology
from dally.errors import CapacityError
from dally.jobs.job import Gang, Job
from dally.words import plural


class IdleCluster:
    """Answers from one index of free GPUs that never changes; remembers what was asked.

    Args:
        topology: The cluster.
        closed: Machines of which it can give no GPU.
    """

    def __init__(self, topology: Topology, closed: Iterable[int] = ()) -> None:
        self._topology = topology
        self._free = FreeGpus(topology)
        for machine in closed:
            self._free.withhold(machine, topology.machines[machine].gpus, closed=True)
        self._lowest_levels: dict[Gang, int | None] = {}
        self._capacities: dict[Gang, int] = {}

    def best_level(self, gang: Gang) -> int:
        """The lowest level at which one domain holds such a gang.

        Raises:
            CapacityError: The whole cluster has too few such GPUs, or too few machines with so many each.
        """
        level = self.lowest_level(gang)
        if level is None:
            kind = f" of type {gang.gpu_type}" if gang.gpu_type else ""
            each = f", {gang.per_machine} on each machine," if gang.per_machine else ""
            if gang.segment is not None:
                each = f"{each[:-1]} and {plural(gang.segment, 'machine')} in each segment,"
            each = f"{each.removesuffix(',')}{gang.layout}," if gang.layout else each
            anyhow = gang.unsegmented._replace(per_machine=None)
            has = str(self._free.total(gang.gpu_type))
            if gang.gpu_type and gang.gpu_type not in self._topology.gpu_types:
                has += f"; {_types(self._topology.gpu_types)}"
            most_gpus = max(machine.gpus for machine in self._topology.machines)
            if gang.per_machine is not None and gang.per_machine > most_gpus:
                has += f", no machine more than {most_gpus}"
            if gang.machines is not None:
                has += f", {self._free.usable(anyhow)} of them on machines it accepts"
            if self._topology.islands:
                most = self._free.held(self._topology.root.index, anyhow)
                has += f", {most} of them in one network"
            if gang.segment is not None:
                has += f", {self._free.usable(gang)} of them in such segments"
            elif gang.consolidated:
                has += f", {self._free.usable(gang)} of them close together"
            raise CapacityError(
                f"a gang of {plural(gang.gpus, 'GPU')}{kind}{each} does not fit: "
                f"cluster {self._topology.name} has {has}"
            )
        return level

    def lowest_level(self, gang: Gang) -> int | None:
        """The lowest level at which one domain holds such a gang; None: the whole cluster does not."""
        if gang not in self._lowest_levels:
            self._lowest_levels[gang] = self._free.lowest_level(gang)
        return self._lowest_levels[gang]

    def most_gpus(self, gang: Gang) -> int:
        """The most GPUs that one gang can have, shared out as this one asks, however many that wants."""
        key = gang if gang.consolidated else gang._replace(gpus=0)
        if key not in self._capacities:
            held = self._free.held(self._topology.root.index, gang)
            self._capacities[key] = held * (gang.per_machine or 1)
        return self._capacities[key]

    def accepted(self, asking: Job | Gang) -> Sequence[str]:
        """The GPU types that a job or gang accepts."""
        return (asking.gpu_type,) if asking.gpu_type else self._topology.gpu_types

    def closest(self, gang: Gang, gpu_type: str) -> Allocation | None:
        """The closest placement of a gang on one type; None if the cluster has too few of that."""
        return self._free.find_closest(gang._replace(gpu_type=gpu_type))

    def best_placements(self, gang: Gang) -> list[Allocation]:
        """The closest placement of a gang on each GPU type it may use, else on all types mixed.

        Raises:
            CapacityError: The cluster has too few such GPUs.
        """
        closest = [self.closest(gang, gpu_type) for gpu_type in self.accepted(gang)]
        found = [allocation for allocation in closest if allocation is not None]
        if not found:
            mixed = self._free.find(gang, self.best_level(gang))
            found = [] if mixed is None else [mixed]
        return found


def _types(gpu_types: Sequence[str]) -> str:
    """Of which types a cluster's GPUs are, in words."""
    named = ", ".join(filter(None, gpu_types))
    return f"its GPUs are of {named}" if named else "it names no GPU types"
