"""What Slurm itself does: order of arrival, topology best fit, `--switches=1@T`, backfill."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Any, ClassVar

from dally.errors import InputError
from dally.mechanisms.backfill import Reservation, reserve
from dally.mechanisms.rounds import next_multiple
from dally.plan import Decision, Wait
from dally.policies.in_order import InOrder, OrderKnobs, OrderRound
from dally.state import ClusterState, JobState
from dally.words import span

SWITCH = 1
"""The level of Slurm's leaf switches: the domains right above the machines."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """Settings of `slurm`."""

    switch_wait_s: float = field(
        default=300.0,
        metadata={
            "help": "T of --switches=1@T, seconds; 300 is Slurm's max_switch_wait, 0 asks for no switch"
        },
    )
    backfill: str = field(
        default="easy",
        metadata={
            "help": "whether later jobs may start if that does not delay the first one",
            "choices": ("none", "easy"),
        },
    )
    bf_interval_s: float = field(
        default=30.0,
        metadata={"help": "seconds between passes of backfill, as bf_interval; 0 is a pass at every event"},
    )
    depth: int = field(default=500, metadata={"help": "jobs backfill looks at, as bf_max_job_test"})

    def __post_init__(self) -> None:
        if self.switch_wait_s < 0:
            raise InputError(f"knob switch_wait_s is {self.switch_wait_s:g}, must be 0 or more")
        if not 0 <= self.bf_interval_s < inf:
            raise InputError(f"knob bf_interval_s is {self.bf_interval_s:g}, must be 0 or more")


