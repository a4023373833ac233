"""Placements of gangs: the closest on free GPUs, and whom to stop so that there is one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dally.free import FreeGpus
from dally.job import Job
from dally.state import JobState
from dally.topology import Allocation, Topology


@dataclass(frozen=True, slots=True)
class Placement:
    """GPUs for a gang, all in one domain of `level`."""

    allocation: Allocation
    level: int


def closest(free: FreeGpus, job: Job, lowest: int, highest: int) -> Placement | None:
    """The best fit at the lowest level, from `lowest` to `highest`, that holds the gang now; None if none."""
    level = free.lowest_level(job.gpus, job.gpu_type, lowest)
    if level is None or level > highest:
        return None
    allocation = free.find(job.gpus, level, job.gpu_type)
    return None if allocation is None else Placement(allocation, level)


def domain_gpus(
    topology: Topology, allocation: Allocation, level: int, gpu_type: str | None
) -> Iterator[tuple[int, int]]:
    """The GPUs of an allocation that a gang of a type could use: (domain of `level`, GPUs) pairs."""
    for machine, gpus in allocation:
        if gpu_type is None or topology.machines[machine].gpu_type == gpu_type:
            yield topology.ancestors[machine][level], gpus


def find_victims(free: FreeGpus, running: Iterable[JobState], job: Job, level: int) -> list[JobState]:
    """The running jobs that must stop so that one domain of `level` holds a gang that does not fit now.

    They are taken in the order given, in the first domain where that is enough; those that turn out not to be
    needed are spared, the last first. Arithmetic only: nothing is released.

    Returns:
        The victims in the order given; empty if stopping all of them would not do.
    """
    gains: dict[int, int] = {}
    scanned: list[JobState] = []
    for victim in running:
        scanned.append(victim)
        for domain, gpus in domain_gpus(free.topology, victim.allocation, level, job.gpu_type):
            gains[domain] = gains.get(domain, 0) + gpus
            if free.on(domain, job.gpu_type) + gains[domain] >= job.gpus:
                return _spare(free, scanned, job, domain, level)
    return []


def _spare(free: FreeGpus, scanned: list[JobState], job: Job, domain: int, level: int) -> list[JobState]:
    """Those of the scanned jobs whose GPUs in the domain are really needed."""
    shares = [
        sum(
            gpus
            for place, gpus in domain_gpus(free.topology, victim.allocation, level, job.gpu_type)
            if place == domain
        )
        for victim in scanned
    ]
    surplus = free.on(domain, job.gpu_type) + sum(shares) - job.gpus
    needed = []
    for victim, share in zip(reversed(scanned), reversed(shares), strict=True):
        if share > surplus:
            needed.append(victim)
        else:
            surplus -= share
    return needed[::-1]
