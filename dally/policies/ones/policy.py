"""ONES: sizes and batches of elastic jobs by a population of schedules that evolves while jobs run."""

from collections.abc import Mapping, Sequence
from itertools import islice
from math import inf
from statistics import median
from typing import Any

import numpy as np

from dally.cluster.topology import Allocation
from dally.jobs.job import Gang, JobKind
from dally.jobs.knowledge import Knowledge
from dally.plan import Decision, Migrate, Plan, Preempt, Resize, Start, Wait
from dally.policies.base import Policy
from dally.policies.common.placements import takers
from dally.policies.common.ranking import Ranking
from dally.policies.common.rounds import next_multiple
from dally.policies.common.sizing import held_gpus, needs_no_checkpoint
from dally.policies.ones.evolution import (
    IDLE,
    EvolutionStep,
    evolve,
    from_run_lengths,
    run_lengths,
)
from dally.policies.ones.job_registry import JobRegistry
from dally.policies.ones.knobs import OnesKnobs
from dally.policies.ones.placement import SchedulePlacement
from dally.profiles.goodput import Batching
from dally.state import ClusterState, JobState
from dally.words import plural

DEPTH = 64
"""Waiting jobs looked at beyond the number of free GPUs, which bounds what a step costs."""


class Evolution(Policy):
    """Evolves schedules for running and waiting jobs, and applies the best when that disturbs few.

    A candidate says how many GPUs each job has; an elastic job's batch goes with them. A step is made when
    something happened, and at the multiple of `interval_s` after a running job finished an epoch. Jobs of one
    size run with that or wait; once they run they join the search only if a waiting job lacks GPUs.
    """

    name = "ones"
    summary = "Sizes of all jobs, batches growing with them, by a population of schedules that evolves."
    source = (
        "Bian et al., Online evolutionary batch size orchestration for scheduling deep learning workloads "
        "in GPU clusters, SC 2021"
    )
    knobs_type = OnesKnobs
    islands = False
    batching = Batching.LINEAR
    plans_by = "epochs, and speeds on each number of GPUs"

    def __init__(self, knobs: OnesKnobs, state: ClusterState) -> None:
        self.knobs = knobs
        self.genes = np.full((knobs.candidates, state.topology.gpus), IDLE)
        guesses = state.knows.knowledge is not Knowledge.EXACT
        self.registry = JobRegistry(state.costs, knobs.predictor_input == "log", guesses)
        self.new, self.stopped_jobs = Ranking(), Ranking()
        self._state = state
        self._steps = 0
        self._elastic: dict[str, JobState] = {}

    def submitted(self, job: JobState, now: float) -> None:
        self.registry.add(job, self.knobs.first_size)
        self._enqueue(job)

    def started(self, job: JobState, now: float) -> None:
        self._run(job)
        self.registry.start(job, now)

    def resumed(self, job: JobState, now: float) -> None:
        self._run(job)
        self.registry.resume(job, now)

    def _run(self, job: JobState) -> None:
        self._dequeue(job)
        if job.job.kind is JobKind.ELASTIC and job.job.preemptible:
            self._elastic[job.job_id] = job

    def reported(self, job: JobState, now: float) -> None:
        super().reported(job, now)
        self.registry.renew(job, now)

    def stopped(self, job: JobState, now: float) -> None:
        self._elastic.pop(job.job_id, None)
        if not job.resizing:
            self.registry.stop(job)
        self._enqueue(job)

    def finished(self, job: JobState, now: float) -> None:
        self._elastic.pop(job.job_id, None)
        self.registry.end(job)

    def withdrawn(self, job: JobState, now: float) -> None:
        self._dequeue(job)
        self.registry.remove(job)

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """The step of this moment counts: its candidates are the next one's parents, and limits are new."""
        if plan.memo is None:
            return
        self.genes = plan.memo.generation.genes
        self._steps += 1
        running = self._elastic.values()
        scaled = self.registry.grow(running, now, self.knobs.two_epochs)
        median_s = median([job.run_s(now) for job in running] or [0.0])
        if self.knobs.shrink == "widest":
            half = self._state.topology.gpus / 2
            scaled = [job for job in sorted(scaled, key=held_gpus)[-1:] if held_gpus(job) >= half]
        self.registry.shrink(scaled, median_s, now, self.knobs.scale_down)

    def snapshot(self) -> dict[str, Any]:
        return {"steps": self._steps, "genes": run_lengths(self.genes), "register": self.registry.snapshot()}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        self._steps = learnt["steps"]
        genes = from_run_lengths(learnt["genes"])
        if genes.shape == self.genes.shape:
            self.genes = genes
        self.registry.restore(learnt["register"])

    def decide(self, state: ClusterState, now: float) -> Plan:
        """Make a step and apply its best candidate, or as much of it as concerns only free GPUs.

        The next one is at the next multiple of the interval at which it could change something: after changes
        that is the very next one, else the first after a running job finishes an epoch.
        """
        # The waiting jobs that are looked at: new ones first, in order; then those least trained.
        most = DEPTH + state.free.total()
        waiting = [*islice(self.new, most), *islice(self.stopped_jobs, most)]
        step = self._step(state, waiting, now) if waiting or self._could_grow() else None
        changes = [] if step is None else self._apply(state, step)
        waits = []
        for job in state.to_explain(changes):
            reason = (
                f"wants {plural(self.registry.sizes(job).least, 'GPU')} or more, "
                f"{state.free.usable(job.job.gang)} free; "
                f"the best of {3 * self.knobs.candidates + 1} schedules leaves it out"
            )
            waits.append(Wait(job.job_id, state.topology.top, inf, reason))
        soonest_s = inf
        if changes:
            soonest_s = now
        elif waiting or self._could_grow():
            soonest_s = self.registry.next_epoch_s(self._movable(state, waiting), now)
        wakeup_s = inf if soonest_s == inf else next_multiple(soonest_s, self.knobs.interval_s)
        return Plan((*changes, *waits), wakeup_s, step)

    def _step(self, state: ClusterState, waiting: Sequence[JobState], now: float) -> EvolutionStep | None:
        """Let the candidates evolve once; None if nothing could change."""
        running = self._movable(state, waiting)
        if self.knobs.gate == "each":
            running = [job for job in running if self.registry.finished_epoch(job, now)]
        fits = any(state.free.lowest_level(gang) is not None for gang in self._gangs(waiting))
        if not fits and not any(self.registry.finished_epoch(job, now) for job in running):
            return None
        jobs = [*running, *waiting]
        rng = np.random.default_rng([0, self._steps])
        capacity = state.free.total() + sum(map(held_gpus, running))
        generation = evolve(self.genes, self.registry.arrays(jobs, capacity, now, rng), self.knobs, rng)
        return EvolutionStep(now, running, waiting, generation)

    def _could_grow(self) -> bool:
        return any(held_gpus(job) < self.registry.sizes(job).most for job in self._elastic.values())

    def _movable(self, state: ClusterState, waiting: Sequence[JobState]) -> list[JobState]:
        """The running jobs that take part: the elastic ones; all if a waiting job lacks GPUs.

        That is if the free GPUs are too few for all that wait, or of no use to some.
        """
        lacking = sum(self.registry.sizes(job).least for job in waiting) > state.free.total()
        if lacking or any(state.free.lowest_level(gang) is None for gang in self._gangs(waiting)):
            return [job for job in map(state.jobs.__getitem__, state.running) if job.preemptible]
        return [job for job in self._elastic.values() if job.preemptible]

    def _gangs(self, waiting: Sequence[JobState]) -> set[Gang]:
        return {job.job.gang._replace(gpus=self.registry.sizes(job).least) for job in waiting}

    def _apply(self, state: ClusterState, step: EvolutionStep) -> list[Decision]:
        """The best candidate, or only its starts if it moves a job that has not finished an epoch."""
        placed = self._place(state, step, moves=True)
        moved = [job for job in step.running if job.job_id in placed.places or job.job_id in placed.stopped]
        if not all(self.registry.finished_epoch(job, step.now) for job in moved):
            placed = self._place(state, step, moves=False)
        why = "the best schedule leaves it out; it finished an epoch"
        places = placed.places.items()
        stops = [Preempt(job.job_id, takers(state.free, job, places), why) for job in placed.stopped.values()]
        return [*stops, *(self._begin(state.jobs[name], place, step) for name, place in places)]

    def _place(self, state: ClusterState, step: EvolutionStep, moves: bool) -> SchedulePlacement:
        """Real GPUs: moves, then starts; what is left over goes to waiting jobs, their fewest each."""
        jobs, running = (*step.running, *step.waiting), len(step.running)
        sizes = [*zip(jobs, step.generation.counts[0].tolist(), strict=True)]
        with state.free.trial():
            placed = SchedulePlacement(state, step.now)
            placed.change(sizes[:running] if moves else [])
            placed.start([(job, gpus) for job, gpus in sizes[running:] if gpus])
            placed.keep()
            left = [job for job in step.waiting if job.job_id not in placed.places]
            placed.start([(job, self.registry.sizes(job).least) for job in left])
        return placed

    def _begin(self, job: JobState, place: Allocation, step: EvolutionStep) -> Start | Migrate:
        """A start, resize or move, and why."""
        epochs = self.registry.training(job).epochs_done(job.done(step.now))
        score = step.generation.scores[0]
        before = f" instead of {held_gpus(job)}" if job.allocation else ""
        reason = (
            f"{plural(sum(gpus for _, gpus in place), 'GPU')}{before}, {epochs:.1f} epochs done; the best of "
            f"{3 * self.knobs.candidates + 1} schedules, {score / 3600:.1f} GPU-hours left"
        )
        level = self._state.topology.level_of(place)
        if not job.allocation:
            return Start(job.job_id, place, level, reason)
        return (Resize if needs_no_checkpoint(job, place) else Migrate)(job.job_id, place, level, reason)

    def _enqueue(self, job: JobState) -> None:
        if job.first_start_s == inf:
            self.new.add(job)
        else:
            self.stopped_jobs.add(job, job.work_before_s)

    def _dequeue(self, job: JobState) -> None:
        for queue in (self.new, self.stopped_jobs):
            if job in queue:
                queue.remove(job)
