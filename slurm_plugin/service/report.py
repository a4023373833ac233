"""What the controller tells about itself: jobs, GPUs, timers, health, as plain data."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from math import inf
from typing import Any

from dally import __version__
from dally.cluster.topology import Topology
from dally.policies.dally.timers import FixedTimers, TunedTimers
from dally.profiles.costs import CostModel
from dally.profiles.learnt_costs import Belief
from dally.progress import of_job
from slurm_plugin.client.slurm import arrival
from slurm_plugin.controller.controller import Controller
from slurm_plugin.controller.job_requests import planned
from slurm_plugin.controller.managed_job import WITH_POLICY, JobPhase, ManagedJob, PendingPhase

GRACE_S = 60.0
"""A controller is healthy while its last good cycle is younger than three periods and this."""

_MOST_PROBLEMS = 10


JobData = Mapping[str, Any]
"""One job as plain data; `_job` tells what is in it."""


@dataclass(frozen=True, slots=True)
class Report:
    """One moment of the controller.

    Attributes:
        now_s: The moment.
        policy: Policy and knobs.
        running_times: What it goes by of running times, and how true that was, as plain data.
        partitions: Slurm partitions.
        nodes: Number of nodes.
        jobs: All jobs, in no order.
        gpus: GPUs in all, held by Dally's jobs, free, and unavailable: others', promised, of closed nodes, or
            kept from others by a job of `--exclusive=topo`.
        miscounted: GPUs that Slurm counts as in use and no job holds, by node; see `GpuCountWatch`.
        most_free: For each level, the free GPUs of that one domain which has most of them.
        timers: How long gangs of the sizes that wait or run decline GPUs above a `level`: `gpus`, `delay_s`
            (None: for ever), and the number of `waits` from which that was learnt.
        decisions: Decisions so far, by kind.
        learnt_costs: What step times have taught of costs, by model and GPU type; see `belief_data`.
        slower_jobs: Jobs that are slower than their placement explains.
        observe_s: How long the last look at Slurm took.
        cycle_s: How long the last cycle took.
    """

    now_s: float
    policy: str
    running_times: Mapping[str, Any]
    partitions: tuple[str, ...]
    nodes: int
    jobs: tuple[JobData, ...]
    gpus: Mapping[str, int]
    miscounted: Mapping[str, int]
    most_free: Mapping[str, int]
    timers: tuple[Mapping[str, Any], ...]
    decisions: Mapping[str, int]
    learnt_costs: tuple[Mapping[str, Any], ...]
    slower_jobs: int
    observe_s: float
    cycle_s: float

    @property
    def longest_wait_s(self) -> float:
        """How long the job has waited that has waited longest since it was last stopped or submitted."""
        waits = (self.now_s - job["since_s"] for job in self.jobs if job["state"] == JobPhase.PENDING)
        return max(waits, default=0.0)

    def job_counts(self) -> dict[str, int]:
        """Number of jobs in each state, all states named."""
        found = Counter(job["state"] for job in self.jobs)
        return {state.value: found[state.value] for state in ORDER}


ORDER = (
    JobPhase.RUNNING,
    JobPhase.STOPPING,
    JobPhase.STARTING,
    JobPhase.PENDING,
    JobPhase.INELIGIBLE,
    JobPhase.RELEASED,
)
"""In which order jobs are shown."""


def report(controller: Controller, policy: str, partitions: tuple[str, ...]) -> Report:
    """What the controller knows after a cycle, copied so that other threads may read it."""
    state, stats, topology = controller.scheduler.state, controller.stats, controller.scheduler.state.topology
    free = state.free.on(topology.root.index)
    used = sum(gpus for job_id in state.running for _, gpus in state.jobs[job_id].allocation)
    learnt = state.costs.learnt
    return Report(
        now_s=stats.now_s,
        policy=policy,
        running_times={
            "configured": controller.knowledge,
            **asdict(controller.scheduler.beliefs.lessons()),
        },
        partitions=partitions,
        nodes=len(topology.machines),
        jobs=tuple(_job(managed, controller) for managed in controller.reconciler.managed_jobs.values()),
        gpus={
            "total": topology.gpus,
            "used": used,
            "free": free,
            "unavailable": topology.gpus - used - free,
        },
        miscounted=dict(controller.reconciler.gpu_counts.miscounted),
        most_free={
            level: max(state.free.on(domain.index) for domain in domains)
            for level, domains in zip(topology.levels, topology.level_domains, strict=True)
        },
        timers=tuple(_timers(controller)),
        decisions=dict(stats.decisions),
        learnt_costs=tuple(belief_data(belief, topology) for belief in (learnt.beliefs() if learnt else ())),
        slower_jobs=sum(check.slower for check in learnt.checks.values()) if learnt else 0,
        observe_s=stats.observe_s,
        cycle_s=stats.cycle_s,
    )


def sorted_jobs(jobs: Iterable[JobData]) -> list[JobData]:
    """Jobs by state and arrival."""
    place = {state.value: index for index, state in enumerate(ORDER)}
    return sorted(jobs, key=lambda job: (place[job["state"]], arrival(job["submit_s"], job["job"])))


def _job(managed: ManagedJob, controller: Controller) -> JobData:
    """One job as plain data: its number as `job`, `user`, `model` (empty if unknown), `submit_s`, and these.

    gpus: GPUs it holds or is to start on, else those it asks for; 0 if nobody knows, as it is Slurm's.
    state, since_s: Its phase, and since when, seconds since 1970; so are all times.
    until_s: While it is pending, when it takes a placement of `next_level`; else the end of a grace, of a
        back-off or of the time to start; None if there is none.
    level, next_level: The level on which it insists until then, and the one above; empty if none.
    nodes: GPUs by node that it holds or is to start on.
    reason: What it waits for, or what was decided last, in words.
    refusals, preemptions: Failed starts in a row; how often it has lost its GPUs.
    assumed_slowdown: What each level farther apart is assumed to cost it, as its model has no profile, or it
        names none; None: it has a profile.
    plan: What its parallel plan is good for, in words; empty if it has none.
    progress: What it has reported, and what follows from it; None if it is not known to report.
    learnt: What is believed of its costs and how sure that is; see `_learnt`.
    """
    state, phase = controller.scheduler.state, managed.phase
    level = phase.level if isinstance(phase, PendingPhase) else ""
    asked = 0 if phase.name is JobPhase.RELEASED else managed.job.gpus
    return {
        "job": managed.job_id,
        "user": managed.job.user,
        "model": managed.job.model,
        "gpus": sum(managed.gpus.values()) or asked,
        "state": phase.name.value,
        "since_s": phase.since_s,
        "until_s": phase.until_s if phase.until_s < inf else None,
        "level": level,
        "next_level": dict(pairwise(state.topology.levels)).get(level, ""),
        "nodes": dict(managed.gpus),
        "reason": _reason(managed, controller),
        "submit_s": managed.job.submit_s,
        "refusals": managed.refusals.count,
        "preemptions": managed.history.preemptions,
        "assumed_slowdown": None if state.costs.knows(managed.job) else state.costs.assumed_slowdown,
        "plan": _plan(managed, state.costs),
        "progress": _progress(managed),
        "learnt": _learnt(managed, controller),
    }


def _plan(managed: ManagedJob, costs: CostModel) -> str:
    """What the job's parallel plan is good for, in words; empty if it has none."""
    job, asked = managed.job, managed.request.plan
    if job.plan is None:
        why = planned(job, managed.request)[1]
        return f"its plan {asked} does not count: {why}" if why else ""
    if gap := costs.plan_gap(job):
        return f"its plan {job.plan} does not count: {gap}"
    return f"what placements cost follows from its plan {job.plan} with batches of {job.batch}"


