"""A-SRPT: jobs start in the order in which a virtual machine as strong as the whole cluster ends them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from math import inf
from typing import Any

from dally.plan import Decision, Plan, Start, Wait
from dally.policies.a_srpt.virtual_srpt import VirtualSrpt
from dally.policies.base import Policy
from dally.policies.common.estimates import remaining_s
from dally.policies.common.kept_machines import KeptMachines
from dally.policies.common.knobs import knob
from dally.policies.common.placements import closest
from dally.policies.common.ranking import Ranking
from dally.state import ClusterState, JobState
from dally.words import plural, share, span

DEPTH = 100
"""Waiting jobs looked at."""


@dataclass(frozen=True, slots=True)
class ASrptKnobs:
    """Settings of `a-srpt`."""

    release: str = knob(
        "early",
        "start a job when its turn has come, or not before the virtual machine has ended it",
        ("early", "ended"),
    )
    heavy: float = knob(1.1, "slowdown of a placement from which a job is communication-heavy there", least=1)
    patience: float = knob(
        1.0, "such a job waits at most so many times what the placement would cost it", least=0
    )


class AdaptiveSrpt(Policy):
    """Starts jobs in the order in which preemptive SRPT ends them on one virtual machine; stops none.

    A job is GPUs * expected time / GPUs of the cluster of work to that machine. The first in this order whose
    GPUs are not free lets no other pass. One that could start only where the network slows it much lets
    others pass and waits for its best level, but no longer than what it is offered first would cost it.
    """

    name = "a-srpt"
    summary = (
        "Jobs start in the order in which SRPT ends them on one virtual machine; heavy ones wait to be close."
    )
    source = (
        "Luo et al., Prediction-Assisted Online Distributed Deep Learning Workload Scheduling in GPU "
        "Clusters, INFOCOM 2025, arXiv 2501.05563; a reconstruction"
    )
    knobs_type = ASrptKnobs

    def __init__(self, knobs: ASrptKnobs, state: ClusterState) -> None:
        self.knobs = knobs
        self.virtual = VirtualSrpt()
        self.queue = Ranking()
        self._state = state
        self._until_s: dict[str, float] = {}

    def submitted(self, job: JobState, now: float) -> None:
        self._advance(now)
        share = job.job.gpus / self._state.topology.gpus
        self.virtual.add(job, share * remaining_s(job))
        self.queue.add(job, *self.virtual.rank(job))

    def started(self, job: JobState, now: float) -> None:
        self._dequeue(job)

    def stopped(self, job: JobState, now: float) -> None:
        self.queue.add(job, *self.virtual.rank(job))

    def finished(self, job: JobState, now: float) -> None:
        self._advance(now)
        self.virtual.remove(job)

    def withdrawn(self, job: JobState, now: float) -> None:
        self._dequeue(job)
        self.finished(job, now)

    def time_passed(self, state: ClusterState, now: float) -> None:
        """The virtual machine has worked until now."""
        self._advance(now)

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """Whoever waits for a better placement keeps to that."""
        for each in plan.decisions:
            if isinstance(each, Wait) and each.until_s < inf and each.job_id in state.waiting:
                self._until_s[each.job_id] = each.until_s

    def snapshot(self) -> dict[str, Any]:
        return {**self.virtual.snapshot(), "until_s": dict(self._until_s)}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        self.virtual.restore(learnt)
        self._until_s = dict(learnt["until_s"])

    def decide(self, state: ClusterState, now: float) -> Plan:
        """Start jobs in turn, until the GPUs of one are not free; behind it only where it would not."""
        if not self.queue:
            return Plan()
        levels, top, decisions, wakeup_s = (
            state.topology.levels,
            state.topology.top,
            dict[str, Decision](),
            inf,
        )
        ready: Iterable[JobState] = self.queue
        if self.knobs.release == "ended":
            ready = takewhile(lambda job: self.virtual.end_s(job, now) is not None, self.queue)
        with state.free.trial() as free:
            kept = KeptMachines(free)
            for job in islice((job for job in ready if not kept.keeps_all_of(job)), DEPTH):
                best = state.best_level(job.job.gang)
                placement = closest(free, job.job, best, top)
                if placement is None:
                    kept.keep(job)  # nobody passes a job whose GPUs are not free
                    if kept.all:
                        break
                    continue
                level = levels[placement.level]
                slowdown = state.costs.cost(job.job, placement.allocation).slowdown
                extra, needs_s = slowdown - 1, remaining_s(job)
                until_s = now
                if placement.level > best and extra >= self.knobs.heavy - 1:
                    until_s = self._until_s.get(job.job_id, now + self.knobs.patience * extra * needs_s)
                if until_s > now:
                    wakeup_s = min(wakeup_s, until_s)
                    if job.job_id not in self._until_s:
                        reason = (
                            f"one {level} could hold it, but the network would cost it {share(extra)} of "
                            f"{span(needs_s)}; it waits for one {levels[best]}"
                        )
                        decisions[job.job_id] = Wait(job.job_id, best, until_s, reason)
                    continue
                free.take(placement.allocation)
                reason = (
                    f"{level} has {plural(job.job.gpus, 'free GPU')}, at slowdown {slowdown:.3g}; "
                    f"{self._turn(job, now)}, waited {span(now - job.origin_s)}"
                )
                decisions[job.job_id] = Start(job.job_id, placement.allocation, placement.level, reason)
            else:
                if self.knobs.release == "ended":
                    wakeup_s = min(wakeup_s, self.virtual.next_end_s(now))
            kept.give_back()
            waits = []
            for job in state.to_explain(decisions.values()):
                asked, left = plural(job.job.gpus, "GPU"), free.usable(job.job.gang)
                reason = f"{asked} asked for, {left} left by those before it; {self._turn(job, now)}"
                waits.append(Wait(job.job_id, top, inf, reason))
        return Plan((*decisions.values(), *waits), wakeup_s)

    def _advance(self, now: float) -> None:
        """Let the virtual machine work until now, and the queue follow."""
        for job in self.virtual.advance(now):
            if job in self.queue:
                self.queue.move(job, *self.virtual.rank(job))

    def _dequeue(self, job: JobState) -> None:
        self.queue.remove(job)
        self._until_s.pop(job.job_id, None)

    def _turn(self, job: JobState, now: float) -> str:
        if self.virtual.end_s(job, now) is None:
            return f"{span(self.virtual.left_s(job, now))} left of it on the virtual machine"
        return "the virtual machine has ended it"
