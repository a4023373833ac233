"""Tiresias: discretised two-dimensional least attained service, with consolidation for skewed models only."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import Any, ClassVar

from dally.errors import InputError
from dally.mechanisms.attained_service import Service
from dally.mechanisms.evictions import Evictions
from dally.mechanisms.job_queue import DemandQueue, DemandRound
from dally.mechanisms.leases import ScatteredLeases
from dally.mechanisms.placements import Placement, closest, find_victims
from dally.mechanisms.ranking import Rank, Ranking
from dally.mechanisms.skew import skew
from dally.plan import Decision, Migrate, Plan, Start, Wait
from dally.policies.base import Policy
from dally.state import ClusterState, JobState
from dally.words import are, gpu_time, plural, span

LIMITS = (3250.0, 7200.0, 18000.0)
"""Attained service at which a job leaves each queue, GPU-seconds; K queues use the first K - 1 limits."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """Settings of `tiresias`."""

    queues: int = field(
        default=3, metadata={"help": "K; queue limits are the first K - 1 of 3250, 7200, 18000 GPU-seconds"}
    )
    promote: float = field(
        default=8.0,
        metadata={"help": "back to the top queue after waiting this many times the time run; 0 is never"},
    )
    skew_limit: float = field(
        default=0.25,
        metadata={"help": "models whose largest tensor is more than this share of the gradients consolidate"},
    )

    regroup_s: float = field(
        default=3600.0,
        metadata={"help": "training after which a scattered job moves closer together if it can; 0 is never"},
    )

    def __post_init__(self) -> None:
        if not 0 <= self.regroup_s < inf:
            raise InputError(f"knob regroup_s is {self.regroup_s:g}, must be 0 or more")
        if not 1 <= self.queues <= len(LIMITS) + 1:
            raise InputError(f"knob queues is {self.queues}, must be 1 to {len(LIMITS) + 1}")
        if self.promote < 0 or self.skew_limit < 0:
            raise InputError(f"promote {self.promote:g} and skew_limit {self.skew_limit:g} must be 0 or more")


class Tiresias(Policy):
    """Jobs with little attained service (GPUs x running time) go first, in K queues; they preempt others.

    Within a queue jobs that started go first, by their start; then those that did not, by arrival. A job
    falls to the next queue the moment its attained service reaches the limit, and goes back to the top as if
    new once it has waited `promote` times as long as it ran since it was last there, as in the simulator of
    its authors. As there, a job that does not fit is passed by others, and K = 3 queues use two limits.
    Unlike there, scattered jobs may move closer each `regroup_s`: the published Dally places anew at each
    lease end, and a baseline must not fare worse for being denied it.
    """

    name: ClassVar[str] = "tiresias"
    summary: ClassVar[str] = (
        "Jobs that used few GPU-seconds so far go first and preempt others; only skewed models consolidate."
    )
    source: ClassVar[str] = "Gu et al., Tiresias: A GPU Cluster Manager for Distributed DL, NSDI 2019"
    knobs_type: ClassVar[type] = Knobs

    def __init__(self, knobs: Knobs, state: ClusterState) -> None:
        self.knobs = knobs
        self.limits = LIMITS[: knobs.queues - 1]
        self.waiting = DemandQueue()
        self.running = Ranking()
        self.scattered = ScatteredLeases(knobs.regroup_s or inf, state.best_level)
        self._state = state
        self._service: dict[str, Service] = {}
        self._changes = Ranking()

    def submitted(self, job: JobState, now: float) -> None:
        """A new job enters the top queue, one that ran before the queue of its service."""
        request = job.job
        best = self._state.best_level(request.gang)
        top = self._state.topology.top
        skewed = skew(request, self._state.costs.profiles) > self.knobs.skew_limit
        service = self._service.setdefault(job.job_id, Service(top, job.origin_s))
        service.highest = best if skewed else top
        attained_s = job.job.gpus * self._executed_s(job, now)
        service.queue = sum(limit <= attained_s for limit in self.limits)
        self._enqueue(job)
        self._set_due(job, self._promotion_s(job, job.origin_s))

    def started(self, job: JobState, now: float) -> None:
        """Its waiting time counts if it ran before, and its service goes on."""
        self._service[job.job_id].start(now, now - job.origin_s, job.run_before_s)
        self.resumed(job, now)

    def resumed(self, job: JobState, now: float) -> None:
        """It runs on with the service that was restored, or as if it had just started."""
        self.waiting.remove(job)
        if self._service[job.job_id].start_s == inf:
            self._service[job.job_id].start(job.since_s, 0.0, job.run_before_s)
        self.running.add(job, *self._service[job.job_id].key())
        self._set_due(job, self._demotion_s(job, now))
        self.scattered.started(job)

    def stopped(self, job: JobState, now: float) -> None:
        """It waits in its queue."""
        self._refresh(now)
        self._drop(job)
        self._enqueue(job)
        self._set_due(job, self._promotion_s(job, now))

    def finished(self, job: JobState, now: float) -> None:
        """Forget it."""
        self._drop(job)
        del self._service[job.job_id]

    def withdrawn(self, job: JobState, now: float) -> None:
        """It leaves its queue."""
        self.waiting.remove(job)
        self._set_due(job, inf)
        del self._service[job.job_id]

    def waits(self, decision: Wait) -> None:
        """Its wait is on record."""
        self.waiting.said(decision.job_id)

    def snapshot(self) -> dict[str, Any]:
        """The service of each job since it was last new, and when scattered jobs last looked."""
        services = {
            job_id: [
                service.entered_s,
                None if service.start_s == inf else service.start_s,
                service.run_before_s,
                service.pending_s,
            ]
            for job_id, service in sorted(self._service.items())
        }
        return {"services": services, "scattered": self.scattered.snapshot()}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave, before the jobs are submitted again."""
        self.scattered.restore(learnt["scattered"])
        for job_id, (entered_s, start_s, run_before_s, pending_s) in learnt["services"].items():
            start = inf if start_s is None else start_s
            self._service[job_id] = Service(
                self._state.topology.top, entered_s, start, run_before_s, pending_s
            )

    def decide(self, state: ClusterState, now: float) -> Plan:
        """Start waiting jobs by queue, on free GPUs or on those of jobs with a lesser claim."""
        self._refresh(now)
        scattered = self.scattered.expired(now)
        if not self.waiting and not scattered:
            return Plan(wakeup_s=self.scattered.next_end_s(now))
        with state.free.trial():
            plan = TiresiasRound(self, state, now)
            plan.run()
            plan.regroup(scattered)
            waits = plan.waits()
        return Plan((*plan.evictions.decisions(), *plan.starts, *waits), self._wakeup_s(plan))

    def highest(self, job: JobState) -> int:
        """The highest level that a job accepts."""
        return self._service[job.job_id].highest

    def queue_of(self, job: JobState) -> int:
        """The queue of a job, 0 for the top."""
        return int(self._service[job.job_id].key()[0])

    def lesser(self, rank: Rank) -> Iterator[JobState]:
        """Running jobs with a lesser claim, the least first."""
        lesser = takewhile(lambda job: self.running.rank(job) > rank, reversed(self.running))
        return (job for job in lesser if job.job.preemptible)

    def rank(self, job: JobState) -> Rank:
        """The claim of a job: queue, first start, entry, arrival."""
        return (*self._service[job.job_id].key(), job.order)

    def _refresh(self, now: float) -> None:
        """Carry out the changes of queue that are due; done twice it changes nothing more."""
        while self._changes and self._changes.first_key() <= now:
            job = self._changes.at(0)
            if job in self.running:
                self._demote(job)
            else:
                self._promote(job)

    def _demote(self, job: JobState) -> None:
        self._service[job.job_id].queue += 1
        self.running.remove(job)
        self.running.add(job, *self._service[job.job_id].key())
        self._set_due(job, self._demotion_s(job, job.since_s))

    def _promote(self, job: JobState) -> None:
        service = self._service[job.job_id]
        self.waiting.remove(job)
        service.promoted_s = service.due_s
        self._set_due(job, inf)
        self._enqueue(job)

    def _demotion_s(self, job: JobState, since_s: float) -> float:
        """When a job that runs since `since_s` reaches the limit of its queue; inf in the last."""
        queue = self.queue_of(job)
        if queue >= len(self.limits):
            return inf
        return since_s + self.limits[queue] / job.job.gpus - self._executed_s(job, since_s)

    def _promotion_s(self, job: JobState, now: float) -> float:
        """When a job that has waited since `now` goes back to the top; inf if never."""
        service = self._service[job.job_id]
        executed_s = self._executed_s(job, now)
        if not self.knobs.promote or not service.queue or not executed_s:
            return inf
        return now + max(0.0, self.knobs.promote * executed_s - service.pending_s)

    def _executed_s(self, job: JobState, now: float) -> float:
        """Running time since the job was last new, seconds."""
        service = self._service[job.job_id]
        return 0.0 if service.promoted_s < inf else job.run_s(now) - service.run_before_s

    def _enqueue(self, job: JobState) -> None:
        self.waiting.add(job, self.highest(job), *self._service[job.job_id].key())

    def _drop(self, job: JobState) -> None:
        self.running.remove(job)
        self.scattered.stopped(job)
        self._set_due(job, inf)

    def _set_due(self, job: JobState, due_s: float) -> None:
        if job in self._changes:
            self._changes.remove(job)
        self._service[job.job_id].due_s = due_s
        if due_s < inf:
            self._changes.add(job, due_s)

    def settle(self, state: ClusterState, now: float) -> None:
        """Scattered jobs that could not move closer look again after another term."""
        self.scattered.settle(now)

    def _wakeup_s(self, plan: "TiresiasRound") -> float:
        """The next change of queue, if anybody waits after this plan, or the next look of a scattered job."""
        # A job that starts scattered is not in the book yet; one term ahead is never too late for it.
        look_s = min(self.scattered.next_end_s(plan.now), plan.now + self.scattered.lease_s)
        if len(self.waiting) == len(plan.started) and not len(plan.evictions):
            return look_s
        now = plan.now
        dues = [self._demotion_s(job, now) for job in plan.started.values()]
        dues += [self._promotion_s(job, now) for job in plan.evictions.jobs()]
        if self._changes:
            dues.append(self._changes.first_key())
        return min([look_s, *(due for due in dues if due > now)])