def _learnt(managed: ManagedJob, controller: Controller) -> Mapping[str, Any] | None:
    """What step times have taught of the job and of those like it; None where nobody learns.

    `basis` and how sure that is by itself; `beliefs`, one for each GPU type that it has or may have, each
    factor by level; `check`, its own steps.
    """
    state = controller.scheduler.state
    costs, learnt = state.costs, state.costs.learnt
    if learnt is None:
        return None
    own = state.jobs.get(managed.job_id)
    held = state.topology.by_type(own.allocation) if own is not None and own.allocation else ()
    types = held or [kind for kind in state.topology.gpu_types if managed.job.gpu_type in (None, kind)]
    # Without a profile it is one for all types.
    found = dict.fromkeys(costs.belief(managed.job, kind) for kind in types)
    check, (basis, prior) = learnt.checks.get(managed.job_id), costs.basis(managed.job)
    return {
        "basis": basis,
        "waiting_sigma": prior.waiting,
        "beliefs": [belief_data(belief, state.topology) for belief in found if belief is not None],
        "check": check and {**asdict(check), "slower": check.slower, "words": check.words},
    }


def belief_data(belief: Belief, topology: Topology) -> Mapping[str, Any]:
    """A belief as plain data, its waiting factors by the names of the levels."""
    waiting = zip(topology.levels, belief.waiting, belief.waiting_sigma, strict=True)
    said = asdict(belief)
    del said["waiting_sigma"]
    return {**said, "waiting": {level: {"factor": w, "sigma": sigma} for level, w, sigma in waiting}}


