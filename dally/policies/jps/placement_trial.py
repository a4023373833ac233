"""Real GPUs for the shares of a market, on trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dally.cluster.free import FreeGpus, placed
from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Job, JobKind
from dally.policies.common.estimates import stretch_s
from dally.policies.common.sizing import change_s
from dally.profiles.costs import CostModel
from dally.state import ClusterState, JobState

Counts = Mapping[str, int]
"""GPUs of each type; types of which there are none may be missing."""


@dataclass(frozen=True, slots=True)
class Share:
    """GPUs of each type that a job is to have, and how much sooner than with what it has it should end."""

    job: JobState
    counts: Counts
    saved_s: float


@dataclass(slots=True)
class PlacementTrial:
    """The jobs that start or change, and where.

    Attributes:
        state: The cluster, its free GPUs on trial.
        now: The moment, seconds.
        places: Allocations by job, in the order of the decisions.
        left_s: Seconds until the end of each of these jobs, its start, resize or restart counted.
    """

    state: ClusterState
    now: float
    places: dict[str, Allocation] = field(default_factory=dict, init=False)
    left_s: dict[str, float] = field(default_factory=dict, init=False)

    def start(self, shares: Sequence[Share]) -> None:
        """Start the waiting jobs, as far as they find GPUs."""
        for share in shares:
            place = find_gang(self.state.free, self.state.costs, share.job.job, share.counts)
            if place is not None:
                self._take(share, place, stretch_s(share.job, self.state.costs, place))

    def change(self, changes: Sequence[Share], starting: Sequence[Share]) -> bool:
        """Change running jobs and start waiting ones; whether all of the running ones have GPUs then.

        Jobs that give up a part come first, so that the others find it free; then those that wait, then the
        other running ones, those that gain most first.
        """
        free, costs, by_type = self.state.free, self.state.costs, self.state.topology.by_type
        others: list[tuple[Share, bool]] = []
        for share in changes:
            job, counts, held = share.job, share.counts, by_type(share.job.allocation)
            if counts == held or any(gpus > held.get(name, 0) for name, gpus in counts.items()):
                # Unless it keeps all that it holds, its GPUs are for the others from the start.
                leaves = any(gpus > counts.get(name, 0) for name, gpus in held.items())
                others.append((share, leaves))
                continue
            place = keep_part(self.state.topology, job.job, job.allocation, counts)
            if place != job.allocation and sum(gpus for _, gpus in place) >= job.job.least_gpus:
                free.give(job.allocation)
                self._take(share, place, self._moved_s(job, place))
        others.sort(key=lambda other: (-other[0].saved_s, other[0].job.order))
        for share, leaves in others:
            if leaves:
                free.give(share.job.allocation)
        self.start(starting)
        for share, leaves in others:
            job = share.job
            grown = None if leaves else grow_part(free, job.job, job.allocation, share.counts)
            if not leaves:
                free.give(job.allocation)
            options = [grown, find_gang(free, costs, job.job, share.counts)]
            places = [each for each in options if each is not None]
            goal = min(places, key=lambda each: self._moved_s(share.job, each)) if places else None
            stays_s = job.remaining_s(self.now) * costs.cost(job.job, job.allocation).slowdown
            # It changes only if that pays for itself.
            if free.holds(job.allocation) and (goal is None or self._moved_s(job, goal) >= stays_s):
                free.take(job.allocation)
            elif goal is not None:
                self._take(share, goal, self._moved_s(job, goal))
            else:
                return False
        return True

    def _moved_s(self, job: JobState, place: Allocation) -> float:
        """Seconds until the end of a running job that goes on elsewhere, after a resize or restart."""
        slowdown = self.state.costs.cost(job.job, place).slowdown
        return change_s(self.state, job, place) + job.remaining_s(self.now) * slowdown

    def _take(self, share: Share, place: Allocation, left_s: float) -> None:
        self.state.free.take(place)
        self.places[share.job.job_id] = place
        self.left_s[share.job.job_id] = left_s


def find_gang(free: FreeGpus, costs: CostModel, job: Job, counts: Counts) -> Allocation | None:
    """Free GPUs for the job, close together, as many of each type as it is to have; None if there are none.

    Where that mixes types, one type alone is taken instead if that is as fast: the market adds up the speeds
    of workers, but a gang that splits its batch evenly runs at the slowest one's pace. A job for which none
    of this can be had takes the closest placement of the GPUs that it asked for.
    """
    options: list[Counts] = []
    if len(counts) > 1:
        # A rigid job needs all of its GPUs of one type; an elastic one makes do with that part of its share.
        alone = counts if job.kind is JobKind.ELASTIC else dict.fromkeys(counts, job.gpus)
        options += ({gpu_type: gpus} for gpu_type, gpus in alone.items() if gpus >= job.least_gpus)
    if sum(counts.values()) >= job.least_gpus:
        options.append(counts)
    placed = [allocation for option in options if (allocation := _find(free, job, option))]
    if placed:
        return min(placed, key=lambda allocation: costs.cost(job, allocation).slowdown)
    return free.find_closest(job.gang)


def keep_part(topology: Topology, job: Job, held: Allocation, counts: Counts) -> Allocation:
    """The part of an allocation that a job with fewer GPUs keeps: on the machines with most of them."""
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


def _find(free: FreeGpus, job: Job, counts: Counts) -> Allocation | None:
    """Free GPUs, of each type at the lowest level that holds them; None if there are none."""
    parts: list[tuple[int, int]] = []
    for gpu_type, gpus in counts.items():
        found = free.find_closest(job.gang._replace(gpus=gpus, gpu_type=gpu_type))
        if found is None:
            return None
        parts += found
    return placed(job.gang, tuple(sorted(parts)))
