"""Tiresias: discretised two-dimensional least attained service, with consolidation for skewed models only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from math import inf
from typing import Any, NamedTuple

from dally.plan import Decision, Migrate, Plan, Start, Wait
from dally.policies.base import Policy
from dally.policies.common.evictions import Evictions
from dally.policies.common.job_queue import DemandQueue, DemandRound
from dally.policies.common.knobs import knob
from dally.policies.common.leases import ScatteredLeases
from dally.policies.common.placements import Placement, accepted, closest, find_victims
from dally.policies.common.ranking import Rank, Ranking
from dally.policies.common.rounds import next_multiple
from dally.policies.tiresias.attained_service import AttainedService, queue_limits
from dally.policies.tiresias.skew import skew
from dally.state import ClusterState, JobState
from dally.words import are, gpu_time, plural, span


@dataclass(frozen=True, slots=True)
class TiresiasKnobs:
    """Settings of `tiresias`."""

    limits: str = knob(
        "published",
        "GPU-seconds at which a job leaves a queue: published (3250+7200), pollux (57600), none "
        "(one queue), or others like 3600+36000",
    )
    quantum_s: float = knob(
        600.0, "seconds of training that a job is sure of at each start; 0 is none", least=0
    )
    quantum_restarts: float = knob(
        10.0, "and so many times what the job's restart costs, if that is longer", least=0
    )
    order: str = knob(
        "start",
        "in a queue by first start, then arrival; or by arrival: a waiting job stops those that came later",
        ("start", "arrival"),
    )
    interval_s: float = knob(0.0, "decide at multiples of so many seconds only; 0 is at every event", least=0)
    promote: float = knob(
        8.0, "back to the top queue after waiting this many times the time trained; 0 is never", least=0
    )
    skew_limit: float = knob(
        0.25, "models whose largest tensor is more than this share of the gradients consolidate", least=0
    )
    regroup_s: float = knob(
        3600.0, "training after which a scattered job moves closer together if it can; 0 is never", least=0
    )

    def __post_init__(self) -> None:
        queue_limits(self.limits)


class _Restored(NamedTuple):
    """What a job's place in the queues was before a restart.

    It holds if the job still waits or runs since then. Worked out anew, the last bit of a time may differ.
    """

    since_s: float
    queue: int
    promoted_s: float
    due_s: float


class Tiresias(Policy):
    """Jobs with little attained service (GPUs x time trained) go first, in queues; they preempt others.

    Within a queue jobs that started go first, by their start; then those that did not, by arrival. A job
    falls to the next queue the moment its attained service reaches the limit, and goes back to the top as if
    new once it has waited `promote` times as long as it trained since it was last there, as in the simulator
    of its authors. As there, a job that does not fit is passed by others.

    Three things the authors' simulator has no need of, for it knows neither restarts nor the network: a job
    is sure of a quantum of training per start, a longer one if its restart is long; restarts are no
    service; and scattered jobs may move closer each `regroup_s`. It must not fare worse for lack of them.
    """

    name = "tiresias"
    summary = (
        "Jobs that used few GPU-seconds so far go first and preempt others; only skewed models consolidate."
    )
    source = "Gu et al., Tiresias: A GPU Cluster Manager for Distributed DL, NSDI 2019"
    knobs_type = TiresiasKnobs

    def __init__(self, knobs: TiresiasKnobs, state: ClusterState) -> None:
        self.knobs = knobs
        self.limits = queue_limits(knobs.limits)
        self.waiting = DemandQueue()
        self.running = Ranking()
        self.sure = Ranking()
        self.scattered = ScatteredLeases(knobs.regroup_s or inf, state.best_level)
        self._state = state
        self._service: dict[str, AttainedService] = {}
        self._changes = Ranking()
        self._restored: dict[str, _Restored] = {}

    def submitted(self, job: JobState, now: float) -> None:
        request = job.job
        best = self._state.best_level(request.gang)
        top = self._state.topology.top
        skewed = skew(request, self._state.costs.profiles) > self.knobs.skew_limit
        service = self._service.setdefault(job.job_id, AttainedService(top, job.origin_s))
        service.highest = best if skewed else top
        before = self._restored.get(job.job_id)
        if before is not None and before.since_s == job.origin_s:
            service.queue, service.promoted_s, due_s = before.queue, before.promoted_s, before.due_s
        else:
            service.queue = sum(limit <= self.attained_s(job, now) for limit in self.limits)
            due_s = self._promotion_s(job, job.origin_s)
        self._enqueue(job)
        self._set_due(job, due_s)

    def started(self, job: JobState, now: float) -> None:
        self._service[job.job_id].start(now, now - job.origin_s, job.training_before_s)
        self._restored.pop(job.job_id, None)
        self.resumed(job, now)

    def resumed(self, job: JobState, now: float) -> None:
        service, before = self._service[job.job_id], self._restored.pop(job.job_id, None)
        self.waiting.remove(job)
        if service.start_s == inf:
            service.start(job.since_s, 0.0, job.training_before_s)
        if before is not None and before.since_s == job.since_s:
            service.queue, due_s = before.queue, before.due_s
        else:
            due_s = self._demotion_s(job, now)
        self.running.add(job, *self.key(job))
        if self.knobs.quantum_s and job.job.preemptible:
            self.sure.add(job, job.ready_s + self._quantum_s(job))
        self._set_due(job, due_s)
        self.scattered.started(job)

    def stopped(self, job: JobState, now: float) -> None:
        self._refresh(now)
        self._drop(job)
        self._enqueue(job)
        self._state.explain_again(job.job_id)  # after those that changed their queue just now
        self._set_due(job, self._promotion_s(job, now))

    def finished(self, job: JobState, now: float) -> None:
        self._drop(job)
        del self._service[job.job_id]

    def withdrawn(self, job: JobState, now: float) -> None:
        self.waiting.remove(job)
        self._set_due(job, inf)
        self._restored.pop(job.job_id, None)
        del self._service[job.job_id]

    def snapshot(self) -> dict[str, Any]:
        services: dict[str, list[float | None]] = {}
        for job_id, service in sorted(self._service.items()):
            job = self._state.jobs.get(job_id)
            had = service.entered_s, service.start_s, service.trained_before_s, service.pending_s
            place: tuple[float, ...]
            if job is not None:
                since_s = job.since_s if job.allocation else job.origin_s
                place = since_s, service.queue, service.promoted_s, service.due_s
            else:  # it was restored, and is to be submitted again
                place = self._restored.get(job_id, ())
            services[job_id] = [None if number == inf else number for number in (*had, *place)]
        return {"services": services, "scattered": self.scattered.snapshot()}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        self.scattered.restore(learnt["scattered"])
        top = self._state.topology.top
        for job_id, numbers in learnt["services"].items():
            entered_s, start_s, trained_s, pending_s, *place = (inf if n is None else n for n in numbers)
            self._service[job_id] = AttainedService(top, entered_s, start_s, trained_s, pending_s)
            if place:  # earlier versions did not save it
                since_s, queue, promoted_s, due_s = place
                self._restored[job_id] = _Restored(since_s, int(queue), promoted_s, due_s)

    def time_passed(self, state: ClusterState, now: float) -> None:
        """Jobs change their queues, and quanta end."""
        self._refresh(now)

    def decide(self, state: ClusterState, now: float) -> Plan:
        """Start waiting jobs by queue, on free GPUs or on those of jobs with a lower priority."""
        scattered = self.scattered.expired(now)
        if not self.waiting and not scattered:
            return Plan(wakeup_s=self.scattered.next_end_s(now))
        interval_s = self.knobs.interval_s
        if interval_s and abs(now - round(now / interval_s) * interval_s) >= 1e-6:  # of rounding
            return Plan(wakeup_s=next_multiple(now, interval_s))
        with state.free.trial():
            plan = TiresiasRound(self, state, now)
            plan.run()
            plan.regroup(scattered)
            decisions = plan.decisions()
        return Plan(decisions, self._wakeup_s(plan))

    def highest(self, job: JobState) -> int:
        """The highest level that a job accepts."""
        return self._service[job.job_id].highest

    def queue_of(self, job: JobState) -> int:
        """The queue of a job, 0 for the top."""
        return self._service[job.job_id].present_queue

    def key(self, job: JobState) -> tuple[float, ...]:
        """The priority of a job but for its arrival: queue, first start if that counts, entry."""
        service = self._service[job.job_id]
        return service.key() if self.knobs.order == "start" else (service.present_queue, job.job.submit_s)

    def attained_s(self, job: JobState, now: float) -> float:
        """Service since the job was last new, GPU-seconds; restarts are none."""
        return job.job.gpus * self._trained_s(job, now)

    def _refresh(self, now: float) -> None:
        """Carry out the changes of queue that are due, end quanta; a second call changes nothing more."""
        while self.sure and self.sure.first_key() <= now:
            self.sure.remove(self.sure.at(0))
        while self._changes and self._changes.first_key() <= now:
            job = self._changes.at(0)
            service = self._service[job.job_id]
            if job in self.running:  # down one queue
                service.queue += 1
                self.running.move(job, *self.key(job))
                self._set_due(job, self._demotion_s(job, job.since_s))
            else:  # back to the top
                self.waiting.remove(job)
                service.promoted_s = service.due_s
                self._set_due(job, inf)
                self._enqueue(job)
                self._state.explain_again(job.job_id)

    def _quantum_s(self, job: JobState) -> float:
        """How long a job trains once it has started, for sure, seconds."""
        return max(self.knobs.quantum_s, self.knobs.quantum_restarts * self._state.costs.restart_s(job.job))

    def _demotion_s(self, job: JobState, since_s: float) -> float:
        """When a job that runs since `since_s` reaches the limit of its queue; inf in the last.

        One that only starts in the plan may reach it later, after its restart.
        """
        queue = self.queue_of(job)
        if queue >= len(self.limits):
            return inf
        begin_s = max(since_s, job.ready_s) if job.ready_s < inf else since_s
        return begin_s + self.limits[queue] / job.job.gpus - self._trained_s(job, since_s)

    def _promotion_s(self, job: JobState, now: float) -> float:
        """When a job that has waited since `now` goes back to the top; inf if never."""
        service = self._service[job.job_id]
        trained_s = self._trained_s(job, now)
        if not self.knobs.promote or not service.queue or not trained_s:
            return inf
        return now + max(0.0, self.knobs.promote * trained_s - service.pending_s)

    def _trained_s(self, job: JobState, now: float) -> float:
        """Training time since the job was last new, seconds."""
        service = self._service[job.job_id]
        return 0.0 if service.promoted_s < inf else job.training_s(now) - service.trained_before_s

    def _enqueue(self, job: JobState) -> None:
        self.waiting.add(job, self.highest(job), *self.key(job))

    def _drop(self, job: JobState) -> None:
        self.running.remove(job)
        if job in self.sure:
            self.sure.remove(job)
        self.scattered.stopped(job)
        self._set_due(job, inf)

    def _set_due(self, job: JobState, due_s: float) -> None:
        if job in self._changes:
            self._changes.remove(job)
        self._service[job.job_id].due_s = due_s
        if due_s < inf:
            self._changes.add(job, due_s)

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """Scattered jobs that could not move closer look again after another term."""
        self.scattered.settle(now, wanted=True)

    def _wakeup_s(self, plan: "TiresiasRound") -> float:
        """The next change of queue or end of a quantum, if a job waits, or look of a scattered job."""
        # A job that starts scattered is not in the book yet; one term ahead is never too late for it.
        look_s = min(self.scattered.next_end_s(plan.now), plan.now + self.scattered.lease_s)
        if len(self.waiting) == len(plan.started) and not len(plan.evictions):
            return look_s
        now = plan.now
        dues = [self._demotion_s(job, now) for job in plan.started.values()]
        dues += [self._promotion_s(job, now) for job in plan.evictions.jobs()]
        if self._changes:
            dues.append(self._changes.first_key())
        if self.sure:
            dues.append(self.sure.first_key())
        if self.knobs.quantum_s:
            dues += [now + self._quantum_s(job) for job in plan.started.values()]
        return min([look_s, *(due for due in dues if due > now)])


class TiresiasRound:
    """One plan in the making, on trial."""

    def __init__(self, policy: Tiresias, state: ClusterState, now: float) -> None:
        self._policy, self._state, self.now = policy, state, now
        self.evictions = Evictions(state.free)
        self.started: dict[int, JobState] = {}
        self._starts: list[Decision] = []

    def run(self) -> None:
        """Serve the waiting jobs by priority; those that stop go on elsewhere if they can."""
        offers = DemandRound(self._policy.waiting.rankings())
        while (job := offers.next()) is not None:
            placement = self._place(job) or self._make_room(job)
            if placement is None:
                offers.refused()
                continue
            offers.served()
            self._state.free.take(placement.allocation)
            self.started[job.order] = job
            have = f"{self._state.topology.levels[placement.level]} has {plural(job.job.gpus, 'free GPU')}"
            reason = f"{have}; {self._service(job)}, waited {span(self.now - job.origin_s)}"
            self._starts.append(Start(job.job_id, placement.allocation, placement.level, reason))
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
                self._starts.append(Migrate(job.job_id, closer.allocation, closer.level, reason))

    def decisions(self) -> tuple[Decision, ...]:
        """Stops, then starts and moves, then the waits to be explained."""
        waits = []
        for job in self._state.to_explain(self._starts):
            level, asked = self._policy.highest(job), plural(job.job.gpus, "GPU")
            lacks = f"no {self._state.topology.levels[level]} has {asked}"
            if level == self._state.topology.top:
                lacks = f"{asked} asked for"
            have = f"{are(self._state.free.usable(job.job.gang))} free {accepted(job.job.gang)}"
            waits.append(Wait(job.job_id, level, inf, f"{lacks}, {have}; {self._service(job)}"))
        return (*self.evictions.decisions(), *self._starts, *waits)

    def _place(self, job: JobState) -> Placement | None:
        best = self._state.best_level(job.job.gang)
        return closest(self._state.free, job.job, best, self._policy.highest(job))

    def _make_room(self, job: JobState) -> Placement | None:
        """Stop jobs with a lower priority, the lowest first, if that lets the job start."""
        policy = self._policy
        rank = (*policy.key(job), job.order)
        lower = takewhile(lambda other: other[0] > rank, self._stoppable)
        candidates = (victim for _, victim in lower if victim not in self.evictions)
        victims = find_victims(self._state.free, candidates, job.job, self._policy.highest(job))
        if not victims:
            return None
        self.evictions.release(victims)
        for victim in victims:
            lost, won = policy.queue_of(victim), policy.queue_of(job)
            reason = f"in {self._service(victim)}; job {job.job_id} is in queue {won}"
            if lost == won:
                reason = f"queue {lost} goes by start, and job {job.job_id} started before"
            self.evictions.stop(victim, job, reason)
        return self._place(job)

    @cached_property
    def _stoppable(self) -> list[tuple[Rank, JobState]]:
        """The jobs that may be stopped at this moment, with their ranks, the lowest priority first."""
        running, sure = self._policy.running, self._policy.sure
        return [
            (running.rank(job), job)
            for job in reversed(running)
            if job.preemptible and job not in sure and job.since_s < self.now
        ]

    def _service(self, job: JobState) -> str:
        """A job's queue and what it has attained, in words."""
        attained_s = self._policy.attained_s(job, self.now)
        return f"queue {self._policy.queue_of(job)} after {gpu_time(attained_s)}"
