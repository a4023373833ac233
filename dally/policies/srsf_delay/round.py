"""One round of `srsf-delay`, on trial: which jobs move closer, which start where, which are preempted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum, inf

from dally.jobs.job import Gang
from dally.plan import Decision, Start, Wait
from dally.policies.common.backfill import PromisedGpus, Release, reserve
from dally.policies.common.estimates import restart_s
from dally.policies.common.evictions import Evictions
from dally.policies.common.job_queue import DemandQueue, DemandRound
from dally.policies.common.placements import (
    Placement,
    closest,
    find_cheapest_victims,
    find_victims,
    might_fit_closer,
)
from dally.policies.common.ranking import Ranking
from dally.policies.srsf_delay.fair_share import FairShare
from dally.policies.srsf_delay.knobs import SrsfDelayKnobs
from dally.policies.srsf_delay.running import LEAST_S, RunningByRemaining
from dally.policies.srsf_delay.starvation_guard import LONG, StarvationGuard
from dally.state import ClusterState, JobState
from dally.words import are, plural, span

HOUR_S = 3600.0
LEASES_FAR = 16
"""Leases that a far placement is taken to last. They last 3 to 24 (Philly, slow links); 16 did best there."""
SLOW = 1.01
"""Up to this slowdown a placement is as good as the best."""

Priority = tuple[bool, float]
"""Whether its owner has a fair share already, and the GPU-seconds that a job needs; lower goes first."""


@dataclass(frozen=True, slots=True)
class PolicyState:
    """What the policy knows beyond the state, kept up to date by its hooks.

    Attributes:
        waiting: Waiting jobs by gang, model and owner, each sorted by the GPU-seconds that its jobs need.
        running: Running jobs by the GPU-seconds that they will still hold.
        spread_out: Running jobs that the network slows and that may move, those that lose most first.
        fair_share: What the owners of jobs hold.
        declining: Until when waiting jobs decline far placements, by name.
        guard: Whose turn it is after a long wait.
    """

    waiting: DemandQueue
    running: RunningByRemaining
    spread_out: Ranking
    fair_share: FairShare
    declining: dict[str, float]
    guard: StarvationGuard


class SrsfRound:
    """A plan in the making; the policy takes its steps in this order."""

    def __init__(self, knobs: SrsfDelayKnobs, known: PolicyState, state: ClusterState, now: float) -> None:
        self._knobs, self._known, self._state, self._free = knobs, known, state, state.free
        self._now = now
        self._evictions = Evictions(state.free)
        self._starts: list[Decision] = []
        self._started: set[int] = set()
        self._declines: dict[str, Decision] = {}
        self._declined: list[JobState] = []
        self._hopeless: dict[int, int] = {}
        # The job that has waited too long, and what is kept for it.
        self._turn: JobState | None = None
        self._reserved: PromisedGpus | None = None
        # When the patience of a job is over, or kept GPUs are there; when a lease that keeps GPUs is over.
        self._due_s = self._lease_due_s = inf

    def serve_longest_waiting(self) -> None:
        """Start the job that has waited too long, if its turn has come, or keep GPUs for it."""
        self._turn = job = self._known.guard.due(len(self._state.jobs), self._now)
        if job is None:
            return
        best, free = self._best_level(job), self._fit(job)
        # Free GPUs where it runs well, else those of others at its best level, else free ones there.
        placement = free if free is not None and self._slowdown(job, free) <= SLOW else None
        if placement is None and self._knobs.preempt:
            placement = self._make_room(job, best, goes_first=True)
        if placement is None and free is not None and free.level <= best:
            placement = free
        if placement is not None:
            self._start(job, placement, f"waited over {LONG} times as long as it needs")
            return
        releases: list[Release] = []
        for name in self._state.running:
            other = self._state.jobs[name]
            gone_s = self._now + self._left_s(other)
            if self._knobs.preempt and other.preemptible:
                gone_s = min(gone_s, max(self._now, self._lease_end_s(other)))
            releases.append((gone_s, other.allocation))
        self._reserved = reserve(self._free, job.job, best, sorted(releases))
        if self._reserved.shadow_s > self._now:
            self._due_s = min(self._due_s, self._reserved.shadow_s)

    def move_closer(self) -> None:
        """Let jobs that are spread out move closer together where that saves them more than two restarts.

        They go before those that wait, as they leave as many GPUs as they take. Only jobs past their lease
        that a move might pay are tried, those that lose most first.
        """
        tried = 0
        for job in self._known.spread_out:
            if tried == self._knobs.moves:
                return
            if job in self._evictions or self._lease_end_s(job) > self._now:
                continue
            if self._saves_s(job, slowdown=1.0) <= 0:
                continue
            if not might_fit_closer(self._free, job, self._best_level(job)):
                continue
            tried += 1
            self._free.give(job.allocation)
            placement = self._fit(job)
            saves_s = self._saves_s(job, self._slowdown(job, placement)) if placement else 0.0
            if placement is None or saves_s <= 0:
                self._free.take(job.allocation)
                continue
            level = self._state.topology.levels[placement.level]
            saves_s += self._state.costs.restart_s(job.job)
            have = f"{level} has {plural(job.job.gpus, 'GPU')} now"
            reason = f"{have}; moving saves {span(saves_s)} of {span(self._left_s(job))}"
            self._evictions.move(job, placement, reason)

    def offer(self) -> bool:
        """Offer GPUs in order of priority, free ones or those of others; whether to offer what is left again.

        It is, if jobs were stopped, or if a job that declined what was free would take what is left now.
        """
        stopped, started = len(self._evictions), len(self._started)
        self._declined.clear()
        offers = DemandRound(self._open_rankings(), self._priority)
        while (job := offers.next()) is not None:
            if job.order in self._started:
                offers.served()
                continue
            gang, best, placement = job.job.gang, self._best_level(job), self._fit(job)
            if placement is not None:
                slowdown = self._slowdown(job, placement)
                # Where the network slows a job it needs more GPU-seconds, and those that need less go first.
                if slowdown > 1 and offers.postpone(self._priority(job, slowdown)):
                    continue
                if self._declines_now(job, placement, slowdown):
                    placement = None
            # Nobody is stopped for a far placement.
            if placement is None and self._knobs.preempt and gang.gpus < self._hopeless.get(best, inf):
                placement = self._make_room(job, best)
                if placement is None and gang == Gang(gang.gpus):
                    self._hopeless[best] = gang.gpus  # later jobs need more: fewer can be stopped for them
            if placement is None:
                offers.refused()
                continue
            self._start(job, placement, f"needs {self._needs(job)}, the least of those that fit")
            offers.served()
        if len(self._evictions) > stopped:
            return True
        return len(self._started) > started and any(map(self._accepts, self._declined))

    def move_stopped(self) -> None:
        """Let stopped jobs go on at once on GPUs that stay free."""

        def elsewhere(job: JobState) -> Placement | None:
            """Where it fits: nowhere that it would decline, as its wait begins now."""
            placement = self._fit(job)
            if placement is None or not self._knobs.patience or placement.level <= self._best_level(job):
                return placement
            return placement if self._slowdown(job, placement) <= SLOW else None

        self._evictions.move_stopped(elsewhere)

    def decisions(self) -> tuple[Decision, ...]:
        """Stops first, then moves and starts, waits for closer placements, and waits to be explained."""
        decided = *self._starts, *self._declines.values()
        waits = []
        for job in (*self._state.to_explain(decided), *self._evictions.stopped()):
            reason = (
                f"asks for {plural(job.job.gpus, 'GPU')}, {are(self._free.usable(job.job.gang))} left; "
                f"needs {self._needs(job)}, and nobody who needs that much more can be stopped now"
            )
            waits.append(Wait(job.job_id, self._state.topology.top, inf, reason))
        return (*self._evictions.decisions(), *decided, *waits)

    def wakeup_s(self) -> float:
        """When the patience of a job is over, a job may stop others, or it is somebody's turn."""
        soon_s = self._now + LEAST_S
        due_s = soon_s if self._evictions else self._due_s  # what stopped jobs may do then, shows then
        if self._reserved is None:
            turn_s = self._known.guard.next_turn_s(len(self._state.jobs), self._now, self._started)
            due_s = min(due_s, max(turn_s, soon_s))
        return min(due_s, self._lease_due_s)

    def _open_rankings(self) -> list[Ranking]:
        """The waiting jobs whose first may start: it fits, or needs less than it might take from others."""
        preempt, any_over = self._knobs.preempt, self._known.fair_share.any_over()

        @cache
        def fits(gang: Gang) -> bool:
            return self._free.lowest_level(gang) is not None

        @cache
        def most(gang: Gang) -> float:
            """A job of such a gang that needs so many GPU-seconds or more can stop no other."""
            if preempt and not any_over:
                return self._known.running.most(self._now, self._knobs.weight(gang.gpus))
            return inf if preempt else 0.0

        return [
            ranking
            for (gang, _), ranking in self._known.waiting.items()
            if fits(gang) or ranking.first_key() < most(gang)
        ]

    def _declines_now(self, job: JobState, placement: Placement, slowdown: float) -> bool:
        """Whether a job waits for a closer placement than this one."""
        costs_s = self._costs_s(job, placement, slowdown)
        until_s = self._declines_until_s(job, costs_s)
        if until_s <= self._now:
            return False
        self._declined.append(job)
        self._due_s = min(self._due_s, until_s)
        if self._known.declining.get(job.job_id) != until_s:
            levels, best = self._state.topology.levels, self._best_level(job)
            reason = (
                f"one {levels[placement.level]} could hold it, {slowdown:.3g} times slower than one "
                f"{levels[best]}; taking it would cost {span(costs_s)}; it declines that for "
                f"{span(until_s - job.origin_s)}"
            )
            self._declines[job.job_id] = Wait(job.job_id, best, until_s, reason)
        return True

    def _declines_until_s(self, job: JobState, costs_s: float) -> float:
        """Until when a job declines a placement: `patience` times what taking it would cost the job."""
        return job.origin_s + self._knobs.patience * costs_s

    def _costs_s(self, job: JobState, placement: Placement, slowdown: float) -> float:
        """What taking a far placement costs a job, seconds; 0 for one that is as good as the best.

        That is what the network slows the job down by, or if less what it does until the job moves, and the
        restart.
        """
        if slowdown <= SLOW or placement.level <= self._best_level(job):
            return 0.0
        costs_s = (slowdown - 1) * job.remaining_s(self._now)
        if job.job.preemptible and self._knobs.moves:
            restarts_s = self._state.costs.restart_s(job.job)
            until_move_s = (1 - 1 / slowdown) * LEASES_FAR * self._knobs.sure_s(restarts_s)
            costs_s = min(costs_s, until_move_s + restarts_s)
        return costs_s

    def _accepts(self, job: JobState) -> bool:
        """Whether a job that declined what was free takes what others have left, such as another GPU type."""
        if job.order in self._started or (placement := self._fit(job)) is None:
            return False
        costs_s = self._costs_s(job, placement, self._slowdown(job, placement))
        return self._declines_until_s(job, costs_s) <= self._now

    def _make_room(self, job: JobState, level: int, goes_first: bool = False) -> Placement | None:
        """Stop jobs so that another fits in a domain of a level; None, and nothing done, if no use.

        While it holds a GPU, a job brings one completion in the GPU-seconds that it needs; a victim brings
        one in what it would hold, its restart left out. So the need is held against the harmonic mean of what
        the victims hold, by GPUs; GPUs that are idle bring nothing. A job that goes first need not compare.
        A gang in segments, or for all of a block, gets the blocks whose victims bring least.
        """
        priority = self._priority(job)
        candidates = self._stoppable(job, None if goes_first else priority)
        gang = job.job.gang
        level = max(level, int(gang.whole_blocks))
        clears = level > 0 and (gang.segment is not None or (gang.whole_blocks and level == 1))
        if clears:
            victims = find_cheapest_victims(
                self._free, candidates, job.job, level, lambda victim: self._total_loss(victim, priority)
            )
        else:
            victims = find_victims(self._free, candidates, job.job, level)
        # The slower the job would be where they are, the more it needs, and the less it is worth that.
        if not victims or not (goes_first or self._gives_way(victims, job, priority)):
            return None
        self._evictions.release(victims)
        placement = closest(self._free, job.job, self._best_level(job), level)
        assert placement is not None, "the victims' GPUs are enough"
        priority = self._priority(job, self._slowdown(job, placement))
        gives_way = goes_first or self._gives_way(victims, job, priority)
        if not gives_way or self._delays_turn(job, placement):
            self._evictions.take_back(victims)
            return None
        why = "goes before all" if goes_first else f"needs only {self._needs(job)}"
        if clears:
            why += f"; clearing {self._blocks(placement)}"
        for victim in victims:
            hours = self._holds(victim) / HOUR_S
            self._evictions.stop(
                victim, job, f"would hold {hours:.3g} GPU-hours more; job {job.job_id} {why}"
            )
        return placement

    def _blocks(self, placement: Placement) -> str:
        """The domains just above the machines that are cleared, and that this costs least."""
        topology = self._state.topology
        blocks = {topology.ancestors[machine][1] for machine, _ in placement.allocation}
        if len(blocks) == 1:
            return f"{topology.domains[blocks.pop()].name} for it costs least"
        return f"{plural(len(blocks), topology.levels[1])} for it costs least, segment by segment"

    def _stoppable(self, job: JobState, priority: Priority | None) -> Iterator[JobState]:
        """Which jobs to stop for one of a priority, or one before all if None; those that hold most first."""
        gpus, dear = job.job.gpus, 0.0
        if priority is not None and not self._known.fair_share.any_over():
            dear = self._knobs.margin * priority[1]
        for holds, victim in self._known.running.largest(
            self._now, lambda size: dear * min(1.0, size / gpus)
        ):
            if victim in self._evictions or not victim.preemptible:
                continue
            if priority is not None:
                part = min(1.0, victim.job.gpus / gpus)
                if part * self._loss(victim, holds, priority) > 1:
                    continue  # by itself it is worth more than the job on all its GPUs
            lease_end_s = self._lease_end_s(victim)
            if lease_end_s > self._now:
                self._lease_due_s = min(self._lease_due_s, lease_end_s)
            else:
                yield victim

    def _gives_way(self, victims: Sequence[JobState], job: JobState, priority: Priority) -> bool:
        """Whether GPUs bring more with a job of a priority than with these jobs; idle ones bring nothing."""
        gpus = max(job.job.gpus, sum(victim.job.gpus for victim in victims))
        return fsum(self._total_loss(victim, priority) for victim in victims) <= gpus

    def _total_loss(self, victim: JobState, priority: Priority) -> float:
        """What all GPUs of a running job bring over what one brings with a job of a priority."""
        return victim.job.gpus * self._loss(victim, self._holds(victim), priority)

    def _loss(self, victim: JobState, holds: float, priority: Priority) -> float:
        """What a GPU brings with a running job over what it brings with one of a priority."""
        over, needs = priority
        if self._known.fair_share.over(victim) and not over:
            return 0.0
        holds -= self._knobs.weight(victim.job.gpus) * self._state.costs.restart_s(victim.job)
        return self._knobs.margin * needs / holds if holds > 0 else inf

    def _start(self, job: JobState, placement: Placement, why: str) -> None:
        if self._reserved is not None:
            self._reserved = self._keeps(job, placement)
        self._free.take(placement.allocation)
        self._started.add(job.order)
        self._declines.pop(job.job_id, None)
        level = self._state.topology.levels[placement.level]
        waited = span(self._now - job.origin_s)
        reason = f"{level} has {plural(job.job.gpus, 'GPU')} for it; {why}; waited {waited}"
        slowdown = self._slowdown(job, placement)
        if slowdown > SLOW:
            reason += f"; runs {slowdown:.3g} times slower there than at best"
        self._starts.append(Start(job.job_id, placement.allocation, placement.level, reason))

    def _fit(self, job: JobState) -> Placement | None:
        """The closest free GPUs for a gang, if they do not delay the job for which GPUs are kept."""
        if job.job.gpus > self._free.usable(job.job.gang):
            return None
        placement = closest(self._free, job.job, self._best_level(job), self._state.topology.top)
        return None if placement is None or self._delays_turn(job, placement) else placement

    def _delays_turn(self, job: JobState, placement: Placement) -> bool:
        """Whether a job would delay the one for which GPUs are kept."""
        if self._reserved is None or job is self._turn:
            return False
        return self._keeps(job, placement) is None

    def _keeps(self, job: JobState, placement: Placement) -> PromisedGpus | None:
        """What stays of the reserved GPUs if a job takes some; None if it would keep them too long."""
        assert self._reserved is not None
        restarts_s = self._state.costs.restart_s(job.job)
        left_s = job.remaining_s(self._now) * self._slowdown(job, placement)
        if self._knobs.preempt and job.job.preemptible:
            left_s = min(left_s, self._knobs.sure_s(restarts_s))
        end_s = self._now + restarts_s + left_s
        return self._reserved.after(self._free, placement.allocation, end_s)

    def _priority(self, job: JobState, slowdown: float = 1.0) -> Priority:
        """The priority of a waiting job where it runs so slowly: smaller goes first."""
        seconds = restart_s(job, self._state.costs)
        seconds += job.remaining_s(self._now) * slowdown**self._knobs.waste
        return self._known.fair_share.over(job, job.job.gpus), self._knobs.weight(job.job.gpus) * seconds

    def _needs(self, job: JobState) -> str:
        """The service that a job needs, in words."""
        return f"{job.job.gpus * job.remaining_s(self._now) / HOUR_S:.3g} GPU-hours"

    def _holds(self, job: JobState) -> float:
        """What a running job will hold, as priorities count."""
        return self._knobs.weight(job.job.gpus) * self._left_s(job)

    def _left_s(self, job: JobState) -> float:
        """Time left of a running job, where it is."""
        return job.end_s() - self._now

    def _lease_end_s(self, job: JobState) -> float:
        """Until when a running job is sure of its GPUs."""
        return job.ready_s + self._knobs.sure_s(self._state.costs.restart_s(job.job))

    def _saves_s(self, job: JobState, slowdown: float) -> float:
        """What a move saves a running job beyond a second restart, seconds."""
        left_s = self._left_s(job)
        return left_s - left_s * job.speed * slowdown - 2 * self._state.costs.restart_s(job.job)

    def _slowdown(self, job: JobState, placement: Placement) -> float:
        return self._state.costs.cost(job.job, placement.allocation).slowdown

    def _best_level(self, job: JobState) -> int:
        return self._state.best_open_level(job.job.gang)
