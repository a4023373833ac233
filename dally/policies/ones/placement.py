"""Real GPUs for the sizes of a candidate, on trial."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dally.cluster.topology import Allocation
from dally.policies.common.sizing import held_gpus, needs_no_checkpoint, shrunk
from dally.state import ClusterState, JobState


@dataclass(slots=True)
class SchedulePlacement:
    """The jobs that start, go on on other GPUs or stop; their GPUs are taken from the state's, on trial.

    Attributes:
        state: The cluster, its free GPUs on trial.
        now: The moment, seconds.
        places: New allocations by job.
        stopped: The jobs that lose their GPUs, by name.
        choosy: Whether a job that accepts some machines only, or wants segments or whole blocks, found no
            GPUs: sizes do not tell where.
    """

    state: ClusterState
    now: float
    places: dict[str, Allocation] = field(default_factory=dict)
    stopped: dict[str, JobState] = field(default_factory=dict)
    choosy: bool = False

    def change(self, running: Sequence[tuple[JobState, int]]) -> None:
        """Give running jobs other numbers of GPUs; 0 stops one. A job that finds no others keeps its own."""
        for job, gpus in running:
            if gpus == 0:
                self.state.free.give(job.allocation)
                self.stopped[job.job_id] = job
            elif gpus < held_gpus(job):
                self.state.free.give(job.allocation)
                self._take(job, shrunk(job.allocation, gpus))
        for job, gpus in running:
            if gpus > held_gpus(job):
                self._grow(job, gpus)

    def start(self, waiting: Sequence[tuple[JobState, int]]) -> None:
        """Start the waiting jobs for which there are so many GPUs."""
        refused: set[tuple[object, ...]] = set()
        for job, gpus in waiting:
            demand = job.job.gang, gpus
            options = [] if demand in refused else list(self._options(job, gpus))
            if options:
                self._take(job, self._fastest(job, options))
            else:
                refused.add(demand)
                gang = job.job.gang
                self.choosy |= gang.machines is not None or gang.segment is not None or gang.whole_blocks

    def keep(self) -> None:
        """Give stopped jobs their GPUs back if no other job got them.

        Shrunk ones, too, if that may have been for a job that does not accept their machines.
        """
        for job in [*self.stopped.values()]:
            if self.state.free.holds(job.allocation):
                self.state.free.take(job.allocation)
                del self.stopped[job.job_id]
        for name, place in [*self.places.items()] if self.choosy else []:
            job, gpus = self.state.jobs[name], sum(gpus for _, gpus in place)
            if gpus < held_gpus(job):
                self.state.free.give(place)
                if self.state.free.holds(job.allocation):
                    del self.places[name]
                self.state.free.take(self.places.get(name, job.allocation))

    def _grow(self, job: JobState, gpus: int) -> None:
        """More beside what it has, or closer together on one of its machines; elsewhere only if it must.

        It keeps what it has if nothing is faster.
        """
        free = self.state.free
        extra = list(self._options(job, gpus - held_gpus(job)))
        free.give(job.allocation)
        options = list(self._options(job, gpus))
        if extra:
            shares = Counter(dict(job.allocation))
            shares.update(dict(self._fastest(job, extra)))
            each = job.job.gang.per_machine
            joined = tuple(sorted(shares.items()))
            fits = each is None or all(gpus == each for _, gpus in joined)
            options.insert(0, joined if fits else job.allocation)
        near = [place for place in options if needs_no_checkpoint(job, place)]
        best = self._fastest(job, [job.allocation, *(near or options)])
        if best == job.allocation:
            free.take(best)
        else:
            self._take(job, best)

    def _options(self, job: JobState, gpus: int) -> Iterator[Allocation]:
        """The closest free GPUs: any that the job accepts, and those of each type alone."""
        free, gang = self.state.free, job.job.gang._replace(gpus=gpus)
        types = self.state.topology.gpu_types if gang.gpu_type is None else ()
        for gpu_type in (gang.gpu_type, *(types if len(types) > 1 else ())):
            place = free.find_closest(gang._replace(gpu_type=gpu_type))
            if place is not None:
                yield place

    def _fastest(self, job: JobState, options: Sequence[Allocation]) -> Allocation:
        costs, done = self.state.costs, job.done(self.now)
        return min(options, key=lambda place: costs.cost(job.job, place, done).slowdown)

    def _take(self, job: JobState, place: Allocation) -> None:
        self.state.free.take(place)
        self.places[job.job_id] = place
