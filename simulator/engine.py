"""The simulation of one policy: events in, the scheduler's plans carried out, records of the jobs out."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import floor, inf

from dally.errors import DallyError
from dally.jobs.job import Job
from dally.plan import Migrate, Preempt, Resize, Start, Wait
from dally.profiles.contention import SharedLinks
from dally.profiles.costs import Cost, CostModel
from dally.runs.records import EventLog, JobRecord
from dally.scheduling.scheduler import Scheduler, start_facts, told_slowdown, wait_facts
from dally.state import JobState
from dally.words import plural
from simulator.event_queue import EventQueue, Priority
from simulator.failures import Outage
from simulator.priorities import SimulatedPriorities
from simulator.records import JobCounters, record
from simulator.stall_detector import StallDetector
from simulator.step_times import StepTimes

MOST_FAILURES_WITHOUT_PROGRESS = 100
"""A job that failed so often in a row without a new checkpoint is given up."""

_BY_OTHERS = "other jobs share its links, or no longer do"
_BY_LEARNING = "its batch is worth another part of a full one from here on"


Event = Callable[[float], None]
"""What happens, told the time at which it does."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulation came to; `moments` counts the points in time at which anything happened.

    `complete` is False if the run was interrupted, jobs could never run, or decisions went on without end
    while nothing got done; `note` says why.
    """

    records: list[JobRecord]
    end_s: float
    moments: int
    complete: bool
    note: str


class Engine:
    """Runs a workload under one policy.

    Args:
        scheduler: State and policy, both new.
        jobs: By submission time; read as time goes on.
        log: Where events go.
        outages: Machine failures, by time.
        checkpoint_s: A failure loses the work since the last multiple of this much ideal work, seconds.
        links: Tells how jobs that share links slow each other; None if they do not.
        stop: Asked before each moment; True ends the run early, with valid records.
        progress: Told of each moment: seconds on the clock and jobs that ended.
        keep: Given each record with its job's place in `jobs`, when it ends; the outcome then has none.
        costs: What placements really cost; None: what schedulers believe.
        priorities: Works out the priorities of jobs; None: all have the same.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        jobs: Iterable[Job],
        log: EventLog,
        outages: Iterable[Outage] = (),
        checkpoint_s: float = 1800.0,
        links: SharedLinks | None = None,
        stop: Callable[[], bool] = lambda: False,
        progress: Callable[[float, int], None] = lambda now, ended: None,
        keep: Callable[[int, JobRecord], None] | None = None,
        costs: CostModel | None = None,
        priorities: SimulatedPriorities | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._state = scheduler.state
        self._costs = costs or scheduler.state.costs
        self._levels = scheduler.state.topology.levels
        self._log = log
        self._checkpoint_s = checkpoint_s
        self._links = links
        self._priorities = priorities
        self._stop, self._progress = stop, progress
        self._arrivals: Iterator[Job] = iter(jobs)
        self._arriving = next(self._arrivals, None)
        self._outages: Iterator[Outage] = iter(outages)
        self._queue: EventQueue[Event] = EventQueue()
        self._counters: dict[str, JobCounters] = {}
        self._records: list[JobRecord] = []
        self._keep = keep or (lambda place, record: self._records.append(record))
        self._ended = 0
        self._wakeup_s = inf
        self._moments = 0
        self._stalls = StallDetector(scheduler.state)
        self._steps = StepTimes(scheduler, self._costs)

    def run(self) -> Outcome:
        """Simulate until every job has ended, nothing more can happen, or nothing gets done any more."""
        self._next_outage()
        now, note = 0.0, ""
        while not note and (self._arriving is not None or self._state.jobs):
            if self._stop():
                note = "interrupted"
                break
            arrival_s = inf if self._arriving is None else self._arriving.submit_s
            idle = not (self._state.running or self._state.withheld)
            if idle and arrival_s == self._wakeup_s == inf:
                moment = inf  # outages to come cannot help the jobs that wait now
            else:
                moment = min(self._queue.next_s, arrival_s, self._wakeup_s)
                if self._priorities is not None:
                    moment = min(moment, max(now, self._priorities.due_s(self._state)))
            if moment == inf:
                note = self._stuck(now)
                break
            if moment < now:
                raise AssertionError(f"time went back from {now} s to {moment} s")
            now = moment
            # There are finitely many arrivals; of all other moments there could be infinitely many. A policy
            # that asks again and again while nothing runs, for a machine is to be repaired, is no stall.
            held_up = not self._state.running and bool(self._state.withheld)
            waits_for_repair = held_up and now < self._queue.next_s < inf
            counts = arrival_s > now and bool(self._state.jobs) and not waits_for_repair
            self._step(now)
            note = self._stalls.decided(now) if counts else ""
            self._progress(now, self._ended)
        for job_id, job in self._state.jobs.items():
            counters = self._counters[job_id]
            if job_id in self._state.running:
                counters.stopped(job, now)
            self._keep(job.order, record(job, counters, now))
        return Outcome(self._records, now, self._moments, complete=not note, note=note)

    def _stuck(self, now: float) -> str:
        """Why jobs wait for ever: machines that never come back, or else a policy in error."""
        if not self._state.withheld:
            names = ", ".join([*self._state.waiting][:3])
            raise DallyError(
                f"at {now:.0f} s nothing runs and {plural(len(self._state.waiting), 'job')} left waiting "
                f"for ever ({names}): "
                f"policy {self._scheduler.policy.name} never starts them"
            )
        return f"{plural(len(self._state.waiting), 'job')} left waiting for machines that stay down"

    def _step(self, now: float) -> None:
        """Everything that happens at one moment, then one plan."""
        while self._queue.next_s <= now:
            _, happen = self._queue.pop()
            happen(now)
        while self._arriving is not None and self._arriving.submit_s <= now:
            job = self._arriving
            self._counters[job.job_id] = JobCounters()
            self._scheduler.submit(job, now)
            self._log.write(now, "submit", job=job.job_id, gpus=job.gpus, model=job.model)
            self._arriving = next(self._arrivals, None)
        if self._priorities is not None and (changes := self._priorities.changes(self._state, now)):
            self._scheduler.set_priorities(changes, now)
        self._share_links(now)  # the policy is to see the rates that what has ended leaves
        self._steps.tell(now)
        plan = self._scheduler.decide(now)
        # Stops first, so that their GPUs are free for what starts.
        for decision in plan.decisions:
            if isinstance(decision, Preempt | Migrate):
                self._close(self._state.jobs[decision.job_id], now)
                self._scheduler.preempt(decision.job_id, now, isinstance(decision, Resize))
            if isinstance(decision, Preempt):
                by, reason = list(decision.by), decision.reason
                self._log.write(now, "preempt", job=decision.job_id, by=by, reason=reason)
        for decision in plan.decisions:
            match decision:
                case Start():
                    self._start(decision, "start", now)
                case Resize():
                    self._start(decision, "resize", now)
                case Migrate():
                    self._start(decision, "migrate", now)
                case Wait():
                    self._log.write(now, "wait", job=decision.job_id, **wait_facts(self._state, decision))
                    self._scheduler.wait_explained(decision)
        self._share_links(now)
        self._scheduler.plan_applied(now)
        if plan.wakeup_s <= now:
            raise AssertionError(f"the policy asked at {now} s to be woken at {plan.wakeup_s} s")
        self._wakeup_s = plan.wakeup_s
        self._moments += 1

    def _start(self, decision: Start | Migrate, event: str, now: float) -> None:
        job = self._state.jobs[decision.job_id]
        done = job.done(now)
        cost = self._costs.cost(job.job, decision.allocation, done)
        self._scheduler.start(decision.job_id, decision.allocation, now, 1 / cost.slowdown)
        self._counters[decision.job_id].started(cost, self._levels[job.level])
        self._schedule_completion(job, now, done)
        self._steps.started(job)
        if self._links is not None:
            self._links.start(job.job, job.allocation)
        self._log.write(
            now, event, job=decision.job_id, **start_facts(self._state, job, cost, decision.reason)
        )

    def _schedule_completion(self, job: JobState, now: float, done: float) -> None:
        """Schedule the end of a job at its present rate, or the change of its batch's worth before that."""
        change = self._costs.changes_at(job.job, done)
        moment = max(now, job.done_s(change))
        if change < 1:
            number = self._queue.push(moment, Priority.PHASE, partial(self._change_phase, job.job_id, change))
        else:
            number = self._queue.push(moment, Priority.END, partial(self._complete, job.job_id))
        self._counters[job.job_id].event = number

    def _complete(self, job_id: str, now: float) -> None:
        self._counters[job_id].event = None
        self._end(job_id, now)

    def _change_phase(self, job_id: str, done: float, now: float) -> None:
        """So much of a job's work is done that its batch is worth more or less from here on."""
        self._counters[job_id].event = None
        job = self._state.jobs[job_id]
        cost = self._costs.cost(job.job, job.allocation, done)
        self._change_rate(job, cost, now, done, _BY_LEARNING)

    def _cancel_completion(self, counters: JobCounters) -> None:
        if counters.event is not None:
            self._queue.cancel(counters.event)
            counters.event = None

    def _share_links(self, now: float) -> None:
        """Change the rates of jobs whose links are shared by more or fewer than before."""
        if self._links is None:
            return
        for job_id, cost in self._links.changes():
            job = self._state.jobs[job_id]
            self._change_rate(job, cost, now, job.done(now), _BY_OTHERS)

    def _change_rate(self, job: JobState, cost: Cost, now: float, done: float, reason: str) -> None:
        """Let a running job go on at another rate, with so much of its work done."""
        counters = self._counters[job.job_id]
        self._cancel_completion(counters)
        counters.rate_changed(cost, job.paced_s, now)
        self._scheduler.repace(job.job_id, now, 1 / cost.slowdown)
        self._schedule_completion(job, now, done)
        self._log.write(now, "pace", job=job.job_id, slowdown=told_slowdown(cost), reason=reason)

    def _close(self, job: JobState, now: float) -> JobCounters:
        """Close what is counted and expected of a job that runs no more."""
        counters = self._counters[job.job_id]
        counters.stopped(job, now)
        self._cancel_completion(counters)
        if self._links is not None:
            self._links.stop(job.job_id)
        return counters

    def _end(self, job_id: str, now: float, status: str = "COMPLETED") -> None:
        counters = self._close(self._state.jobs[job_id], now)
        if self._priorities is not None:
            self._priorities.ended(self._state.jobs[job_id], now)
        job = self._scheduler.finish(job_id, now)
        del self._counters[job_id]
        self._keep(job.order, record(job, counters, now, status))
        self._ended += 1
        self._stalls.ended()
        self._log.write(now, "end", job=job_id, status=status)

    def _next_outage(self) -> None:
        outage = next(self._outages, None)
        if outage is not None:
            self._queue.push(outage.down_s, Priority.FAILURE, partial(self._fail, outage))

    def _fail(self, outage: Outage, now: float) -> None:
        """Take a machine down: its jobs lose what they did since their last checkpoint."""
        machine = self._state.topology.machines[outage.machine]
        self._log.write(now, "machine_down", machine=machine.name)
        hit = [
            job_id
            for job_id in self._state.running
            if any(index == outage.machine for index, _ in self._state.jobs[job_id].allocation)
        ]
        for job_id in hit:
            job = self._state.jobs[job_id]
            done_s = job.work_s(now)
            kept_s = max(job.work_before_s, floor(done_s / self._checkpoint_s) * self._checkpoint_s)
            counters = self._counters[job_id]
            counters.failures += 1
            counters.lost_s += done_s - kept_s
            without_progress = 0 if kept_s > job.work_before_s else counters.failures_without_progress + 1
            counters.failures_without_progress = without_progress
            self._log.write(now, "fail", job=job_id, lost_s=round(done_s - kept_s, 3))
            if without_progress >= MOST_FAILURES_WITHOUT_PROGRESS:
                self._end(job_id, now, "FAILED")
            else:
                self._close(job, now)
                self._scheduler.fail(job_id, now, kept_s)
        self._scheduler.withhold(outage.machine, machine.gpus, closed=True)
        if outage.up_s < inf:
            self._queue.push(outage.up_s, Priority.REPAIR, partial(self._repair, outage.machine))
        self._next_outage()

    def _repair(self, machine: int, now: float) -> None:
        self._scheduler.withhold(machine, 0)
        self._log.write(now, "machine_up", machine=self._state.topology.machines[machine].name)
