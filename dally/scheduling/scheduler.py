"""One scheduler for both worlds: it tells state and policy what happened, and asks the policy for a plan."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, inf

from dally.cluster.free import placed
from dally.cluster.topology import Allocation
from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge, Known
from dally.jobs.progress import ProgressReport, with_report
from dally.plan import Decision, Migrate, Plan, Preempt, Start, Wait
from dally.policies.base import Policy
from dally.policies.common.estimates import restart_s
from dally.profiles.costs import Cost
from dally.profiles.goodput import Batching
from dally.scheduling.beliefs import Beliefs, Told, Unknown
from dally.scheduling.learnt_beliefs import Learnt
from dally.scheduling.priority_classes import PriorityClasses
from dally.state import ClusterState, JobHistory, JobState

REVISED_S = 60.0
"""Beliefs that are over are revised at the next multiple of so many seconds, whenever somebody asks.

There are many of them, and most change nothing: one by one they were most of the moments of a busy cluster.
"""

SURE_S, SURE_STEPS = 60.0, 10.0
"""Reports so many seconds and steps apart tell how long a step takes."""


def told_slowdown(cost: Cost) -> float:
    """A slowdown as run folders show it: to four places, or to four digits where more GPUs make it small."""
    return round(cost.slowdown, 4) if cost.slowdown >= 0.1 else float(f"{cost.slowdown:.4g}")


def start_facts(state: ClusterState, job: JobState, cost: Cost, reason: str) -> dict[str, object]:
    """What the run folder says of a start: level, GPUs by machine, slowdown against the best, and why."""
    return {
        "level": state.topology.levels[job.level],
        "gpus": state.topology.named(job.allocation),
        "slowdown": told_slowdown(cost),
        "reason": reason,
    }


def wait_facts(state: ClusterState, wait: Wait) -> dict[str, object]:
    """What the run folder says of a wait: the level it insists on, until when, and why."""
    until_s = None if wait.until_s == inf else round(wait.until_s, 3)
    return {"level": state.topology.levels[wait.level], "until": until_s, "reason": wait.reason}


def beliefs_of(known: Known, learns_limits: bool = False) -> Beliefs:
    """Those of schedulers that know so much, before the first job.

    Args:
        known: What they know.
        learns_limits: They go by what jobs with such a limit took, not by the limit.
    """
    match known.knowledge:
        case Knowledge.NONE:
            return Unknown()
        case Knowledge.HISTORY | Knowledge.AUTO:
            return Learnt(known)
        case Knowledge.LIMITS if learns_limits:
            return Learnt(known)
    return Told(known)


class Scheduler:
    """Keeps a cluster's state and its policy in step.

    The simulator and the controller call the same methods: facts go in, `decide` gives a plan, and each
    decision that was really carried out goes back in as a fact. Nothing else changes state or policy, so
    that what was told and decided can be recorded and asked again (`dally.scheduling.recording`).

    Args:
        state: Nothing has happened in it yet.
        policy: Over this state; it may have been restored.
        beliefs: What was learnt before; None: nothing.
    """

    def __init__(self, state: ClusterState, policy: Policy, beliefs: Beliefs | None = None) -> None:
        self.state = state
        self.policy = policy
        self.beliefs = beliefs or beliefs_of(state.knows, policy.learns_limits)
        self._decided = -inf, Plan()
        self._explained: list[Wait] = []
        self._classes = PriorityClasses(state, policy)
        self._first_reports: dict[str, tuple[float, ProgressReport]] = {}

    def submit(
        self, job: Job, now: float, past: JobHistory | None = None, order: int | None = None
    ) -> JobState:
        """A job arrived, or one with a past waits again.

        Args:
            job: What is asked for.
            now: The time, seconds.
            past: What happened to it before it was withdrawn.
            order: Its place in the order of arrival before that; None: behind all others.
        """
        state = self.state.submit(job, now, past, order)
        self.state.costs.report_progress(job, state.progress)
        self.beliefs.came(state)
        self.policy.submitted(state, now)
        return state

    def withdraw(self, job_id: str, now: float) -> JobState:
        """A waiting job left."""
        self._leaves_queue(job_id, now)
        job = self.state.withdraw(job_id)
        self._forget_steps(job)
        self.beliefs.left(job)
        self.policy.withdrawn(job, now)
        return job

    def resume(
        self, job_id: str, allocation: Allocation, since_s: float, ready_s: float, now: float, speed: float
    ) -> JobState:
        """A job submitted just now runs already, since before anybody watched."""
        self._leaves_queue(job_id, now)
        job = self.state.start(job_id, allocation, since_s, ready_s - since_s, speed)
        self.state.count_reported(job_id)
        self.beliefs.runs(job)
        self.policy.resumed(job, now)
        return job

    def advance(self, now: float) -> None:
        """Revise the beliefs that are over at `now`, and let the policy see the time."""
        for job in self.beliefs.due(REVISED_S * (now // REVISED_S)):
            self._revised(job, now)
        self._classes.update(now)
        self.policy.time_passed(self.state, now)

    def _revised(self, job: JobState, now: float) -> None:
        if job.job_id not in self.state.behind:
            self.policy.revised(job, now)

    def _leaves_queue(self, job_id: str, now: float) -> None:
        """A waiting job is about to start or to leave: the policy is to know it."""
        job = self.state.jobs[job_id]
        self._classes.bring_forward(job, now)
        self._classes.left(job)

    def set_priorities(self, priorities: Mapping[str, float], now: float) -> None:
        """Waiting jobs, by name, have other priorities: 0 or more each; more goes first."""
        for job_id, priority in priorities.items():
            job = self.state.jobs[job_id]
            job.priority = priority
            if job_id in self.state.waiting:
                self.policy.reprioritized(job, now)

    def decide(self, now: float) -> Plan:
        """What to do at `now`, once all that is due by then has happened."""
        self.advance(now)
        plan = self._with_blocks(self.policy.decide(self.state, now))
        self._decided, self._explained = (now, plan), []
        plan = self._classes.complete(plan, now)
        due_s = min(self.beliefs.next_due_s(), self._next_due_s(plan, now))
        if not self.state.waiting or due_s == inf:
            return plan
        minute = max(ceil(due_s / REVISED_S), now // REVISED_S + 1)
        return replace(plan, wakeup_s=min(plan.wakeup_s, REVISED_S * minute))

    def _with_blocks(self, plan: Plan) -> Plan:
        """A plan whose placements take all that their jobs keep from others; a policy need not say so."""
        if not any(self.state.jobs[each.job_id].job.whole_blocks for each in plan.decisions):
            return plan
        decisions = (
            replace(each, allocation=placed(self.state.jobs[each.job_id].job.gang, each.allocation))
            if isinstance(each, Start | Migrate)
            else each
            for each in plan.decisions
        )
        return replace(plan, decisions=tuple(decisions))

    def _next_due_s(self, plan: Plan, now: float) -> float:
        """When a belief of a job that the plan starts is over, at the soonest; inf if it starts none."""
        begun = (self.state.jobs[each.job_id] for each in plan.decisions if isinstance(each, Start | Migrate))
        left_s = (job.held_s - (job.work_s(now) if job.allocation else job.work_before_s) for job in begun)
        return now + min(left_s, default=inf)

    def start(self, job_id: str, allocation: Allocation, now: float, speed: float) -> JobState:
        """A waiting job was started; it first pays its restart if it ran before."""
        job = self.state.jobs[job_id]
        self._leaves_queue(job_id, now)
        self.state.start(job_id, allocation, now, restart_s(job, self.state.costs), speed)
        self.beliefs.runs(job)
        self.policy.started(job, now)
        return job

    def preempt(self, job_id: str, now: float, resized: bool = False) -> JobState:
        """A running job was checkpointed and lost its GPUs, or stopped to go on on others at once."""
        job = self.state.jobs[job_id]
        if not job.job.preemptible:
            raise AssertionError(f"job {job_id} must not be preempted")
        self.state.stop(job_id, now, job.work_s(now))
        self._forget_check(job_id)
        job.preemptions += not resized
        job.resizing = resized
        self.beliefs.stopped(job)
        self.policy.stopped(job, now)
        return job

    def fail(self, job_id: str, now: float, kept_work_s: float) -> JobState:
        """A running job lost its GPUs to a failure, and its work since the last checkpoint."""
        job = self.state.stop(job_id, now, kept_work_s)
        self._forget_check(job_id)
        self.beliefs.stopped(job)
        self.policy.stopped(job, now)
        return job

    def finish(self, job_id: str, now: float) -> JobState:
        """A running job ended."""
        work_s = self.state.jobs[job_id].work_s(now)
        job = self.state.finish(job_id, now)
        self.policy.finished(job, now)
        self._forget_steps(job)
        for other in self.beliefs.ended(job, work_s, now):
            self._revised(other, now)
        return job

    def withhold(self, machine: int, gpus: int, closed: bool = False) -> None:
        """Jobs cannot have so many GPUs of a machine: see `ClusterState.withhold`."""
        self.state.withhold(machine, gpus, closed)

    def protect(self, job_id: str) -> Job:
        """A waiting job is not to be preempted any more, once it runs."""
        job = self.state.jobs[job_id]
        if job_id not in self.state.waiting and job_id not in self.state.behind:
            raise AssertionError(f"job {job_id} is {job.phase}, not waiting")
        job.job = replace(job.job, preemptible=False)
        return job.job

    def repace(self, job_id: str, now: float, speed: float) -> JobState:
        """A running job goes on faster or slower, because fewer or more others share its links."""
        job = self.state.repace(job_id, now, speed)
        self.beliefs.runs(job)
        self.policy.repaced(job, now)
        return job

    def report_progress(self, job_id: str, report: ProgressReport, now: float) -> JobState:
        """A running job reported how far it is: its speed and the work that it has done are as it says."""
        job, costs = self.state.jobs[job_id], self.state.costs
        gpus, types = sum(count for _, count in job.allocation), self.state.topology.by_type(job.allocation)
        kind = "+".join(sorted(types))
        asked = job.job.gpus / gpus if costs.batching is Batching.LINEAR else 1.0
        progress = with_report(job.progress, report, now, job.since_s, kind, gpus, asked)
        costs.report_progress(job.job, progress)
        slowdown = costs.cost(job.job, job.allocation, job.done(now)).slowdown
        if progress.since_s == job.since_s and (measured := progress.throughput(kind, gpus)) is not None:
            progress = replace(progress, rate=measured.rate * slowdown)
        self.state.repace(job_id, now, 1 / slowdown)
        job.set_progress(progress)
        self.state.count_reported(job_id)
        self.beliefs.runs(job)
        self.policy.reported(job, now)
        if (step_s := self._reported_step_s(job, report)) is not None:
            self._learn(job, step_s, now, report.batch)
        return job

    def _reported_step_s(self, job: JobState, report: ProgressReport) -> float | None:
        """Seconds of a step, as a job says or as its reports of this run do; None if they do not."""
        if report.step_s or not report.batch:
            return report.step_s or None
        since_s, first = self._first_reports.get(job.job_id, (-inf, report))
        if since_s != job.since_s or first.batch != report.batch:
            self._first_reports[job.job_id] = job.since_s, report
            return None
        steps, seconds = (report.samples - first.samples) / report.batch, report.t - first.t
        return seconds / steps if seconds >= SURE_S and steps >= SURE_STEPS else None

    def observe_steps(self, job_id: str, step_s: float, now: float) -> None:
        """A running job's steps take so long, seconds, the median of many."""
        self._learn(self.state.jobs[job_id], step_s, now)

    def _learn(self, job: JobState, step_s: float, now: float, samples: float = 0.0) -> None:
        costs = self.state.costs
        if costs.learnt is None or not step_s > 0:
            return
        shared = self.state.shares_links(job)
        if costs.learn(job.job, job.allocation, job.since_s, step_s, shared, samples):
            self.policy.costs_revised(self.state, now)

    def _forget_check(self, job_id: str) -> None:
        """A job has stopped: how fast it was where it ran is of no more interest."""
        if self.state.costs.learnt is not None:
            self.state.costs.learnt.checks.pop(job_id, None)

    def _forget_steps(self, job: JobState) -> None:
        """A job has left: what it told of itself goes, what it taught of its model stays."""
        self.state.costs.report_progress(job.job, None)
        self._first_reports.pop(job.job_id, None)
        if self.state.costs.learnt is not None:
            self.state.costs.learnt.left(job.job_id)

    def wait_explained(self, decision: Wait) -> None:
        """The reason of a wait is on record; the wait need not be explained again."""
        self.state.unexplained.pop(decision.job_id, None)
        self._classes.explained(decision)
        if decision.job_id not in self.state.behind:
            self._explained.append(decision)

    def plan_applied(self, now: float) -> None:
        """The plan of `now` was carried out as far as that could be: the policy learns how far."""
        (decided_s, plan), waits = self._decided, self._explained
        self._decided, self._explained = (-inf, Plan()), []
        plan = plan if decided_s == now else Plan()
        acts = (each for each in plan.decisions if self._is_carried_out(each))
        self.policy.plan_applied(replace(plan, decisions=(*acts, *waits)), self.state, now)

    def _is_carried_out(self, decision: Decision) -> bool:
        """Whether a job has been started, moved or stopped as a plan wanted it."""
        if isinstance(decision, Start | Migrate):
            job = self.state.jobs.get(decision.job_id)
            return job is not None and job.allocation == decision.allocation
        return isinstance(decision, Preempt) and decision.job_id not in self.state.running
