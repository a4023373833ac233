"""Turns target sizes into decisions: which jobs start, shrink, grow, move or stop, on which GPUs, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dally.cluster.topology import Allocation
from dally.jobs.job import Gang, JobKind
from dally.plan import Decision, Migrate, Preempt, Resize, Start
from dally.policies.common.estimates import restart_s
from dally.policies.common.placements import takers
from dally.state import ClusterState, JobState
from dally.words import plural, span


@dataclass(frozen=True, slots=True)
class SizeTarget:
    """How many GPUs a job is to have, 0 for none, and why, in words and numbers."""

    gpus: int
    why: str


def plan_sizes(
    state: ClusterState,
    targets: Mapping[str, SizeTarget],
    now: float,
    kept: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> tuple[Decision, ...]:
    """The decisions that give jobs their sizes, as far as GPUs are found; call it outside of a trial.

    A job that runs on as many GPUs as it is to have keeps them, unless it is scattered and ends sooner closer
    together. A job grows or moves only if it ends sooner for it, its resize or restart counted; one shrinks
    only if others take its GPUs. A start that finds fewer GPUs than it should takes those, or waits if they
    are less than its least. Jobs without a target stay as they are.

    Args:
        state: The cluster as it is.
        targets: By name of the job, running or waiting, in the order of their ranks; the least sizes of all
            should fit. Not for jobs that run and must not be preempted.
        now: The moment, seconds.
        kept: By name of the job, machines of which it gets nothing more, as others wait for them.
    """
    with state.free.trial():
        return _SizePlan(state, targets, now, kept).decide()


def held_gpus(job: JobState) -> int:
    """GPUs that a job holds; 0 if it waits."""
    return sum(gpus for _, gpus in job.allocation)


def shrunk(held: Allocation, gpus: int) -> Allocation:
    """The part of an allocation with so many GPUs, on the machines that have most of them."""
    kept, left = [], gpus
    for machine, has in sorted(held, key=lambda part: -part[1]):
        if left:
            kept.append((machine, min(has, left)))
            left -= kept[-1][1]
    return tuple(sorted(kept))


def change_s(state: ClusterState, job: JobState, place: Allocation) -> float:
    """Seconds that a job pays to go on, or start, on an allocation; 0 if it is the one that it has."""
    if place == job.allocation:
        return 0.0
    if not job.allocation:
        return restart_s(job, state.costs)
    costs = state.costs
    return costs.resize_s(job.job) if needs_no_checkpoint(job, place) else costs.restart_s(job.job)


def needs_no_checkpoint(job: JobState, place: Allocation) -> bool:
    """Whether a running job goes on there without a checkpoint: it is elastic and keeps a machine."""
    machines = {machine for machine, _ in job.allocation}
    return job.job.kind is JobKind.ELASTIC and any(machine in machines for machine, _ in place)


class _SizePlan:
    """One set of decisions in the making, on trial.

    Attributes:
        places: The new allocations of jobs that start or change, by name, in the order of decisions.
    """

    def __init__(
        self,
        state: ClusterState,
        targets: Mapping[str, SizeTarget],
        now: float,
        kept: Mapping[str, frozenset[str]],
    ) -> None:
        self.places: dict[str, Allocation] = {}
        self._kept = kept
        self._state, self._targets, self._now = state, targets, now
        self._free, self._costs = state.free, state.costs

    def decide(self) -> tuple[Decision, ...]:
        """Stops and shrinks, then starts and growth by priority, at last moves closer together."""
        free, jobs = self._free, [self._state.jobs[name] for name in self._targets]
        stops = [job for job in jobs if job.allocation and not self._gpus(job)]
        shrinks = [job for job in jobs if 0 < self._gpus(job) < held_gpus(job)]
        for job in stops:
            free.give(job.allocation)
        for job in shrinks:
            free.give(job.allocation)
            self._take(job, shrunk(job.allocation, self._gpus(job)))
        for job in sorted((job for job in jobs if self._gpus(job) > held_gpus(job)), key=self._priority):
            if job.allocation:
                beside = self._beside(job, self._gpus(job) - held_gpus(job))
                free.give(job.allocation)
                elsewhere = self._closest(job, self._gpus(job))
                self._take(job, self._soonest(job, beside, elsewhere))
            elif (place := self._closest(job, self._gpus(job))) is not None:
                self._take(job, place)
        for job in shrinks:  # back to all of its GPUs if no other job took them
            free.give(self.places[job.job_id])
            if free.holds(job.allocation):
                del self.places[job.job_id]
                free.take(job.allocation)
            else:
                free.take(self.places[job.job_id])
        for job in jobs:
            gpus = held_gpus(job)
            if not 0 < self._gpus(job) == gpus:
                continue
            if job.level > self._costs.best_level(job.job.gang._replace(gpus=gpus)):
                free.give(job.allocation)
                self._take(job, self._soonest(job, self._closest(job, gpus)))
        changes = [self._decision(self._state.jobs[name], place) for name, place in self.places.items()]
        preempts = (
            Preempt(job.job_id, takers(free, job, self.places.items()), self._targets[job.job_id].why)
            for job in stops
        )
        return (*preempts, *changes)

    def _priority(self, job: JobState) -> tuple[int, int]:
        """Starts of fixed gangs first, then growth on machines held, other starts, other growth.

        Among those the largest first.
        """
        more = self._gpus(job) - held_gpus(job)
        if job.allocation:
            stays = sum(self._free.on(machine) for machine, _ in job.allocation) >= more
            return 1 if stays else 3, -more
        elastic = job.job.kind is JobKind.ELASTIC and job.job.gpus_per_machine is None
        return 2 if elastic else 0, -more

    def _closest(self, job: JobState, gpus: int) -> Allocation | None:
        """Free GPUs close together, so many or as many as there are; those on which the job is fastest.

        Of one type, or of all mixed; None if there are too few for it.
        """
        types = self._state.topology.gpu_types if job.job.gpu_type is None else (job.job.gpu_type,)
        places = []
        for gpu_type in (*types, *((None,) if len(types) > 1 else ())):
            gang = self._gang(job)._replace(gpu_type=gpu_type)
            at_hand = self._free.held(self._state.topology.root.index, gang) * (gang.per_machine or 1)
            gang = gang._replace(gpus=min(gpus, at_hand))
            place = self._free.find_closest(gang) if gang.gpus >= job.job.least_gpus else None
            if place is not None:
                places.append(place)
        return min(places, key=lambda place: self._slowdown(job, place), default=None)

    def _beside(self, job: JobState, more: int) -> Allocation | None:
        """What a job holds and more GPUs, on the same machines first, then as close as can be.

        The latter are of one of its types, in the closest domain around its first machine that has so many.
        """
        if job.job.gpus_per_machine is not None:
            return None
        free, topology = self._free, self._state.topology
        parts, kept = dict(job.allocation), self._kept.get(job.job_id, ())
        for machine, has in sorted(job.allocation, key=lambda part: -part[1]):
            if topology.machines[machine].name in kept:
                continue
            gained = min(more, free.on(machine))
            parts[machine] = has + gained
            more -= gained
        own = tuple((machine, free.on(machine)) for machine, _ in job.allocation)
        home, gpu_type = job.allocation[0][0], next(iter(topology.by_type(job.allocation)))
        free.take(own)
        gang = self._gang(job)._replace(gpu_type=gpu_type)
        more = min(more, free.held(topology.root.index, gang))
        gang = gang._replace(gpus=more)
        for domain in topology.ancestors[home][: topology.widest + 1] if more else ():
            if free.held(domain, gang) >= more:
                for machine, gpus in free.pack(domain, gang):
                    parts[machine] = parts.get(machine, 0) + gpus
                break
        free.give(own)
        return tuple(sorted(parts.items()))

    def _gang(self, job: JobState) -> Gang:
        """What a job asks for, on machines that are not kept from it."""
        gang, kept = job.job.gang, self._kept.get(job.job_id)
        if not kept:
            return gang
        names = gang.machines or frozenset(machine.name for machine in self._state.topology.machines)
        return gang._replace(machines=names - kept)

    def _soonest(self, job: JobState, *options: Allocation | None) -> Allocation:
        """Where a running job ends first, its change counted; what it has if that is as good."""
        places = [job.allocation, *(place for place in options if place is not None)]
        return min(places, key=lambda place: self._left_s(job, place))

    def _left_s(self, job: JobState, place: Allocation) -> float:
        """Seconds until the end of a job that goes on there, its start or change counted."""
        left_s = job.remaining_s(self._now) * self._slowdown(job, place)
        return change_s(self._state, job, place) + left_s

    def _slowdown(self, job: JobState, place: Allocation) -> float:
        return self._costs.cost(job.job, place, job.done(self._now)).slowdown

    def _take(self, job: JobState, place: Allocation) -> None:
        self._free.take(place)
        if place != job.allocation:
            self.places[job.job_id] = place

    def _gpus(self, job: JobState) -> int:
        return self._targets[job.job_id].gpus

    def _decision(self, job: JobState, place: Allocation) -> Decision:
        """The decision that puts a job there."""
        name, level = job.job_id, self._state.topology.level_of(place)
        left_s, cost_s = self._left_s(job, place), change_s(self._state, job, place)
        why, gpus = self._targets[name].why, plural(sum(gpus for _, gpus in place), "GPU")
        there = f"{gpus} at slowdown {self._slowdown(job, place):.3g}: {span(left_s)} to its end"
        if not job.allocation:
            return Start(name, place, level, f"{there}, waited {span(self._now - job.origin_s)}; {why}")
        before = f"instead of {span(self._left_s(job, job.allocation))} on {held_gpus(job)}"
        kind, word = (Resize, "resize") if needs_no_checkpoint(job, place) else (Migrate, "restart")
        return kind(name, place, level, f"{there}, {span(cost_s)} of {word} counted, {before}; {why}")
