"""Shortest remaining service first, with delay scheduling: far placements must pay for what they waste."""

from collections.abc import Mapping
from typing import Any

from dally.plan import Plan, Wait
from dally.policies.base import Policy
from dally.policies.common.estimates import remaining_s, restart_s
from dally.policies.common.job_queue import DemandQueue
from dally.policies.common.ranking import Ranking
from dally.policies.srsf_delay.fair_share import FairShare
from dally.policies.srsf_delay.knobs import SrsfDelayKnobs
from dally.policies.srsf_delay.round import SLOW, PolicyState, SrsfRound
from dally.policies.srsf_delay.running import RunningByRemaining
from dally.policies.srsf_delay.starvation_guard import LONG, StarvationGuard
from dally.state import ClusterState, JobState


class SrsfDelay(Policy):
    """The job with fewest remaining GPU-seconds goes first; see `docs/policies/srsf-delay.md`."""

    name = "srsf-delay"
    summary = (
        "Whoever needs fewest GPU-seconds goes first, those lost to the network included; jobs wait for "
        "closeness as long as that pays, give way, and move closer."
    )
    source = "this project; delay scheduling by network sensitivity after arXiv 2401.16492"
    knobs_type = SrsfDelayKnobs
    learns_limits = True

    def __init__(self, knobs: SrsfDelayKnobs, state: ClusterState) -> None:
        self._state = state
        self.knobs = knobs
        self.known = PolicyState(
            waiting=DemandQueue(),
            running=RunningByRemaining(knobs.weight),
            spread_out=Ranking(),
            fair_share=FairShare(state.topology.gpus, knobs.fair),
            declining={},
            guard=StarvationGuard(state.topology.gpus, knobs.guard_share),
        )
        self._free_before = state.free.total()

    def decide(self, state: ClusterState, now: float) -> Plan:
        """Offer GPUs to the waiting jobs, the one with fewest remaining GPU-seconds first."""
        freed = state.free.total() > self._free_before
        if not self.known.waiting and not (freed and self.known.spread_out):
            return Plan()
        with state.free.trial():
            plan = SrsfRound(self.knobs, self.known, state, now)
            # Short jobs that keep arriving would starve a large one: its turn comes before all of them.
            plan.serve_longest_waiting()
            # Before those that wait, as moves leave as many GPUs as they take; only new free GPUs help.
            if freed:
                plan.move_closer()
            # Jobs that are stopped for a gang may leave GPUs over: these are offered to all again.
            while plan.offer() and state.free.total():
                pass
            # A stopped job goes on at once on what no other job took.
            plan.move_stopped()
            return Plan(plan.decisions(), plan.wakeup_s())

    def submitted(self, job: JobState, now: float) -> None:
        self.known.fair_share.arrived(job)
        self._enqueue(job)

    def started(self, job: JobState, now: float) -> None:
        self.resumed(job, now)

    def resumed(self, job: JobState, now: float) -> None:
        self._dequeue(job)
        self.known.declining.pop(job.job_id, None)
        self._hold(job)

    def repaced(self, job: JobState, now: float) -> None:
        self._release(job)
        self._hold(job)

    def revised(self, job: JobState, now: float) -> None:
        super().revised(job, now)
        if not job.allocation:
            self._dequeue(job)
            self._enqueue(job)

    def stopped(self, job: JobState, now: float) -> None:
        self._release(job)
        self._enqueue(job)

    def finished(self, job: JobState, now: float) -> None:
        self._release(job)
        self.known.fair_share.left(job)

    def withdrawn(self, job: JobState, now: float) -> None:
        self._dequeue(job)
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

    def _enqueue(self, job: JobState) -> None:
        """Sort a waiting job in; what it is sorted by stays the same as long as it waits."""
        costs, request, needs_s = self._state.costs, job.job, remaining_s(job)
        launch_s = restart_s(job, costs)
        # Jobs of one group and owner have the same choice of placements, at the same slowdowns.
        kind = costs.group(request), self.known.fair_share.of(job)
        self.known.waiting.add(job, kind, self.knobs.weight(request.gpus) * (launch_s + needs_s))
        overdue_s = request.submit_s + job.run_before_s + LONG * needs_s
        if request.preemptible:
            needs_s = min(needs_s, self.knobs.sure_s(costs.restart_s(request)))
        self.known.guard.add(job, overdue_s, launch_s + needs_s)

    def _dequeue(self, job: JobState) -> None:
        self.known.guard.remove(job)
        self.known.waiting.remove(job)

    def _hold(self, job: JobState) -> None:
        self.known.fair_share.held(job, job.job.gpus)
        self.known.running.add(job)
        if job.speed * SLOW < 1 and job.job.preemptible:
            self.known.spread_out.add(job, (job.speed - 1) * job.remaining_s(job.since_s))

    def _release(self, job: JobState) -> None:
        self.known.fair_share.held(job, -job.job.gpus)
        self.known.running.remove(job)
        if job in self.known.spread_out:
            self.known.spread_out.remove(job)
