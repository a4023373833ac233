"""Shortest remaining service first, with delay scheduling: far placements must pay for what they waste."""

from collections.abc import Mapping
from math import inf
from typing import Any, ClassVar

from dally.plan import Plan, Wait
from dally.policies.base import Policy
from dally.policies.common.estimates import remaining_s, restart_s
from dally.policies.common.ranking import Ranking
from dally.policies.srsf_delay.fair_share import FairShare
from dally.policies.srsf_delay.knobs import SrsfDelayKnobs
from dally.policies.srsf_delay.preemptions import PolicyState
from dally.policies.srsf_delay.round import HOUR_S, SLOW, SrsfRound
from dally.policies.srsf_delay.running import RunningByRemaining
from dally.policies.srsf_delay.starvation_guard import LONG, StarvationGuard
from dally.policies.srsf_delay.waiting import Kind, WaitingByRemaining
from dally.state import ClusterState, JobState
from dally.words import are, plural


class SrsfDelay(Policy):
    """The job with fewest remaining GPU-seconds goes first; see `docs/policies/srsf-delay.md`."""

    name: ClassVar[str] = "srsf-delay"
    summary: ClassVar[str] = (
        "Whoever needs fewest GPU-seconds goes first, those lost to the network included; jobs wait for "
        "closeness as long as that pays, give way, and move closer."
    )
    source: ClassVar[str] = "this project; delay scheduling by network sensitivity after arXiv 2401.16492"
    knobs_type: ClassVar[type] = SrsfDelayKnobs
    learns_limits: ClassVar[bool] = True

    def __init__(self, knobs: SrsfDelayKnobs, state: ClusterState) -> None:
        self._state = state
        self.knobs = knobs
        fair_share = FairShare(state.topology.gpus, knobs.fair)
        self.known = PolicyState(
            waiting=WaitingByRemaining(self._remaining_gpu_seconds, self._kind),
            running=RunningByRemaining(self.knobs.weight),
            spread_out=Ranking(),
            fair_share=fair_share,
            declining={},
            guard=StarvationGuard(state.topology.gpus, knobs.guard_share, self._overdue_s, self._sure_s),
        )
        self._free_before = state.free.total()

    def submitted(self, job: JobState, now: float) -> None:
        self.known.fair_share.arrived(job)
        self.known.waiting.add(job)
        self.known.guard.add(job)

    def started(self, job: JobState, now: float) -> None:
        self.resumed(job, now)

    def resumed(self, job: JobState, now: float) -> None:
        self.known.guard.remove(job)
        self.known.waiting.remove(job)
        self.known.declining.pop(job.job_id, None)
        self.known.fair_share.held(job, job.job.gpus)
        self._hold(job)

    def repaced(self, job: JobState, now: float) -> None:
        self._release(job)
        self._hold(job)

    def revised(self, job: JobState, now: float) -> None:
        super().revised(job, now)
        if not job.allocation:
            self.known.waiting.move(job)
            self.known.guard.remove(job)
            self.known.guard.add(job)

    def stopped(self, job: JobState, now: float) -> None:
        self._release(job)
        self.known.fair_share.held(job, -job.job.gpus)
        self.known.waiting.add(job)
        self.known.guard.add(job)

    def finished(self, job: JobState, now: float) -> None:
        self._release(job)
        self.known.fair_share.held(job, -job.job.gpus)
        self.known.fair_share.left(job)

    def withdrawn(self, job: JobState, now: float) -> None:
        self.known.guard.remove(job)
        self.known.waiting.remove(job)
        self.known.declining.pop(job.job_id, None)
        self.known.fair_share.left(job)

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """Remember which jobs decline far placements, and what is free, to see when more comes free."""
        for each in plan.decisions:
            if isinstance(each, Wait) and each.level < state.topology.top and each.job_id in state.waiting:
                self.known.declining[each.job_id] = each.until_s
        self._free_before = state.free.total()
        self.known.guard.settle(now)

    def snapshot(self) -> dict[str, Any]:
        return {
            "free_before": self._free_before,
            "declining": dict(sorted(self.known.declining.items())),
        }

    def restore(self, learnt: Mapping[str, Any]) -> None:
        self._free_before = learnt["free_before"]
        self.known.declining.update(learnt["declining"])

    def decide(self, state: ClusterState, now: float) -> Plan:
        """Offer GPUs to the waiting jobs, the one with fewest remaining GPU-seconds first."""
        freed = state.free.total() > self._free_before
        waiting = self.known.waiting
        if not waiting and not (freed and self.known.spread_out):
            return Plan()
        with state.free.trial():
            plan = SrsfRound(self.knobs, self.known, state, now)
            plan.run(self._free_before)
            waits = [self._wait(job, state, now) for job in plan.waiting()]
        return Plan((*plan.decisions(), *waits), plan.due_s)

    def _remaining_gpu_seconds(self, job: JobState) -> float:
        """What a waiting job needs at its best placement; the same for as long as it waits."""
        return self.knobs.weight(job.job.gpus) * (restart_s(job, self._state.costs) + remaining_s(job))

    def _kind(self, job: JobState) -> Kind:
        return job.job.model, self.known.fair_share.of(job)

    def _overdue_s(self, job: JobState) -> float:
        """When a job will have waited so many times as long as it still needs."""
        needs_s = remaining_s(job)
        return job.job.submit_s + job.run_before_s + LONG * needs_s

    def _sure_s(self, job: JobState) -> float:
        """How long a job that waits would hold its GPUs for sure."""
        needs_s = remaining_s(job)
        if job.job.preemptible:
            needs_s = min(needs_s, self.knobs.sure_s(self._state.costs.restart_s(job.job)))
        return restart_s(job, self._state.costs) + needs_s

    def _hold(self, job: JobState) -> None:
        self.known.running.add(job)
        if job.speed * SLOW < 1 and job.job.preemptible:
            self.known.spread_out.add(job, (job.speed - 1) * job.remaining_s(job.since_s))

    def _release(self, job: JobState) -> None:
        self.known.running.remove(job)
        if job in self.known.spread_out:
            self.known.spread_out.remove(job)

    def _wait(self, job: JobState, state: ClusterState, now: float) -> Wait:
        free = state.free.total(job.job.gpu_type)
        needs = job.job.gpus * job.remaining_s(now) / HOUR_S
        reason = (
            f"asks for {plural(job.job.gpus, 'GPU')}, {are(free)} left; needs {needs:.3g} GPU-hours, "
            f"and nobody who needs that much more can be stopped now"
        )
        return Wait(job.job_id, state.topology.top, inf, reason)
