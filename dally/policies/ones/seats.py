"""Real GPUs for the sizes of a candidate, on trial."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dally.cluster.topology import Allocation
from dally.jobs.job import JobKind
from dally.state import ClusterState, JobState


@dataclass(slots=True)
class Seats:
    """Who starts, goes on on other GPUs or stops; free GPUs of the state are taken as on trial.

    Attributes:
        state: The cluster, its free GPUs on trial.
        now: The moment, seconds.
        places: New allocations by job.
        stopped: Who loses its GPUs, by name.
    """

    state: ClusterState
    now: float
    places: dict[str, Allocation] = field(default_factory=dict)
    stopped: dict[str, JobState] = field(default_factory=dict)

    def change(self, running: Sequence[tuple[JobState, int]]) -> None:
        """Running jobs get other numbers of GPUs; 0 stops one. Who finds no others keeps those it has."""
        for job, gpus in running:
            if gpus == 0:
                self.state.free.give(job.allocation)
                self.stopped[job.job_id] = job
            elif gpus < held_gpus(job):
                self._shrink(job, gpus)
        for job, gpus in running:
            if gpus > held_gpus(job):
                self._grow(job, gpus)

    def start(self, waiting: Sequence[tuple[JobState, int]]) -> None:
        """Waiting jobs get GPUs, as many as they can of so many; who finds none waits on."""
        refused: set[tuple[object, ...]] = set()
        for job, gpus in waiting:
            demand = job.job.gang, gpus
            place = None if demand in refused else self._find(job, gpus)
            if place is None:
                refused.add(demand)
            else:
                self._take(job, place)

    def keep(self) -> None:
        """Who was stopped has its GPUs back if nobody got them."""
        free = self.state.free
        for job in [*self.stopped.values()]:
            if free.holds(job.allocation):
                free.take(job.allocation)
                del self.stopped[job.job_id]

    def _shrink(self, job: JobState, gpus: int) -> None:
        self.state.free.give(job.allocation)
        self._take(job, _part(job.allocation, gpus))

    def _grow(self, job: JobState, gpus: int) -> None:
        """More beside what it has, or closer together on one of its machines; elsewhere only if it must.

        It keeps what it has if nothing is faster.
        """
        free = self.state.free
        extra = self._find(job, gpus - held_gpus(job))
        free.give(job.allocation)
        options = list(self._options(job, gpus))
        if extra is not None:
            options.insert(0, _joined(job, extra))
        near = [place for place in options if stays_near(job, place)]
        best = self._fastest(job, [job.allocation, *(near or options)])
        if best == job.allocation:
            free.take(best)
        else:
            self._take(job, best)

    def _find(self, job: JobState, gpus: int) -> Allocation | None:
        options = list(self._options(job, gpus))
        return self._fastest(job, options) if options else None

    def _options(self, job: JobState, gpus: int) -> Iterator[Allocation]:
        """The closest free GPUs: any that the job accepts, and those of each type alone."""
        free, gang = self.state.free, job.job.gang._replace(gpus=gpus)
        types = self.state.topology.gpu_types if gang.gpu_type is None else ()
        for gpu_type in (gang.gpu_type, *(types if len(types) > 1 else ())):
            wanted = gang._replace(gpu_type=gpu_type)
            level = free.lowest_level(wanted)
            place = None if level is None else free.find(wanted, level)
            if place is not None:
                yield place

    def _fastest(self, job: JobState, options: Sequence[Allocation]) -> Allocation:
        costs, done = self.state.costs, job.done(self.now)
        return min(options, key=lambda place: costs.cost(job.job, place, done).slowdown)

    def _take(self, job: JobState, place: Allocation) -> None:
        self.state.free.take(place)
        self.places[job.job_id] = place


def _part(held: Allocation, gpus: int) -> Allocation:
    """So many GPUs of an allocation, on the machines with most of it."""
    kept = []
    for machine, share in sorted(held, key=lambda part: -part[1]):
        kept.append((machine, min(share, gpus)))
        gpus -= kept[-1][1]
    return tuple(sorted(part for part in kept if part[1]))


def _joined(job: JobState, extra: Allocation) -> Allocation:
    """What a job holds and more; only what it holds if that breaks its share on each machine."""
    shares = Counter(dict(job.allocation))
    shares.update(dict(extra))
    each = job.job.gang.per_machine
    fits = each is None or all(gpus == each for gpus in shares.values())
    return tuple(sorted(shares.items())) if fits else job.allocation


def held_of(place: Allocation) -> int:
    """GPUs of an allocation."""
    return sum(gpus for _, gpus in place)


def held_gpus(job: JobState) -> int:
    """GPUs that a job holds; 0 if it waits."""
    return held_of(job.allocation)


def stays_near(job: JobState, place: Allocation) -> bool:
    """Whether a job goes on elsewhere without a checkpoint: it is elastic and keeps one of its machines."""
    machines = {machine for machine, _ in job.allocation}
    return job.job.kind is JobKind.ELASTIC and any(machine in machines for machine, _ in place)
