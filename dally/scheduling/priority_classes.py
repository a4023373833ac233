"""Keeps jobs behind those of much higher priority, whatever the policy: it sees the best class only."""

from collections.abc import Iterable
from dataclasses import replace
from heapq import nsmallest
from math import inf

from dally.cluster.topology import Allocation
from dally.jobs.priority import may_take_gpus
from dally.plan import Migrate, Plan, Preempt, Start, Wait
from dally.policies.base import Policy
from dally.policies.common.backfill import PromisedGpus, Release, reserve
from dally.policies.common.estimates import stretch_s
from dally.policies.common.kept_machines import KeptMachines, UnclaimedMachines
from dally.policies.common.placements import Placement, closest
from dally.scheduling.spared_jobs import spare_higher_priority
from dally.state import ClusterState, JobState
from dally.words import plural, span

DEPTH = 100
"""Jobs looked at that wait behind others."""

SOON_S = 1.0
"""When the next class gets its turn, once all of the best one have started."""


class PriorityClasses:
    """The waiting jobs by priority, as `docs/decisions/0016-priorities.md` says.

    The policy is asked about the best class that waits. GPUs that none of these jobs could use now go to the
    others, the one of highest priority first, as in EASY backfill: only where that does not delay the first
    of the best class. A running job of much higher priority than a job that the policy sees is protected. So
    is one on a machine that is closed, whatever the priorities: nobody else could use its GPUs.

    Args:
        state: The cluster and its jobs, with the ratio.
        policy: Told which jobs wait for it.
    """

    def __init__(self, state: ClusterState, policy: Policy) -> None:
        self._state, self._policy = state, policy
        self._ratio = 0.0 if policy.orders_by_priority else state.priority_ratio
        self._waits: dict[str, Wait] = {}
        self._protects = False

    def update(self, now: float) -> None:
        """Sort waiting jobs into those that the policy sees and those behind them; protect running ones."""
        if self._ratio:
            self._sort(now)
        if self._ratio or self._state.closed or self._protects:
            self._protect(now)

    def _sort(self, now: float) -> None:
        state, jobs = self._state, self._state.jobs
        if state.waiting or state.behind:
            waiting = (jobs[name].priority for names in (state.waiting, state.behind) for name in names)
            least = self._ratio * max(waiting)  # of the best class
            for job in [jobs[name] for name in state.waiting if jobs[name].priority < least]:
                state.set_behind(job.job_id)
                self._waits.pop(job.job_id, None)
                self._policy.withdrawn(job, now)
            rising = [jobs[name] for name in state.behind if jobs[name].priority >= least]
            for job in sorted(rising, key=lambda job: job.order):
                self.bring_forward(job, now)

    def _protect(self, now: float) -> None:
        state, jobs = self._state, self._state.jobs
        lowest = min((jobs[name].priority for name in state.waiting), default=inf) if self._ratio else inf
        self._protects = False
        for name in state.running:
            job = jobs[name]
            protected = not may_take_gpus(lowest, job.priority, self._ratio) or any(
                machine in state.closed for machine, _ in job.allocation
            )
            self._protects |= protected
            if protected != job.protected:
                job.protected = protected
                self._policy.reprioritized(job, now)

    def bring_forward(self, job: JobState, now: float) -> None:
        """Hand a job that was behind to the policy again; nothing if it was not."""
        if job.job_id in self._state.behind:
            self._state.bring_forward(job.job_id)
            self._policy.submitted(job, now)

    def explained(self, wait: Wait) -> None:
        """A wait is on record: the job accepts no placement farther than that."""
        if self._ratio and wait.job_id in self._state.waiting:
            self._waits[wait.job_id] = wait

    def left(self, job: JobState) -> None:
        """A job no longer waits."""
        self._waits.pop(job.job_id, None)

    def complete(self, plan: Plan, now: float) -> Plan:
        """The policy's plan, less what it must not do, with what becomes of the jobs that it did not see.

        Those are starts, and waits to explain. Nothing is given to them while the policy stops or moves jobs:
        for whom, shows at the next look.
        """
        state = self._state
        if self._ratio:
            plan = spare_higher_priority(plan, state, self._ratio)
        if not state.behind:
            return plan
        started = {each.job_id for each in plan.decisions if isinstance(each, Start)}
        ahead = [state.jobs[name] for name in state.waiting if name not in started]
        changes = any(isinstance(each, Preempt | Migrate) for each in plan.decisions)
        starts: list[Start] = []
        if changes or not ahead:
            plan = replace(plan, wakeup_s=min(plan.wakeup_s, now + SOON_S))
        elif state.free.total():
            starts = self._backfilled(plan, ahead, now)
        waits = self._new_waits({each.job_id for each in starts})
        return replace(plan, decisions=(*plan.decisions, *starts, *waits))

    def _backfilled(self, plan: Plan, ahead: list[JobState], now: float) -> list[Start]:
        state, costs = self._state, self._state.costs
        waits = {**self._waits, **{each.job_id: each for each in plan.decisions if isinstance(each, Wait)}}

        def accepts(job: JobState) -> int:
            """The highest level that a job takes now."""
            wait = waits.get(job.job_id)
            return wait.level if wait is not None and now < wait.until_s else state.topology.top

        def end_s(job: JobState, allocation: Allocation) -> float:
            return now + stretch_s(job, costs, allocation)

        starts: list[Start] = []
        with state.free.trial() as free:
            ends: list[Release] = []
            for each in plan.decisions:
                if isinstance(each, Start):
                    free.take(each.allocation)
                    ends.append((end_s(state.jobs[each.job_id], each.allocation), each.allocation))
            # What those could have now and do not take, they may have reasons to take next.
            could_start = [
                job
                for (gang, level), job in {(job.job.gang, accepts(job)): job for job in ahead}.items()
                if (lowest := free.lowest_level(gang)) is not None and lowest <= level
            ]
            if any(free.accepted(job.job.gang) is None for job in could_start):
                return []
            head, promised = min(ahead, key=_rank), list[PromisedGpus]()

            def promise(job: JobState, level: int) -> None:
                running = map(state.jobs.__getitem__, state.running)
                releases = [*ends, *((max(now, each.end_s()), each.allocation) for each in running)]
                promised.append(reserve(free, job.job, level, sorted(releases)))

            if could_start:
                promise(head, accepts(head))  # before what they could have is hidden
            kept = KeptMachines(free)
            for job in could_start:
                kept.keep(job)
            elsewhere = UnclaimedMachines(free, ahead)
            for job in nsmallest(DEPTH, map(state.jobs.__getitem__, state.behind), key=_rank):
                placement = self._placement(job)
                if placement is None:
                    elsewhere.wants(job)
                    continue
                if not promised:
                    promise(head, accepts(head))
                for first in elsewhere.take_first():
                    promise(first, state.topology.top)
                job_end_s = end_s(job, placement.allocation)
                left = [each.after(free, placement.allocation, job_end_s) for each in promised]
                still = [each for each in left if each is not None]
                if len(still) < len(promised):
                    continue
                free.take(placement.allocation)
                ends.append((job_end_s, placement.allocation))
                reason = (
                    f"{state.topology.levels[placement.level]} has {plural(job.job.gpus, 'GPU')} that no job "
                    f"of higher priority could use now; {_why(promised[0], still[0], head, job_end_s, now)}; "
                    f"waited {span(now - job.origin_s)}"
                )
                promised = still
                starts.append(Start(job.job_id, placement.allocation, placement.level, reason))
        return starts

    def _placement(self, job: JobState) -> Placement | None:
        """The closest free GPUs for a job; None if there are too few."""
        state = self._state
        if job.job.gpus > state.free.usable(job.job.gang):
            return None
        return closest(state.free, job.job, state.best_level(job.job.gang), state.topology.top)

    def _new_waits(self, started: Iterable[str]) -> list[Wait]:
        """Why jobs wait that the policy does not see, of those for which that is not on record yet."""
        state, jobs = self._state, self._state.jobs
        names = [name for name in state.unexplained if name in state.behind and name not in {*started}]
        if not names:
            return []
        first = min(map(jobs.__getitem__, state.waiting), key=_rank)
        return [
            Wait(
                name,
                state.topology.top,
                inf,
                f"waits behind jobs of higher priority: its own, {jobs[name].priority:,.0f}, is less than "
                f"{self._ratio:g} of the {first.priority:,.0f} of job {first.job_id}",
            )
            for name in names
        ]


def _rank(job: JobState) -> tuple[float, int]:
    """What orders jobs by priority, the highest first."""
    return -job.priority, job.order


def _why(promised: PromisedGpus, left: PromisedGpus, head: JobState, end_s: float, now: float) -> str:
    """Why a job that ends then does not delay the first one, in words."""
    if promised.shadow_s == inf:
        return f"nobody can say when job {head.job_id} can start"
    shadow_s = span(promised.shadow_s - now)
    if left.extra < promised.extra:
        return f"job {head.job_id} starts in {shadow_s} and leaves {plural(promised.extra, 'GPU')}"
    if end_s > promised.shadow_s:
        return f"job {head.job_id} is to start elsewhere"
    return f"ends in {span(end_s - now)}, before job {head.job_id} can start in {shadow_s}"
