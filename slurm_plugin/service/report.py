"""What the controller tells about itself: jobs, GPUs, timers, health, as plain data."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from math import inf
from typing import Any

from dally import __version__
from dally.policies.dally.timers import FixedTimers, TunedTimers
from dally.progress import of_job
from dally.state import ClusterState
from slurm_plugin.client.slurm import arrival
from slurm_plugin.controller import lessons
from slurm_plugin.controller.controller import Controller
from slurm_plugin.controller.tickets import WITH_POLICY, Standing, Ticket

GRACE_S = 60.0
"""A controller is healthy while its last good cycle is younger than three periods and this."""

_MOST_PROBLEMS = 10


@dataclass(frozen=True, slots=True)
class JobReport:
    """One job.

    Attributes:
        job: Its number.
        user: Its user.
        model: Its model; empty if unknown.
        gpus: GPUs it holds or is to start on, else those it asks for.
        standing: Where it stands; see `Standing`.
        since_s: Since when, seconds since 1970; so are all times.
        until_s: While it waits, when it takes a placement of `next_level`; else the end of a grace, of a
            back-off or of the time to start; None if there is none.
        level: The level on which it insists until then; empty if it insists on none.
        next_level: The level above; empty if there is none.
        nodes: GPUs by node that it holds or is to start on.
        why: What it waits for, or what was decided last, in words.
        submit_s: When it was submitted.
        refusals: Starts in a row that came to nothing.
        preemptions: How often it has lost its GPUs.
        assumed_slowdown: What each level farther apart is assumed to cost it, as its model has no profile, or
            it names none; None: it has a profile.
        progress: What it has reported, and what follows from it; None if it is not known to report.
    """

    job: str
    user: str
    model: str
    gpus: int
    standing: str
    since_s: float
    until_s: float | None
    level: str
    next_level: str
    nodes: Mapping[str, int]
    why: str
    submit_s: float
    refusals: int
    preemptions: int
    assumed_slowdown: float | None = None
    progress: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TimerReport:
    """How long gangs of a size decline placements above a level, seconds; None: for ever."""

    level: str
    gpus: int
    delay_s: float | None
    waits: int


@dataclass(frozen=True, slots=True)
class Report:
    """One moment of the controller.

    Attributes:
        now_s: The moment.
        policy: Policy and knobs.
        running_times: What it goes by of running times, and how true that was, as plain data.
        partitions: Slurm partitions.
        nodes: Number of nodes.
        jobs: All jobs.
        gpus: GPUs in all, in use, free, and withheld: others', promised, or of closed nodes.
        most_free: For each level, the free GPUs of that one domain which has most of them.
        timers: Delay timers of the gang sizes that are in the queue or run.
        decisions: Decisions so far, by kind.
        observe_s: How long the last look at Slurm took.
        cycle_s: How long the last cycle took.
    """

    now_s: float
    policy: str
    running_times: Mapping[str, Any]
    partitions: tuple[str, ...]
    nodes: int
    jobs: tuple[JobReport, ...]
    gpus: Mapping[str, int]
    most_free: Mapping[str, int]
    timers: tuple[TimerReport, ...]
    decisions: Mapping[str, int]
    observe_s: float
    cycle_s: float

    @property
    def longest_wait_s(self) -> float:
        """How long the job has waited that has waited longest since it was last stopped or submitted."""
        waits = (self.now_s - job.since_s for job in self.jobs if job.standing == Standing.WAITING)
        return max(waits, default=0.0)

    def standings(self) -> dict[str, int]:
        """Jobs by standing, all standings named."""
        found = Counter(job.standing for job in self.jobs)
        return {standing.value: found[standing.value] for standing in ORDER}


ORDER = (
    Standing.RUNNING,
    Standing.STOPPING,
    Standing.STARTING,
    Standing.WAITING,
    Standing.ASIDE,
    Standing.LEFT,
)
"""In which order jobs are shown."""


def report(controller: Controller, policy: str, partitions: tuple[str, ...]) -> Report:
    """What the controller knows after a cycle, copied so that other threads may read it."""
    state, seen = controller.scheduler.state, controller.seen
    free, withheld = state.free.on(state.topology.root.index), sum(state.withheld.values())
    return Report(
        now_s=seen.now_s,
        policy=policy,
        running_times=lessons.as_data(controller.scheduler.beliefs.lessons(), controller.knowledge),
        partitions=partitions,
        nodes=len(state.topology.machines),
        jobs=tuple(_job(ticket, state) for ticket in controller.mirror.tickets.values()),
        gpus={
            "total": state.topology.gpus,
            "used": state.topology.gpus - free - withheld,
            "free": free,
            "withheld": withheld,
        },
        most_free=_most_free(state),
        timers=_timers(controller),
        decisions=dict(seen.decisions),
        observe_s=seen.observe_s,
        cycle_s=seen.cycle_s,
    )


def _most_free(state: ClusterState) -> dict[str, int]:
    """Free GPUs are worth the more the closer they are together."""
    topology = state.topology
    return {
        level: max(state.free.on(domain.index) for domain in domains)
        for level, domains in zip(topology.levels, topology.level_domains, strict=True)
    }


def listed(latest: Report) -> list[dict[str, Any]]:
    """The jobs as plain data, by standing and arrival."""
    place = {standing.value: index for index, standing in enumerate(ORDER)}
    jobs = sorted(latest.jobs, key=lambda job: (place[job.standing], arrival(job.submit_s, job.job)))
    return [as_data(job) for job in jobs]


def as_data(job: JobReport) -> dict[str, Any]:
    """A job as plain data."""
    return {name: getattr(job, name) for name in _JOB_FIELDS}


_JOB_FIELDS = tuple(each.name for each in fields(JobReport))


def _job(ticket: Ticket, state: ClusterState) -> JobReport:
    topology, costs = state.topology, state.costs
    level = ticket.level if ticket.standing is Standing.WAITING else ""
    return JobReport(
        job=ticket.job_id,
        user=ticket.job.user,
        model=ticket.job.model,
        gpus=_gpus(ticket),
        standing=ticket.standing.value,
        since_s=ticket.since_s,
        until_s=ticket.until_s if ticket.until_s < inf else None,
        level=level,
        next_level=_above(level, topology.levels),
        nodes=dict(ticket.gpus) if ticket.standing is not Standing.WAITING else {},
        why=ticket.why,
        submit_s=ticket.job.submit_s,
        refusals=ticket.refusals,
        preemptions=ticket.past.preemptions,
        assumed_slowdown=None if costs.knows(ticket.job) else costs.assumed_slowdown,
        progress=_progress(ticket),
    )


def _progress(ticket: Ticket) -> Mapping[str, Any] | None:
    """As plain data: the last report, and samples a second by the GPUs and the batch that it had."""
    known = ticket.past.progress
    if known is None:
        file = ticket.request.progress
        return {"file": of_job(file, ticket.job_id)} if file else None
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


def _gpus(ticket: Ticket) -> int:
    """Those it has coming; of a job of Slurm's nobody knows what it asks for."""
    asked = 0 if ticket.standing is Standing.LEFT else ticket.job.gpus
    return sum(ticket.gpus.values()) or asked