class TiresiasRound:
    """One plan in the making, on trial."""

    def __init__(self, policy: Tiresias, state: ClusterState, now: float) -> None:
        self._policy, self._state, self.now = policy, state, now
        self.evictions = Evictions(state.free)
        self.started: dict[int, JobState] = {}
        self.starts: list[Decision] = []

    def run(self) -> None:
        """Serve the waiting jobs by claim; those that stop go on elsewhere if they can."""
        offers = DemandRound(self._policy.waiting)
        while (job := offers.next()) is not None:
            placement = self._place(job) or self._make_room(job)
            if placement is None:
                offers.refused()
            else:
                offers.served()
                self._start(job, placement)
        self.evictions.move_stopped(self._place)

    def regroup(self, scattered: Iterable[JobState]) -> None:
        """Move jobs whose GPUs lie farther apart than they need, if closer ones are free by now."""
        free, levels = self._state.free, self._state.topology.levels
        for job in scattered:
            if job in self.evictions:
                continue
            free.give(job.allocation)
            best = self._state.best_level(job.job.gang)
            closer = closest(free, job.job, best, job.level - 1)
            free.take(closer.allocation if closer else job.allocation)
            if closer:
                have = f"{levels[closer.level]} has {plural(job.job.gpus, 'free GPU')}"
                reason = f"{have}, it held a {levels[job.level]}'s"
                self.starts.append(Migrate(job.job_id, closer.allocation, closer.level, reason))

    def waits(self) -> list[Decision]:
        """Waits that are not on record yet."""
        return [self._wait(job) for job in self._policy.waiting.unsaid() if job.order not in self.started]

    def _place(self, job: JobState) -> Placement | None:
        best = self._state.best_level(job.job.gang)
        return closest(self._state.free, job.job, best, self._policy.highest(job))

    def _make_room(self, job: JobState) -> Placement | None:
        """Stop jobs with a lesser claim, the least first, if that lets the job start."""
        rank = self._policy.rank(job)
        candidates = (
            victim
            for victim in self._policy.lesser(rank)
            if victim.since_s < self.now and victim not in self.evictions
        )
        victims = find_victims(self._state.free, candidates, job.job, self._policy.highest(job))
        if not victims:
            return None
        self.evictions.release(victims)
        for victim in victims:
            self.evictions.stop(victim, job, self._claims(victim, job))
        return self._place(job)

    def _claims(self, victim: JobState, job: JobState) -> str:
        lost, won = self._policy.queue_of(victim), self._policy.queue_of(job)
        attained_s = victim.attained_s(self.now)
        if lost == won:
            return f"queue {lost} goes by start, and {job.job_id} started before"
        return f"in queue {lost} after {gpu_time(attained_s)}; {job.job_id} is in queue {won}"

    def _start(self, job: JobState, placement: Placement) -> None:
        self._state.free.take(placement.allocation)
        self.started[job.order] = job
        reason = (
            f"{self._state.topology.levels[placement.level]} has {plural(job.job.gpus, 'free GPU')}; "
            f"queue {self._policy.queue_of(job)} after {gpu_time(job.attained_s(self.now))}, "
            f"waited {span(self.now - job.origin_s)}"
        )
        self.starts.append(Start(job.job_id, placement.allocation, placement.level, reason))

    def _wait(self, job: JobState) -> Wait:
        level, request = self._policy.highest(job), job.job
        free = self._state.free.total(request.gpu_type)
        asked = plural(request.gpus, "GPU")
        lacks = f"no {self._state.topology.levels[level]} has {asked}"
        if level == self._state.topology.top:
            lacks = f"{asked} asked for"
        reason = (
            f"{lacks}, {are(free)} free in all; "
            f"queue {self._policy.queue_of(job)} after {gpu_time(job.attained_s(self.now))}"
        )
        return Wait(job.job_id, level, inf, reason)
