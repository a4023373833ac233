"""Pollux: sizes, batches and places of elastic jobs by a genetic search for the greatest mean speed-up."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import Any

import numpy as np

from dally.jobs.job import JobKind
from dally.plan import Decision, Migrate, Plan, Resize
from dally.policies.common.in_rounds import InRounds
from dally.policies.common.ranking import Ranking
from dally.policies.common.rounds import PendingChanges, RoundTarget, RoundTargets, handed_out, movable
from dally.policies.common.sizing import held_gpus, needs_no_checkpoint
from dally.policies.pollux.allocation_problem import (
    AllocationProblem,
    ProblemBuilder,
    ServiceHad,
)
from dally.policies.pollux.allocation_search import AllocationSearch, States
from dally.policies.pollux.knobs import PolluxKnobs
from dally.profiles.goodput import Batching
from dally.state import ClusterState, JobState
from dally.words import plural

POPULATION, GENERATIONS = 100, 100
"""Allocation matrices of a search, and how often they breed at most; both as published."""
DEPTH = 200
"""Waiting jobs that take part in a search."""
_KEPT = 8
"""Individuals kept from one search to the next."""
_MOST_DOUBLINGS = 64
"""Of the pause between searches: beyond any knob, and far from what a float cannot hold."""


@dataclass(frozen=True, slots=True)
class FoundSizes:
    """What a search found.

    Attributes:
        acts: Whether that differs from what they have.
        population: The best individuals, as plain data.
        withheld: GPUs withheld then, by machine.
    """

    acts: bool
    population: dict[str, Any]
    withheld: Mapping[int, int]


class Pollux(InRounds):
    """Each round a genetic search over all allocations maximises the mean speed-up of the jobs.

    A job's speed-up is its speed, with the batch that makes most progress, over that on an equal share of the
    cluster. A job whose GPUs change counts for less, the younger it is and the more often they did before.
    After searches that change nothing the next one waits twice as long, until a job comes, ends or stops.
    """

    name = "pollux"
    summary = (
        "GPUs, batches and places of all jobs by a genetic search for the greatest mean speed-up, in rounds."
    )
    source = (
        "Qiao et al., Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning, OSDI 2021"
    )
    knobs_type = PolluxKnobs
    preempt_reason = "the mean speed-up is greater without it"
    batching = Batching.GOODPUT
    plans_by = "gradient noise, the largest batch, and speeds on each number of GPUs"
    islands = False

    def __init__(self, knobs: PolluxKnobs, state: ClusterState) -> None:
        super().__init__(knobs.round_s)
        self.knobs = knobs
        self._builder = ProblemBuilder(state, knobs)
        self._queue = Ranking()
        self._movers: dict[str, None] = {}
        self._had: dict[str, ServiceHad] = {}
        self._population: dict[str, Any] = {"jobs": [], "states": []}
        self._withheld: Mapping[int, int] = {}
        self._searches = self._quiet = 0
        self._again_s = -inf
        self._changed = PendingChanges(state)

    def submitted(self, job: JobState, now: float) -> None:
        self._enqueue(job, now)

    def started(self, job: JobState, now: float) -> None:
        had = self._had.get(job.job_id, ServiceHad())
        self._run(job, replace(had, starts=had.starts + 1))

    def resumed(self, job: JobState, now: float) -> None:
        had = self._had.get(job.job_id, ServiceHad())
        self._run(job, replace(had, starts=max(1, had.starts)))

    def stopped(self, job: JobState, now: float) -> None:
        self._movers.pop(job.job_id, None)
        self._enqueue(job, now)

    def finished(self, job: JobState, now: float) -> None:
        self._forget(job)

    def withdrawn(self, job: JobState, now: float) -> None:
        self._queue.remove(job)
        self._forget(job)

    def _enqueue(self, job: JobState, now: float) -> None:
        self._queue.add(job, job.attained_s(now))
        self._changed.note()

    def _run(self, job: JobState, had: ServiceHad) -> None:
        self._queue.remove(job)
        self._had[job.job_id] = replace(had, most=max(had.most, held_gpus(job)))
        if job.job.preemptible and (job.job.kind is JobKind.ELASTIC or job.speed < 1):
            self._movers[job.job_id] = None
        self._changed.note()

    def _forget(self, job: JobState) -> None:
        self._had.pop(job.job_id, None)
        self._movers.pop(job.job_id, None)
        self._changed.note()

    def decide(self, state: ClusterState, now: float) -> Plan:
        """A round's moves, without a checkpoint for elastic jobs that keep GPUs."""
        plan = super().decide(state, now)
        decisions: list[Decision] = []
        for each in plan.decisions:
            if isinstance(each, Migrate) and needs_no_checkpoint(state.jobs[each.job_id], each.allocation):
                each = Resize(each.job_id, each.allocation, each.level, each.reason)
            decisions.append(each)
        return replace(plan, decisions=tuple(decisions))

    def time_passed(self, state: ClusterState, now: float) -> None:
        """After a restart, all jobs are here again."""
        self._changed.time_passed()

    def allocate(self, state: ClusterState, now: float) -> RoundTargets:
        """What a search finds, if one is due; nothing, so that all keep what they have, if not."""
        due = bool(self._changed) or now >= self._again_s or dict(state.withheld) != self._withheld
        if state.running and not due:
            return RoundTargets()
        return self._search(state, now)

    def wait_reason(self, state: ClusterState, job: JobState, now: float, memo: FoundSizes | None) -> str:
        """How many GPUs it needs and how many are free."""
        return (
            f"{plural(job.job.least_gpus, 'GPU')} needed, {state.free.usable(job.job.gang)} free; "
            f"the mean speed-up of {plural(len(state.jobs), 'job')} is greater if others run"
        )

    def needs_next_round(self, state: ClusterState, now: float) -> bool:
        """Whether a running job could grow, shrink or move."""
        return bool(self._movers)

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """The search, if there was one, counts, and its population is kept."""
        found: FoundSizes | None = plan.memo
        if found is not None:
            self._searches += 1
            self._population, self._withheld = found.population, found.withheld
            self._quiet = 0 if found.acts else self._quiet + 1
            rounds = 2.0 ** min(self._quiet, _MOST_DOUBLINGS)
            self._again_s = now + self.knobs.round_s * min(rounds, self.knobs.rest)
            self._changed.answer(found.acts)
        super().plan_applied(plan, state, now)

    def snapshot(self) -> dict[str, Any]:
        return {
            **super().snapshot(),
            "population": self._population,
            "searches": self._searches,
            "quiet": self._quiet,
            "again_s": None if self._again_s == -inf else self._again_s,
            "changed": self._changed.snapshot(),
            "withheld": [list(part) for part in sorted(self._withheld.items())],
            "pasts": {job_id: [had.most, had.starts] for job_id, had in self._had.items()},
        }

    def restore(self, learnt: Mapping[str, Any]) -> None:
        super().restore(learnt)
        self._population, self._searches = learnt["population"], learnt["searches"]
        self._quiet = learnt["quiet"]
        self._changed.restore(learnt["changed"] if isinstance(learnt["changed"], list) else None)
        self._again_s = -inf if learnt["again_s"] is None else learnt["again_s"]
        self._withheld = dict(learnt["withheld"])
        self._had = {job_id: ServiceHad(most, starts) for job_id, (most, starts) in learnt["pasts"].items()}

    def _search(self, state: ClusterState, now: float) -> RoundTargets:
        """A search over the running jobs that may move and the first of those that wait."""
        with handed_out(state):
            jobs = [*movable(state), *islice(self._queue, DEPTH)]
            jobs.sort(key=lambda job: (job.attained_s(now), job.order))
            if not jobs or not state.free.total():
                return RoundTargets(memo=FoundSizes(False, self._population, dict(state.withheld)))
            problem = self._builder.build(state, jobs, self._had, now)
        allocations = problem.allocations
        seeds = [allocations.held, allocations.filled(allocations.held), *problem.states(self._population)]
        rng = np.random.default_rng([0, self._searches])
        search = AllocationSearch(allocations, rng, POPULATION)
        found = search.run(np.array(seeds), GENERATIONS, self.knobs.patience, _KEPT)
        best = allocations.filled(found.states[0])
        acts = bool((best != allocations.held).any())
        memo = FoundSizes(acts, problem.plain(found.states), dict(state.withheld))
        return RoundTargets(self._targets(problem, best), memo)

    def _targets(self, problem: AllocationProblem, best: States) -> dict[str, RoundTarget]:
        """The rows of a state, with the reason why."""
        allocations = problem.allocations
        before, after = allocations.values(allocations.owners(np.array([allocations.held, best])))
        means = allocations.fitness(np.array([before, after]))
        mean = f"mean of {plural(len(problem.jobs), 'job')} {means[1]:.3g}, {means[0]:.3g} before"
        found: dict[str, RoundTarget] = {}
        for row in np.flatnonzero(best.any(axis=1)).tolist():
            job, place = problem.jobs[row], problem.allocation(best[row])
            fair = f"a fair share of {problem.fair[row]}"
            gain = f"speed-up {after[row]:.3g} over {fair}, {before[row]:.3g} before"
            gpus = f"{plural(sum(gpus for _, gpus in place), 'GPU')} on {plural(len(place), 'machine')}"
            found[job.job_id] = RoundTarget(place, f"{gpus}: {gain}; {mean}")
        return found
