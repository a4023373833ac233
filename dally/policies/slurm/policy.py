"""What Slurm itself does: order of arrival, topology/tree, `--switches=1@T`, backfill with promises."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf
from typing import Any

from dally.cluster.topology import Allocation
from dally.jobs.job import Gang
from dally.jobs.knowledge import Knowledge
from dally.plan import Decision, Plan, Wait
from dally.policies.common.estimates import remaining_s, restart_s, stretch_s
from dally.policies.common.in_order import InOrder, OrderKnobs, OrderRound
from dally.policies.common.knobs import knob
from dally.policies.common.placements import Placement, closest
from dally.policies.common.rounds import next_multiple
from dally.policies.slurm.node_choice import LEAF, as_topology_tree, best_fit, leaves_of
from dally.policies.slurm.planned_backfill import BackfillPlanner, JobToTest, PlannedStart
from dally.state import ClusterState, JobState
from dally.words import plural, span


@dataclass(frozen=True, slots=True)
class SlurmKnobs:
    """Settings of `slurm`; those with names of slurm.conf(5) are its SchedulerParameters."""

    switch_wait_s: float = knob(
        300.0, "T of --switches=1@T, seconds; 300 is Slurm's max_switch_wait, 0 asks for no switch", least=0
    )
    scheduler: str = knob(
        "backfill",
        "SchedulerType: whether later jobs may start if that delays no job that was promised GPUs",
        ("builtin", "backfill"),
    )
    bf_interval_s: float = knob(
        30.0, "seconds between passes of backfill, as bf_interval; 0 is a pass at every event", least=0
    )
    bf_max_job_test: int = knob(500, "jobs that a pass of backfill looks at", least=1)
    bf_job_part_count_reserve: int = knob(
        3,
        "the first so many that cannot start get promises, on each set of machines; 0: all, Slurm's own",
        least=0,
    )
    bf_resolution_s: float = knob(60.0, "promises begin and end at multiples of this, seconds", above=0)
    bf_window_s: float = knob(86_400.0, "how far ahead promises are made, seconds", above=0)
    placement: str = knob(
        "fit",
        "the leaf switch that needs the fewest nodes, or what topology/tree does without --nodes",
        ("fit", "tree"),
    )


class SlurmBackfill(InOrder):
    """Slurm's topology/tree and backfill scheduling with one fixed timer.

    A job is put under the lowest switch that can hold it, on the fewest nodes (`placement=fit`, as jobs get
    that name their nodes), or as topology/tree does with jobs that name no number of nodes
    (`placement=tree`). One that could fit under one leaf switch declines others until T after it was first
    looked at (Slurm's wait4switch_start is set when node selection first tests the job, not at submission,
    and a job is tested once it is among the first `bf_max_job_test`); then it takes any. The timer starts
    anew if the job has to wait again.

    As in Slurm the main scheduler starts jobs in order at every event and stops at the first that cannot
    start; those behind it are looked at by backfill, at the next multiple of bf_interval after an event. A
    timer that runs out is seen by such a pass, too. A pass promises whole nodes to each job that it cannot
    start (`dally.policies.slurm.planned_backfill`), for as long as its limit is, and starts others only where
    that breaks no promise to a job before them.
    """

    name = "slurm"
    summary = (
        "Slurm's own: order of arrival, best fit in the tree, --switches=1@T as the only timer, backfill."
    )
    source = "SchedMD: slurm.conf(5), sbatch(1), Topology Guide; plugin topology/tree"
    knobs_type = SlurmKnobs
    orders_by_priority = True

    def __init__(self, knobs: SlurmKnobs, state: ClusterState) -> None:
        super().__init__(OrderKnobs(), state)
        self.backfill, self.depth = knobs.scheduler == "backfill", knobs.bf_max_job_test
        self._knobs = knobs
        self._due_backfill_s = inf
        self._until_s: dict[str, float] = {}

    def key(self, job: JobState) -> tuple[float, ...]:
        """By priority, highest first."""
        return (-job.priority,)

    def reprioritized(self, job: JobState, now: float) -> None:
        if not job.allocation:
            self.queue.move(job, *self.key(job))

    def accepts(self, state: ClusterState, job: JobState, now: float) -> int:
        """One leaf switch while the job waits for it, else anything."""
        if self.best_level(job) <= LEAF and now < self._due_s(job, now):
            return LEAF
        return state.topology.top

    def place(self, job: JobState, highest: int, plan: OrderRound) -> Placement | None:
        """Free GPUs as the knob `placement` says."""
        if self._fits_best(job.job.gang):
            return closest(plan.state.free, job.job, self.best_level(job), highest)
        gang, free, topology = job.job.gang, plan.state.free, plan.state.topology
        left = [
            free.on(machine) if free.accepts(gang, machine) else 0
            for machine in range(len(topology.machines))
        ]
        allocation = self._choose(job, highest, left)
        return None if allocation is None else Placement(allocation, topology.level_of(allocation))

    def end_s(self, job: JobState) -> float:
        """When its limit is over, if that is known: it counts from the start, not from the first step."""
        if self._state.knows.knowledge is not Knowledge.LIMITS:
            return super().end_s(job)
        return job.since_s + max(0.0, job.expected_s - job.work_before_s)

    def fill(self, plan: OrderRound) -> None:
        """Start jobs that break no promise to jobs before them; promises are made once a later job might."""
        assert plan.head is not None, "backfill has a head"
        free, topology, knobs = plan.state.free, plan.state.topology, self._knobs
        planner: BackfillPlanner | None = None
        most_promises = knobs.bf_job_part_count_reserve or inf
        # As Slurm counts promises for each partition, they are counted for each set of machines.
        promises = Counter[frozenset[str] | None]()

        def test(each: JobState, first: Allocation = ()) -> PlannedStart | None:
            assert planner is not None, "it is made before anything is tested"
            partition, before = free.accepted(each.job.gang), planner.promises
            found = planner.test(self._asked(each, plan, first), promises[partition] < most_promises)
            promises[partition] += planner.promises - before
            return found

        # What each gang could have up to each level, but for promises, as long as no job starts.
        known: dict[tuple[Gang, int], Allocation | None] = {}
        unplanned, first = [plan.head], len(plan.started) + 1
        for job in islice(self.queue, first, first + self.depth):
            gang, highest = job.job.gang, self.accepts(plan.state, job, plan.now)
            could_have: Allocation | None = ()  # which, is to be tested
            if gang.gpus > free.usable(gang):
                could_have = None
            elif self._fits_best(gang):
                if (gang, highest) not in known:
                    placement = self.place(job, highest, plan)
                    known[gang, highest] = None if placement is None else placement.allocation
                could_have = known[gang, highest]
            if could_have is None:
                unplanned.append(job)
                continue
            if planner is None:
                times_s = plan.now, knobs.bf_window_s, knobs.bf_resolution_s
                planner = BackfillPlanner(free, plan.releases(), *times_s)
            for earlier in unplanned:
                if promises[free.accepted(earlier.job.gang)] < most_promises:
                    test(earlier)
            unplanned.clear()
            planned = test(job, could_have)
            if planned is None or planned.start_s > plan.now:
                continue
            known.clear()
            end_s = plan.now + stretch_s(job, plan.state.costs, planned.allocation)
            broken = f"breaks none of {plural(planner.promises, 'promise')} to job {plan.head.job_id}"
            others = " and others" if planner.promises > 1 else ""
            planner.started(planned.allocation, end_s)
            start = Placement(planned.allocation, topology.level_of(planned.allocation))
            plan.start(job, start, f"backfilled: ends in {span(end_s - plan.now)}, {broken}{others}")

    def started(self, job: JobState, now: float) -> None:
        super().started(job, now)
        self._until_s.pop(job.job_id, None)

    def withdrawn(self, job: JobState, now: float) -> None:
        super().withdrawn(job, now)
        self._until_s.pop(job.job_id, None)

    def backfills(self, now: float) -> bool:
        """Whether a pass of backfill is due."""
        return self.backfill and (not self._knobs.bf_interval_s or now >= self._due_backfill_s)

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """Timers run; what happened now is for the next pass of backfill, and after a pass the next timer."""
        for each in plan.decisions:
            if isinstance(each, Wait) and each.until_s < inf and each.job_id in state.waiting:
                self._until_s[each.job_id] = each.until_s
        if not self._knobs.bf_interval_s:
            return
        if not self.queue or (now >= self._due_backfill_s and not self._restless):
            timers_s = (until_s for until_s in self._until_s.values() if until_s > now)
            self._due_backfill_s = self._pass_at(min(timers_s, default=inf))
        else:
            due_s = self._next_due_s(now)
            self._due_backfill_s = min(due_s, next_multiple(now, self._knobs.bf_interval_s))

    def snapshot(self) -> dict[str, Any]:
        due_s = None if self._due_backfill_s == inf else self._due_backfill_s
        return {"until_s": dict(sorted(self._until_s.items())), "backfill_s": due_s}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        self._until_s = dict(learnt["until_s"])
        due_s = learnt.get("backfill_s")
        self._due_backfill_s = inf if due_s is None else due_s

    def new_waits(self, plan: OrderRound) -> list[Decision]:
        """Waits of jobs that are new, and of those looked at for the first time, whose timer starts now."""
        untimed: set[int] = set()
        jobs = {job.order: job for job in plan.state.to_explain(plan.decisions())}
        if self._times(plan.state):
            for job in islice(self.queue, len(plan.started) + self.depth + 1):
                looked_at = job.job_id in self._until_s or job.order in plan.started
                if not looked_at and self.best_level(job) <= LEAF:
                    jobs[job.order] = job
                    untimed.add(job.order)
        waits: list[Decision] = []
        for order, job in sorted(jobs.items()):
            wait = self.wait(job, plan)
            if order in untimed:
                reason = f"{plan.lacks(job, LEAF)}; takes any after {span(self._knobs.switch_wait_s)}"
                wait = Wait(job.job_id, LEAF, self._due_s(job, plan.now), reason)
            waits.append(wait)
        return waits

    def wakeup_s(self, plan: OrderRound) -> float:
        """When the first timer of a job that was looked at runs out, or backfill is due."""
        now, interval_s = plan.now, self._knobs.bf_interval_s
        timer_s = inf
        if plan.head is not None and self._times(plan.state):
            # One that begins now included: too soon at times, never too late.
            begun_s = (until_s for until_s in self._until_s.values() if until_s > now)
            timer_s = min([*begun_s, now + self._knobs.switch_wait_s])
        if not interval_s:
            return timer_s
        if plan.head is None or (now >= self._due_backfill_s and not self._restless):
            return self._pass_at(timer_s)
        return min(self._next_due_s(now), next_multiple(now, interval_s))

    def _next_due_s(self, now: float) -> float:
        """When the next pass is due that was already; inf if none was."""
        return self._due_backfill_s if self._due_backfill_s > now else inf

    @property
    def _restless(self) -> bool:
        """Whether a pass may follow another with nothing between: starts change which jobs fit a switch."""
        return self._knobs.placement == "tree"

    def _pass_at(self, timer_s: float) -> float:
        """The first pass of backfill at `timer_s` or after it; inf if that is never."""
        if timer_s == inf:
            return inf
        after_s = next_multiple(timer_s, self._knobs.bf_interval_s)
        return timer_s if after_s - timer_s == self._knobs.bf_interval_s else after_s

    def _times(self, state: ClusterState) -> bool:
        """Whether jobs wait for one switch at all."""
        return self._knobs.switch_wait_s > 0 and state.topology.top > LEAF

    def _due_s(self, job: JobState, now: float) -> float:
        """When the job stops waiting for one switch; counted from now if it was never looked at."""
        return self._until_s.get(job.job_id, now + self._knobs.switch_wait_s)

    def _asked(self, job: JobState, plan: OrderRound, first: Allocation = ()) -> JobToTest:
        highest = self.accepts(plan.state, job, plan.now)
        limit_s = remaining_s(job)
        if self._state.knows.knowledge is not Knowledge.LIMITS:
            limit_s += restart_s(job, plan.state.costs)
        choose = partial(self._choose, job, highest)
        return JobToTest(job.job.gang, limit_s, choose, highest, first or None)

    def _fits_best(self, gang: Gang) -> bool:
        """Whether a gang gets the best fit; topology/tree knows no segments, nor whole blocks."""
        return self._knobs.placement == "fit" or gang.segment is not None or bool(gang.layout)

    def _choose(self, job: JobState, highest: int, left: Sequence[int]) -> Allocation | None:
        if self._fits_best(job.job.gang):
            highest = min(highest, self._state.free.highest(job.job.gang))
            if job.job.whole_blocks:
                left = self._state.free.in_unused(left, job.job.gang)
            return best_fit(self._state.topology, left, job.job.gang, highest)
        allocation = as_topology_tree(self._state.topology, left, job.job.gang)
        if allocation is None or (highest <= LEAF and leaves_of(self._state.topology, allocation) > 1):
            return None
        return allocation
