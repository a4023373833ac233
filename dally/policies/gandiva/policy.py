"""Gandiva: affinity by gang size, time slicing when overloaded, migration of scattered jobs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from math import inf
from typing import Any

from dally.cluster.free import placed
from dally.cluster.topology import Allocation
from dally.plan import Decision, Migrate, Plan, Start, Wait
from dally.policies.base import Policy
from dally.policies.common.evictions import Evictions
from dally.policies.common.job_queue import DemandQueue, DemandRound
from dally.policies.common.knobs import knob
from dally.policies.common.placements import Placement, closest, find_victims
from dally.policies.common.ranking import Ranking
from dally.state import ClusterState, JobState
from dally.words import plural, span

MIGRATED = 8
"""Scattered jobs considered for migration when GPUs come free."""


@dataclass(frozen=True, slots=True)
class GandivaKnobs:
    """Settings of `gandiva`.

    Gandiva slices time by the minute, at 100 ms a switch, because its jobs stay in memory. Here a job that
    loses its GPUs pays a checkpoint and a restart, by default 6 s + 1 s per GPU: of 60 s slices a gang of 54
    would do no work at all, of hours 2 % are lost.
    """

    slice_s: float = knob(
        3600.0, "seconds of work that a job is sure of before others may take its GPUs", above=0
    )


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
        """All gangs are here again: what else was restored was of gangs that have ended."""
        self._restored.clear()

    def sets(self) -> dict[int, int]:
        """The machines dedicated to each size, as a copy to try placements with."""
        return dict(self._machines)


class Gandiva(Policy):
    """Starts jobs at once wherever they fit and mends placements later.

    A gang that fits in a machine goes to the best-fitting one that is dedicated to gangs of its size, else to
    an idle one, else to the one with most free GPUs; others to the domain with most free GPUs at the lowest
    level that holds them. When nothing is free the job that has waited longest takes the GPUs of jobs whose
    slice is over, those whose slice ended first; they join the end of the queue. No other job slices before
    it has started, so wide gangs get their turn, but jobs behind it may use what is free. A slice once over
    stays over: a wide gang needs many jobs past theirs at one moment, and slices end at different times.

    When GPUs come free, the scattered jobs that have longest to run move to closer placements if that saves
    more running time than the restart costs.
    """

    name = "gandiva"
    summary = (
        "Jobs of equal size share machines, take turns when there are too many, and migrate closer together."
    )
    source = "Xiao et al., Gandiva: Introspective Cluster Scheduling for Deep Learning, OSDI 2018"
    knobs_type = GandivaKnobs

    def __init__(self, knobs: GandivaKnobs, state: ClusterState) -> None:
        self.knobs = knobs
        self.waiting = DemandQueue()
        self.slices = Ranking()
        self.scattered = Ranking()
        self.affinity = Affinity()
        self._state = state
        self._held: dict[int, Allocation] = {}
        self._free_before = state.topology.gpus

    def submitted(self, job: JobState, now: float) -> None:
        self.waiting.add(job, None, job.origin_s)

    def started(self, job: JobState, now: float) -> None:
        self.waiting.remove(job)
        self.slices.add(job, job.ready_s + self.knobs.slice_s if job.job.preemptible else inf)
        self._held[job.order] = job.allocation
        self.affinity.add(job.job.gpus, job.allocation)
        if job.speed < 1 and job.job.preemptible:
            self.scattered.add(job, -job.end_s())

    def repaced(self, job: JobState, now: float) -> None:
        if job in self.scattered:
            self.scattered.move(job, -job.end_s())

    def stopped(self, job: JobState, now: float) -> None:
        self._drop(job)
        self.waiting.add(job, None, job.origin_s)

    def finished(self, job: JobState, now: float) -> None:
        self._drop(job)

    def withdrawn(self, job: JobState, now: float) -> None:
        self.waiting.remove(job)

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """Remember what is free, to see when more comes free."""
        self._free_before = state.free.total()

    def time_passed(self, state: ClusterState, now: float) -> None:
        """After a restart, all jobs are here again."""
        self.affinity.forget_restored()

    def snapshot(self) -> dict[str, Any]:
        return {"free_before": self._free_before, "dedicated": self.affinity.snapshot()}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        self._free_before = learnt.get("free_before", self._free_before)
        self.affinity.restore(learnt.get("dedicated", ()))

    def decide(self, state: ClusterState, now: float) -> Plan:
        """Start, slice, migrate."""
        freed = state.free.total() > self._free_before
        if not self.waiting and not (freed and self.scattered):
            return Plan()
        with state.free.trial():
            plan = GandivaRound(self, state, now)
            plan.run()
            if freed:
                plan.migrate()
            decisions = plan.decisions()
        if len(self.waiting) == len(plan.started) and not plan.evictions:
            return Plan(decisions)  # nobody waits after this plan
        # A job started now has no slice in the ranking yet; one slice ahead is never too late for it.
        return Plan(decisions, min(self.slices.next_key(now), now + self.knobs.slice_s))

    def _drop(self, job: JobState) -> None:
        self.slices.remove(job)
        self.affinity.remove(self._held.pop(job.order))
        if job in self.scattered:
            self.scattered.remove(job)


class GandivaRound:
    """One plan in the making, on trial."""

    def __init__(self, policy: Gandiva, state: ClusterState, now: float) -> None:
        self._policy, self._state, self.now = policy, state, now
        self.evictions = Evictions(state.free)
        self.started: set[int] = set()
        self._starts: list[Decision] = []
        self._dedicated = policy.affinity.sets()
        self._blocked = False

    def run(self) -> None:
        """Serve the waiting jobs, longest wait first; those that stop go on elsewhere if they can."""
        offers = DemandRound(self._policy.waiting.rankings())
        while (job := offers.next()) is not None:
            found = self._place(job)
            if found is None and not self._blocked:
                found = self._slice(job)
                self._blocked = found is None
            if found is None:
                offers.refused()
            else:
                offers.served()
                placement, why = found
                self._take(job, placement)
                self.started.add(job.order)
                name = self._state.topology.levels[placement.level]
                if len(placement.allocation) == 1:
                    name = self._state.topology.machines[placement.allocation[0][0]].name
                reason = f"{name} {why}; waited {span(self.now - job.origin_s)}"
                self._starts.append(Start(job.job_id, placement.allocation, placement.level, reason))

        def elsewhere(job: JobState) -> Placement | None:
            found = self._place(job)
            return None if found is None else found[0]

        self.evictions.move_stopped(elsewhere)

    def migrate(self) -> None:
        """Bring scattered jobs closer together on GPUs that stay free, if that saves more than a restart."""
        free, costs = self._state.free, self._state.costs
        for job in islice(self._policy.scattered, MIGRATED):
            if job in self.evictions or job.ready_s >= self.now:
                continue
            free.give(job.allocation)
            best = self._state.best_level(job.job.gang)
            placement = closest(free, job.job, best, self._state.topology.top)
            assert placement is not None, "its own GPUs are free"
            left_s, restart_s = job.remaining_s(self.now), costs.restart_s(job.job)
            # Both as if alone: which other jobs will use the links, here or there, is not known.
            slowdown, held = (
                costs.cost(job.job, place).slowdown for place in (placement.allocation, job.allocation)
            )
            saved_s = left_s * (held - slowdown)
            if saved_s <= restart_s:
                free.take(job.allocation)
                continue
            self._take(job, placement)
            reason = (
                f"slowdown {held:.3f} becomes {slowdown:.3f}: saves {span(saved_s)} of the rest "
                f"for {span(restart_s)} of restart"
            )
            self._starts.append(Migrate(job.job_id, placement.allocation, placement.level, reason))

    def decisions(self) -> tuple[Decision, ...]:
        """Stops, then starts and moves, then the waits to be explained."""
        waits = []
        for job in self._state.to_explain(self._starts):
            asked, free = plural(job.job.gpus, "GPU"), self._state.free.usable(job.job.gang)
            slice_s = self._policy.knobs.slice_s
            reason = f"{asked} asked for, {free} free; takes turns with those that worked for {span(slice_s)}"
            waits.append(Wait(job.job_id, self._state.topology.top, inf, reason))
        return (*self.evictions.decisions(), *self._starts, *waits)

    def _place(self, job: JobState) -> tuple[Placement, str] | None:
        """A placement on free GPUs, by affinity, and why there."""
        request, free = job.job, self._state.free
        if request.gpus > free.usable(request.gang):
            return None
        level = free.lowest_level(request.gang)
        if level is None:
            return None
        if level == 0:
            idle = (1 << len(self._state.topology.machines)) - 1
            for machines in self._dedicated.values():
                idle &= ~machines
            same = self._dedicated.get(request.gpus, 0)
            for machines, why in ((same, f"runs other gangs of {request.gpus}"), (idle, "was idle")):
                machine = free.machine_among(machines, request.gang) if machines else None
                if machine is not None:
                    return Placement(placed(request.gang, ((machine, request.gpus),)), 0), why
        domain = free.roomiest(level, request.gang)
        assert domain is not None, "it fits at this level"
        return Placement(free.pack(domain, request.gang), level), "has most free GPUs"

    def _slice(self, job: JobState) -> tuple[Placement, str] | None:
        """Take the GPUs of jobs whose slice is over, together if possible."""
        free, top = self._state.free, self._state.topology.top
        victims = find_victims(free, self._over(), job.job, top)
        if not victims:
            return None
        best = self._state.best_level(job.job.gang)
        victims = (find_victims(free, self._over(), job.job, best) if best < top else []) or victims
        self.evictions.release(victims)
        for victim in victims:
            worked_s = self.now - victim.ready_s
            self.evictions.stop(victim, job, f"slice over after {span(worked_s)} of work")
        found = self._place(job)
        assert found is not None, "the victims' GPUs are enough"
        return found[0], f"took turns with {plural(len(victims), 'job')} whose slice was over"

    def _over(self) -> Iterator[JobState]:
        """Running jobs whose slice is over, first ended first."""
        slices = self._policy.slices
        over = takewhile(lambda job: slices.rank(job)[0] <= self.now, slices)
        return (job for job in over if job.preemptible and job not in self.evictions)

    def _take(self, job: JobState, placement: Placement) -> None:
        self._state.free.take(placement.allocation)
        free_for_all = ~sum(self._dedicated.values())
        for machine, _ in placement.allocation:
            if free_for_all >> machine & 1:
                gpus = job.job.gpus
                self._dedicated[gpus] = self._dedicated.get(gpus, 0) | 1 << machine
