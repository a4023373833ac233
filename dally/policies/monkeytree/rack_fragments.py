"""Which gangs have GPUs in which racks, and how many fragments, parts of gangs over several, a rack has."""

from collections import Counter
from collections.abc import Iterable, Mapping

from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import JobKind
from dally.state import JobState

Shares = Mapping[int, int]
"""GPUs of a gang by rack, a domain's index."""


class RackFragments:
    """The running gangs on several machines, by rack.

    Gangs on one machine cross no link. Racks are the domains of the lowest level above the machines that has
    uplinks; where there is none, as with all machines on one switch, nothing is a fragment.

    Args:
        topology: The cluster.

    Attributes:
        racks: The racks, by index.
        counts: How many fragments each rack has.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        above = topology.level_domains[1:]
        linked = (level for level in above if any(domain.uplink is not None for domain in level))
        racks = next(linked, ())
        self.racks = tuple(domain.index for domain in racks)
        self._level = racks[0].level if racks else topology.top
        self._bounded = frozenset(domain.index for domain in racks if domain.uplink is not None)
        self.counts: Counter[int] = Counter()
        self._shares: dict[int, Shares] = {}
        self._in: dict[int, dict[int, JobState]] = {}

    def shares(self, allocation: Allocation) -> Shares:
        """GPUs of an allocation by rack."""
        found: Counter[int] = Counter()
        for machine, gpus in allocation:
            found[self.rack(machine)] += gpus
        return found

    def rack(self, machine: int) -> int:
        """The rack of a machine."""
        return self._topology.ancestors[machine][self._level]

    def bounded(self, rack: int) -> bool:
        """Whether a rack has an uplink of its own, so that it must not have too many fragments."""
        return rack in self._bounded

    def add(self, job: JobState) -> None:
        """Count a job that runs now."""
        if len(job.allocation) == 1 or job.job.kind is JobKind.FORKED:
            return
        self._shares[job.order] = shares = self.shares(job.allocation)
        for rack in shares:
            self._in.setdefault(rack, {})[job.order] = job
        self.counts.update(split_racks(shares))

    def remove(self, job: JobState) -> None:
        """Count a job no more."""
        shares = self._shares.pop(job.order, {})
        for rack in shares:
            del self._in[rack][job.order]
        self.counts.subtract(split_racks(shares))

    def jobs(self, racks: Iterable[int]) -> list[JobState]:
        """The gangs on several machines that have GPUs in one of these racks, by arrival."""
        found = {order: job for rack in racks for order, job in self._in.get(rack, {}).items()}
        return [job for _, job in sorted(found.items())]


def split_racks(shares: Shares) -> list[int]:
    """The racks in which a gang has fragments: all of its own if they are several."""
    return [*shares] if len(shares) > 1 else []