def _reason(managed: ManagedJob, controller: Controller) -> str:
    """What was decided, and which nodes are kept for the job, or from it, which is no policy's doing."""
    if not isinstance(managed.phase, PendingPhase):
        return managed.reason
    if controller.drains:
        return "the controller drains: it starts no jobs"
    if coming := controller.reconciler.pending_starts.explanation(managed.job_id):
        return coming
    oldest_first = controller.reconciler.conditions.oldest_first
    kept = oldest_first.explanation(managed, controller.stats.now_s)
    return f"{managed.reason}; {kept}" if kept else managed.reason


def _progress(managed: ManagedJob) -> Mapping[str, Any] | None:
    """As plain data: the last report, and samples a second by the GPUs and the batch that it had."""
    known = managed.history.progress
    if known is None:
        file = managed.request.progress
        return {"file": of_job(file, managed.job_id)} if file else None
    last = known.last
    return {
        **asdict(last),
        "heard_s": known.heard_s,
        "done": min(1.0, last.samples / last.total) if last.total else None,
        "throughputs": [
            {"gpu_types": each.gpu_types, "gpus": each.gpus, "batch": each.batch, "rate": each.rate}
            for each in known.throughputs
        ],
    }


def _timers(controller: Controller) -> Iterator[Mapping[str, Any]]:
    timers = getattr(controller.scheduler.policy, "timers", None)
    if not isinstance(timers, TunedTimers | FixedTimers):
        return
    now, levels = controller.stats.now_s, controller.scheduler.state.topology.levels
    known = controller.reconciler.managed_jobs.values()
    for gpus in sorted({managed.job.gpus for managed in known if isinstance(managed.phase, WITH_POLICY)}):
        for index, delay_s in enumerate(timers.delays_s(gpus, now)):
            waits = timers.observations(index, gpus, now) if isinstance(timers, TunedTimers) else 0
            delay = delay_s if delay_s < inf else None
            yield {"level": levels[index], "gpus": gpus, "delay_s": delay, "waits": waits}


@dataclass(frozen=True, slots=True)
class CycleProblem:
    """Something that kept a cycle from ending well, and when."""

    t: float
    event: str
    reason: str


@dataclass(slots=True)
class PublishedStatus:
    """What the daemon publishes after each cycle; its readers are other threads, which only read.

    Attributes:
        mode: normal, drain or shadow.
        last: The last report, when it was made on the machine's monotonic clock, and the seconds planned
            from there to the next; None before the first good cycle.
        problems: The last problems, oldest first.
        plans_by: What the policy plans by that jobs without a profile must report, in words.
        batching: What the policy plans for an elastic job's batch; see `dally.profiles.goodput.Batching`.
        segments: Whether jobs are to be submitted with a segment; see `BlockTopology`.
        private: Whether users may see their own jobs alone, as Slurm has it.
    """

    mode: str
    last: tuple[Report, float, float] | None = None
    problems: tuple[CycleProblem, ...] = ()
    plans_by: str = ""
    batching: str = "fixed"
    segments: bool = False
    private: bool = True

    def publish(self, latest: Report, period_s: float) -> None:
        """A cycle went well; the next is due in some seconds."""
        self.last = latest, time.monotonic(), period_s

    def add_problem(self, problem: CycleProblem) -> None:
        """A cycle did not go well."""
        self.problems = (*self.problems, problem)[-_MOST_PROBLEMS:]

    def health(self) -> tuple[str, float | None]:
        """Why jobs must not be given to it, empty if they may; and the age of its last good cycle."""
        if self.last is None:
            return "no cycle has gone well yet", None
        _, published_s, period_s = self.last
        age_s = round(time.monotonic() - published_s, 1)
        if self.mode == "shadow":
            return "shadow mode starts no jobs", age_s
        late = f"the last good cycle was {age_s:.0f} s ago"
        return late if age_s > 3 * period_s + GRACE_S else "", age_s

    def as_data(self) -> dict[str, Any]:
        """All but the jobs, as plain data."""
        reason, age_s = self.health()
        said: dict[str, Any] = {
            "healthy": not reason,
            "reason": reason,
            "mode": self.mode,
            "version": __version__,
            "age_s": age_s,
            "problems": [asdict(problem) for problem in self.problems],
        }
        if self.last is not None:
            latest = self.last[0]
            said |= {each.name: getattr(latest, each.name) for each in fields(latest)}
            said["jobs"] = latest.job_counts()
        return said
