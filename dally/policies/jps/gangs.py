"""Real GPUs for a job that is to have so many of each type."""

from collections.abc import Iterator, Mapping

from dally.cluster.free import FreeGpus
from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Job, JobKind
from dally.profiles.costs import CostModel

Counts = Mapping[str, int]
"""GPUs of each type; types of which there are none may be missing."""


def find_gang(free: FreeGpus, costs: CostModel, job: Job, counts: Counts) -> Allocation | None:
    """Free GPUs for the job, close together, as many of each type as it is to have; None if there are none.

    Where that mixes types, one type alone is taken instead if that is as fast: the market adds up the speeds
    of workers, but a gang that splits its batch evenly runs at the slowest one's pace. A job for which none
    of this can be had takes the closest placement of the GPUs that it asked for.
    """
    found = (_find(free, job, each) for each in _candidates(job, counts))
    placed = [allocation for allocation in found if allocation]
    if not placed:
        level = free.lowest_level(job.gang)
        return None if level is None else free.find(job.gang, level)
    return min(placed, key=lambda allocation: costs.cost(job, allocation).slowdown, default=None)


def keep_part(topology: Topology, job: Job, held: Allocation, counts: Counts) -> Allocation:
    """The part of an allocation that a job keeps which is to have fewer GPUs: on the machines with most."""
    left, kept = dict(counts), []
    for machine, gpus in sorted(held, key=lambda part: -part[1]):
        gpu_type = topology.machines[machine].gpu_type
        share = min(gpus, left.get(gpu_type, 0))
        if share and share % (job.gang.per_machine or 1) == 0:
            kept.append((machine, share))
            left[gpu_type] -= share
    return tuple(sorted(kept))


def grow_part(free: FreeGpus, job: Job, held: Allocation, counts: Counts) -> Allocation | None:
    """What an elastic job holds and more beside it, first on the same machines; None if it cannot grow so.

    Never over two islands: then it cannot.
    """
    missing = {**counts}
    for gpu_type, gpus in free.topology.by_type(held).items():
        missing[gpu_type] = missing.get(gpu_type, 0) - gpus
    if job.kind is not JobKind.ELASTIC or job.gang.per_machine or min(missing.values()) < 0:
        return None
    grown = dict(held)
    for machine, gpus in held:
        gpu_type = free.topology.machines[machine].gpu_type
        more = min(free.on(machine), missing[gpu_type])
        grown[machine] = gpus + more
        missing[gpu_type] -= more
    beside = tuple((machine, grown[machine] - gpus) for machine, gpus in held if grown[machine] > gpus)
    free.take(beside)
    rest = _find(free, job, {gpu_type: gpus for gpu_type, gpus in missing.items() if gpus})
    free.give(beside)
    if rest is None:
        return None
    for machine, gpus in rest:
        grown[machine] = grown.get(machine, 0) + gpus
    allocation = tuple(sorted(grown.items()))
    return allocation if free.topology.level_of(allocation) <= free.topology.widest else None


def _candidates(job: Job, counts: Counts) -> Iterator[Counts]:
    """What a job could have for its share: each type of it alone, then the mix.

    A rigid job needs all of its GPUs of the type; an elastic one makes do with that part of its share.
    """
    elastic = job.kind is JobKind.ELASTIC
    if len(counts) > 1:
        alone = counts if elastic else dict.fromkeys(counts, job.gpus)
        yield from ({gpu_type: gpus} for gpu_type, gpus in alone.items() if gpus >= job.least_gpus)
    if sum(counts.values()) >= job.least_gpus:
        yield counts


def _find(free: FreeGpus, job: Job, counts: Counts) -> Allocation | None:
    """Free GPUs, of each type at the lowest level that holds them; None if there are none."""
    parts: list[tuple[int, int]] = []
    for gpu_type, gpus in counts.items():
        gang = job.gang._replace(gpus=gpus, gpu_type=gpu_type)
        level = free.lowest_level(gang)
        found = None if level is None else free.find(gang, level)
        if found is None:
            return None
        parts += found
    return tuple(sorted(parts))
