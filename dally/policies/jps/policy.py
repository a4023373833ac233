"""JPS: decides for all jobs at once how many workers each gets, and by a matching market which."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from dally.jobs.job import JobKind
from dally.plan import Migrate, Plan, Resize, Start, Wait
from dally.policies.base import Policy
from dally.policies.common.arrays import Ints
from dally.policies.common.knobs import knob
from dally.policies.common.ranking import Ranking
from dally.policies.common.rounds import PendingChanges
from dally.policies.common.sizing import change_s, needs_no_checkpoint
from dally.policies.jps.instance import Instance, WorkerDemands, workload_s
from dally.policies.jps.market import Assign, hungarian, price_ascent
from dally.policies.jps.placement_trial import PlacementTrial
from dally.policies.jps.rerun import Rerun
from dally.policies.jps.search import Search
from dally.state import ClusterState, JobState
from dally.words import plural, span

_MARKETS: Mapping[str, Assign] = {"hungarian": hungarian, "price-ascent": price_ascent}


@dataclass(frozen=True, slots=True)
class JpsKnobs:
    """Settings of `jps`."""

    search: str = knob(
        "guided",
        "climb from sizes in proportion to sqrt(T Pi / speed), or draw categories as published",
        ("guided", "sampled"),
    )
    markets: int = knob(2, "categories matched at most each time", least=1)
    assign: str = knob("hungarian", "how a market matches", tuple(_MARKETS))
    alpha: float = knob(
        0.0, "share of the drawn categories, the least even ones, that is skipped", least=0, most=1
    )
    beta: float = knob(0.0, "weight of unfairness (1 - Jain's index) against the mean time", least=0, most=1)


class JointPlacement(Policy):
    """Places all jobs again when one arrives or ends, as far as that is worth what it costs.

    Those with the least T * Pi, what is left of them in GPU-seconds, are admitted first, as long as the GPUs
    suffice for their least sizes; running jobs are not stopped again. How many GPUs each elastic job gets,
    and of which types each job's are, is searched by categories and matching markets; a rigid job's number
    is fixed.

    The running jobs that may move join the market: those whose change is not worth what it costs stay out
    of it, and the rest is only done if all concerned end sooner for it, changes counted, than if just the
    waiting jobs were placed on the free GPUs. An elastic job that keeps a machine pays a resize, and grows
    beside what it has unless it ends sooner elsewhere; all others pay a restart.
    """

    name = "jps"
    summary = (
        "Sizes and GPU types of all jobs at once, by matching markets over sampled or guided categories."
    )
    source = (
        "Liu et al., Sampling-based multi-job placement for heterogeneous deep learning clusters, "
        "IEEE TPDS 35(6), 2024; its online use is a reconstruction"
    )
    knobs_type = JpsKnobs

    def __init__(self, knobs: JpsKnobs, state: ClusterState) -> None:
        self.knobs = knobs
        self.queue = Ranking()
        self.ends = Ranking()
        self.movers: dict[int, JobState] = {}
        self.demands = WorkerDemands(state.costs)
        self._state = state
        self._reruns = 0
        self._changed = PendingChanges(state)
        self._changed.answer()

    def submitted(self, job: JobState, now: float) -> None:
        self._enqueue(job)

    def started(self, job: JobState, now: float) -> None:
        self.queue.remove(job)
        self.ends.add(job, job.end_s())
        choosy = len(self._state.topology.gpu_types) > 1 and job.job.gpu_type is None
        if job.job.preemptible and (job.job.kind is JobKind.ELASTIC or choosy or job.speed < 1):
            self.movers[job.order] = job

    def repaced(self, job: JobState, now: float) -> None:
        self.ends.move(job, job.end_s())

    def stopped(self, job: JobState, now: float) -> None:
        self._drop(job)
        self._enqueue(job)

    def finished(self, job: JobState, now: float) -> None:
        self._drop(job)

    def withdrawn(self, job: JobState, now: float) -> None:
        self.queue.remove(job)
        self._changed.note()

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """What changed was answered; its number seeds the next draw."""
        self._reruns += bool(self._changed)
        self._changed.answer()

    def time_passed(self, state: ClusterState, now: float) -> None:
        """After a restart, all jobs are here again."""
        self._changed.time_passed()

    def snapshot(self) -> dict[str, Any]:
        return {"reruns": self._reruns, "changed": self._changed.snapshot()}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        self._reruns = learnt["reruns"]
        self._changed.restore(learnt.get("changed"))

    def decide(self, state: ClusterState, now: float) -> Plan:
        """Place the waiting jobs on free GPUs, or all that may move with them if that is better."""
        if not self.queue and not (self._changed and self.movers):
            return Plan()
        movers = self.movers.values() if self._changed else ()
        able = [job for job in movers if job.preemptible and job.ready_s < now]
        next_end_s = self.ends.next_key(now) - now
        next_end_s = next_end_s if next_end_s < inf else 0.0
        rerun = Rerun(state, self.demands, self.solve, now, next_end_s)
        trial, gain_s = rerun.best(self.queue, able)
        changes = [self._change(state.jobs[name], trial, gain_s) for name in trial.places]
        waits = []
        for job in state.to_explain(changes):
            asked, free = plural(job.job.gpus, "GPU"), state.free.usable(job.job.gang)
            work = f"less work goes first, this has {workload_s(job, now) / 3600:.1f} GPU-hours left"
            waits.append(Wait(job.job_id, state.topology.top, inf, f"{asked} asked for, {free} free; {work}"))
        return Plan((*changes, *waits))

    def solve(self, instance: Instance) -> Ints:
        """(jobs, kinds) the workers of each job, by the search that was asked for."""
        search = Search(instance, self.knobs.beta, _MARKETS[self.knobs.assign])
        if self.knobs.search == "guided":
            return search.guided(self.knobs.markets).given
        rng = np.random.default_rng([0, self._reruns])
        return search.sampled(rng, self.knobs.markets, self.knobs.alpha).given

    def _enqueue(self, job: JobState) -> None:
        self.queue.add(job, workload_s(job, job.origin_s))
        self._changed.note()

    def _drop(self, job: JobState) -> None:
        self.ends.remove(job)
        self.movers.pop(job.order, None)
        self._changed.note()

    def _change(self, job: JobState, trial: PlacementTrial, gain_s: float) -> Start | Migrate:
        """A start, move or resize, and why."""
        place, left_s = trial.places[job.job_id], trial.left_s[job.job_id]
        topology, costs = self._state.topology, self._state.costs
        level = topology.level_of(place)
        gets = " + ".join(
            plural(gpus, f"{name} GPU".strip()) for name, gpus in topology.by_type(place).items()
        )
        there = f"{gets} at slowdown {costs.cost(job.job, place).slowdown:.3g}: {span(left_s)} to its end"
        if not job.allocation:
            waited_s = trial.now - job.origin_s
            work_h = workload_s(job, trial.now) / 3600
            return Start(
                job.job_id, place, level, f"{there}; {work_h:.1f} GPU-hours left, waited {span(waited_s)}"
            )
        held = costs.cost(job.job, job.allocation).slowdown
        kind, word = (Resize, "resize") if needs_no_checkpoint(job, place) else (Migrate, "restart")
        reason = (
            f"{there}, {span(change_s(self._state, job, place))} of {word} counted, instead of "
            f"{span(held * job.remaining_s(trial.now))}; all concerned end {span(gain_s)} sooner in sum"
        )
        return kind(job.job_id, place, level, reason)