def _above(level: str, levels: tuple[str, ...]) -> str:
    return dict(pairwise(levels)).get(level, "")


def _timers(controller: Controller) -> tuple[TimerReport, ...]:
    timers = getattr(controller.scheduler.policy, "timers", None)
    if not isinstance(timers, TunedTimers | FixedTimers):
        return ()
    now, levels = controller.seen.now_s, controller.scheduler.state.topology.levels
    tickets = controller.mirror.tickets.values()
    found = []
    for gpus in sorted({ticket.job.gpus for ticket in tickets if ticket.standing in WITH_POLICY}):
        for index, delay_s in enumerate(timers.delays_s(gpus, now)):
            waits = timers.observations(index, gpus, now) if isinstance(timers, TunedTimers) else 0
            found.append(TimerReport(levels[index], gpus, delay_s if delay_s < inf else None, waits))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class CycleProblem:
    """Something that kept a cycle from ending well, and when."""

    t: float
    event: str
    reason: str


@dataclass(frozen=True, slots=True)
class Health:
    """Whether jobs may be given to the controller, and if not, why.

    Attributes:
        ok: They may.
        mode: normal, drain or shadow.
        age_s: Seconds since the last good cycle; None if there was none.
        reason: Why they may not; empty if they may.
    """

    ok: bool
    mode: str
    age_s: float | None
    reason: str


@dataclass(slots=True)
class Board:
    """Where the daemon pins up what others may know; its readers are other threads, which only read.

    Attributes:
        mode: normal, drain or shadow.
        last: The last report, when it was made on the machine's monotonic clock, and the seconds planned
            from there to the next; None before the first good cycle.
        problems: The last problems, oldest first.
        plans_by: What the policy plans by that jobs without a profile must report, in words.
        batching: What the policy plans for an elastic job's batch; see `dally.profiles.goodput.Batching`.
    """

    mode: str
    last: tuple[Report, float, float] | None = None
    problems: tuple[CycleProblem, ...] = ()
    plans_by: str = ""
    batching: str = "fixed"

    def pin(self, latest: Report, period_s: float) -> None:
        """A cycle went well; the next is due in some seconds."""
        self.last = latest, time.monotonic(), period_s

    def add_problem(self, problem: CycleProblem) -> None:
        """A cycle did not go well."""
        self.problems = (*self.problems, problem)[-_MOST_PROBLEMS:]

    def health(self) -> Health:
        """Whether all is well now. In shadow mode jobs must not be given to it: it would start none."""
        if self.last is None:
            return Health(False, self.mode, None, "no cycle has gone well yet")
        _, pinned_s, period_s = self.last
        age_s = round(time.monotonic() - pinned_s, 1)
        if self.mode == "shadow":
            return Health(False, self.mode, age_s, "shadow mode starts no jobs")
        if age_s > 3 * period_s + GRACE_S:
            return Health(False, self.mode, age_s, f"the last good cycle was {age_s:.0f} s ago")
        return Health(True, self.mode, age_s, "")

    def status(self) -> dict[str, Any]:
        """All but the jobs, as plain data."""
        health = self.health()
        said: dict[str, Any] = {
            "healthy": health.ok,
            "reason": health.reason,
            "mode": self.mode,
            "version": __version__,
            "age_s": health.age_s,
            "problems": [asdict(problem) for problem in self.problems],
        }
        if self.last is not None:
            latest = self.last[0]
            said |= {
                "now_s": latest.now_s,
                "policy": latest.policy,
                "running_times": dict(latest.running_times),
                "partitions": list(latest.partitions),
                "nodes": latest.nodes,
                "jobs": latest.standings(),
                "gpus": dict(latest.gpus),
                "most_free": dict(latest.most_free),
                "timers": [asdict(timer) for timer in latest.timers],
                "decisions": dict(latest.decisions),
                "observe_s": latest.observe_s,
                "cycle_s": latest.cycle_s,
            }
        return said