class Slurm(InOrder):
    """Slurm's topology/tree and backfill scheduling with one fixed timer.

    A job is put under the lowest switch that can hold it, best fit, on the fewest leaf switches. One that
    could fit under one leaf switch declines others until T after it was first looked at (Slurm's
    wait4switch_start is set when node selection first tests the job, not at submission, and a job is tested
    once it is among the first `depth` behind the head); then it takes any. The timer starts anew if the job
    has to wait again.

    As in Slurm the main scheduler starts jobs in order at every event and stops at the first that cannot
    start; those behind it are looked at by backfill, at the next multiple of bf_interval after an event. A
    timer that runs out is seen by such a pass, too. Unlike Slurm it reserves for the first job only, where
    Slurm's backfill plans for every job that it tests; and of several leaf switches it takes the one where
    the gang needs the fewest nodes, as all policies here do.
    """

    name: ClassVar[str] = "slurm"
    summary: ClassVar[str] = (
        "Slurm's own: order of arrival, best fit in the tree, --switches=1@T as the only timer, backfill."
    )
    source: ClassVar[str] = "SchedMD: slurm.conf(5), sbatch(1), Topology Guide; plugin topology/tree"
    knobs_type: ClassVar[type] = Knobs

    def __init__(self, knobs: Knobs, state: ClusterState) -> None:
        super().__init__(OrderKnobs(backfill=knobs.backfill, depth=knobs.depth), state)
        self._switch_wait_s = knobs.switch_wait_s
        self._bf_interval_s = knobs.bf_interval_s
        self._due_backfill_s = inf
        self._until_s: dict[str, float] = {}

    def key(self, job: JobState) -> tuple[float, ...]:
        """By arrival."""
        return ()

    def accepts(self, state: ClusterState, job: JobState, now: float) -> int:
        """One leaf switch while the job waits for it, else anything."""
        if self.best_level(job) <= SWITCH and now < self._due_s(job, now):
            return SWITCH
        return state.topology.top

    def reservation(self, job: JobState, plan: OrderRound) -> Reservation:
        """The sooner of one leaf switch with enough GPUs, and anything once the timer is over."""
        free, top = plan.state.free, plan.state.topology.top
        if self.accepts(plan.state, job, plan.now) == top:
            return reserve(free, job.job, top, plan.releases())
        switch = reserve(free, job.job, SWITCH, plan.releases())
        anything = reserve(free, job.job, top, plan.releases(), self._due_s(job, plan.now))
        return switch if switch.shadow_s <= anything.shadow_s else anything

    def started(self, job: JobState, now: float) -> None:
        """Its timer is no longer needed."""
        super().started(job, now)
        self._until_s.pop(job.job_id, None)

    def withdrawn(self, job: JobState, now: float) -> None:
        """It leaves the queue, and its timer ends."""
        super().withdrawn(job, now)
        self._until_s.pop(job.job_id, None)

    def waits(self, decision: Wait) -> None:
        """Its wait is on record, and when it ends."""
        super().waits(decision)
        if decision.until_s < inf:
            self._until_s[decision.job_id] = decision.until_s

    def backfills(self, now: float) -> bool:
        """Whether a pass of backfill is due."""
        return self.backfill and (not self._bf_interval_s or now >= self._due_backfill_s)

    def settle(self, state: ClusterState, now: float) -> None:
        """What happened now is for the next pass of backfill; after a pass, the next timer is."""
        if not self._bf_interval_s:
            return
        if now >= self._due_backfill_s or not self.queue:
            timers_s = (until_s for until_s in self._until_s.values() if until_s > now)
            self._due_backfill_s = self._pass_at(min(timers_s, default=inf))
        else:
            self._due_backfill_s = min(self._due_backfill_s, next_multiple(now, self._bf_interval_s))

    def snapshot(self) -> dict[str, Any]:
        """When each job stops waiting for one switch, and when backfill is due."""
        due_s = None if self._due_backfill_s == inf else self._due_backfill_s
        return {"until_s": dict(sorted(self._until_s.items())), "backfill_s": due_s}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave."""
        self._until_s = dict(learnt["until_s"])
        due_s = learnt.get("backfill_s")
        self._due_backfill_s = inf if due_s is None else due_s

    def new_waits(self, plan: OrderRound) -> list[Decision]:
        """Waits of jobs that are new, and of those looked at for the first time, whose timer starts now."""
        untimed = {job.order: job for job in self._timed(plan) if job.job_id not in self._until_s}
        fresh = {job.order: job for job in self.queue.unsaid() if job.order not in plan.started}
        return [
            self._timed_wait(job, plan) if order in untimed else self.wait(job, plan)
            for order, job in sorted((fresh | untimed).items())
        ]

    def wakeup_s(self, plan: OrderRound) -> float:
        """When the first timer of a job that was looked at runs out, or backfill is due."""
        due_s = (self._due_s(job, plan.now) for job in self._timed(plan))
        timer_s = min((due for due in due_s if due > plan.now), default=inf)
        if not self._bf_interval_s:
            return timer_s
        if plan.head is None or plan.now >= self._due_backfill_s:
            return self._pass_at(timer_s)
        return min(self._due_backfill_s, next_multiple(plan.now, self._bf_interval_s))

    def _pass_at(self, timer_s: float) -> float:
        """The first pass of backfill at `timer_s` or after it; inf if that is never."""
        if timer_s == inf:
            return inf
        after_s = next_multiple(timer_s, self._bf_interval_s)
        return timer_s if after_s - timer_s == self._bf_interval_s else after_s

    def _timed_wait(self, job: JobState, plan: OrderRound) -> Wait:
        reason = f"{plan.lacks(job, SWITCH)}; takes any after {span(self._switch_wait_s)}"
        return Wait(job.job_id, SWITCH, self._due_s(job, plan.now), reason)

    def _timed(self, plan: OrderRound) -> Iterator[JobState]:
        """The jobs looked at that do not start and want one switch."""
        if self._switch_wait_s == 0 or plan.state.topology.top <= SWITCH:
            return
        for job in islice(self.queue, len(plan.started) + self.depth + 1):
            if job.order not in plan.started and self.best_level(job) <= SWITCH:
                yield job

    def _due_s(self, job: JobState, now: float) -> float:
        """When the job stops waiting for one switch; counted from now if it was never looked at."""
        return self._until_s.get(job.job_id, now + self._switch_wait_s)
