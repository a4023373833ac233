"""One round of `srsf-delay`, on trial: which jobs move closer, which start where, which are preempted."""

from collections.abc import Iterator
from math import inf

from dally.jobs.job import Gang
from dally.plan import Decision, Start, Wait
from dally.policies.common.backfill import PromisedGpus, Release, reserve
from dally.policies.common.estimates import restart_s
from dally.policies.common.placements import Placement, closest, find_victims, might_fit_closer
from dally.policies.srsf_delay.knobs import SrsfDelayKnobs
from dally.policies.srsf_delay.preemptions import PolicyState, Preemptions
from dally.policies.srsf_delay.running import LEAST_S
from dally.policies.srsf_delay.starvation_guard import LONG
from dally.policies.srsf_delay.waiting import OffersByPriority, Priority
from dally.state import ClusterState, JobState
from dally.words import plural, span

HOUR_S = 3600.0
LEASES_FAR = 16
"""Leases that a far placement is taken to last. They last 3 to 24 (Philly, slow links); 16 did best there."""
SLOW = 1.01
"""Up to this slowdown a placement is as good as the best."""


class SrsfRound:
    """A plan in the making.

    Attributes:
        started: Orders of arrival of the jobs it starts.
        due_s: When the patience of a job is over, or a job may stop others.
    """

    def __init__(self, knobs: SrsfDelayKnobs, known: PolicyState, state: ClusterState, now: float) -> None:
        self._knobs, self._known, self._state, self._free = knobs, known, state, state.free
        self._now = now
        self._preemptions = Preemptions(knobs, known, state, now)
        self._starts: list[Decision] = []
        self._declines: dict[str, Decision] = {}
        self._hopeless: dict[int, int] = {}
        self.started: set[int] = set()
        self._turn: JobState | None = None
        self._reserved: PromisedGpus | None = None
        self.due_s = inf

    def run(self, idle: int) -> None:
        """Serve the overdue job; move jobs closer if GPUs came free; then serve all jobs by priority."""
        freed = self._free.total() > idle
        self._serve_longest_waiting()
        if freed:
            self._move_closer()
        while self._offer() and self._free.total():
            pass  # offer what those that were stopped leave over, until nobody else is stopped
        self._preemptions.evictions.move_stopped(self._place_preempted)
        if self._preemptions.evictions:
            self.due_s = self._now + LEAST_S  # what stopped jobs may do then, shows then
        if self._reserved is None:
            turn_s = self._known.guard.next_turn_s(len(self._state.jobs), self._now, self.started)
            self.due_s = min(self.due_s, max(turn_s, self._now + LEAST_S))
        self.due_s = min(self.due_s, self._preemptions.due_s)

    def decisions(self) -> tuple[Decision, ...]:
        """Stops first, then moves and starts, and waits for closer placements."""
        return (*self._preemptions.evictions.decisions(), *self._starts, *self._declines.values())

    def waiting(self) -> Iterator[JobState]:
        """Jobs whose wait is to be explained after this plan: new ones, and those that it stops."""
        yield from self._state.to_explain((*self._starts, *self._declines.values()))
        yield from self._preemptions.evictions.stopped()

    def _serve_longest_waiting(self) -> None:
        """Start the job that has waited too long, if its turn has come, or keep GPUs for it."""
        self._turn = job = self._known.guard.due(len(self._state.jobs), self._now)
        if job is None:
            return
        best = self._best_level(job)
        placement = self._place_overdue(job, best)
        if placement is not None:
            self._start(job, placement, f"waited over {LONG} times as long as it needs")
            return
        self._reserved = reserve(self._free, job.job, best, self._releases())
        if self._reserved.shadow_s > self._now:
            self.due_s = min(self.due_s, self._reserved.shadow_s)

    def _releases(self) -> list[Release]:
        """When running jobs will have ended or may be stopped, soonest first."""
        running = (job for _, job in self._known.running.largest(self._now))
        return sorted((self._gone_s(job), job.allocation) for job in running)

    def _gone_s(self, job: JobState) -> float:
        end_s = self._now + self._left_s(job)
        if self._knobs.preempt and job.job.preemptible:
            return min(end_s, max(self._now, self._preemptions.lease_end_s(job)))
        return end_s

    def _keeps(self, job: JobState, placement: Placement) -> PromisedGpus | None:
        """What stays of the reserved GPUs if a job takes some; None if it would keep them too long."""
        assert self._reserved is not None
        left_s = job.remaining_s(self._now) * self._slowdown(job, placement)
        if self._knobs.preempt and job.job.preemptible:
            left_s = min(left_s, self._sure_s(job))
        end_s = self._now + self._state.costs.restart_s(job.job) + left_s
        return self._reserved.after(self._state.topology, placement.allocation, end_s)

    def _delays_turn(self, job: JobState, placement: Placement) -> bool:
        """Whether a job would delay the one for which GPUs are kept."""
        if self._reserved is None or job is self._turn:
            return False
        return self._keeps(job, placement) is None

    def _offer(self) -> bool:
        """Offer GPUs in order of priority, free ones or those of others; whether any job is preempted."""
        stopped = len(self._preemptions.evictions)
        offers = OffersByPriority(self._known.waiting.candidates(self._free, self._most), self._priority)
        while (job := offers.next()) is not None:
            placement = None if job.order in self.started else self._fit(job)
            if placement is not None:
                slowdown = self._slowdown(job, placement)
                if slowdown > 1 and offers.postpone(self._priority(job, slowdown)):
                    continue
                if self._declined(job, placement, slowdown):
                    placement = None
            if job.order not in self.started:
                placement = placement or self._preempt_for(job)
                if placement is None:
                    offers.refused()
                    continue
                self._start(job, placement, f"needs {self._needs(job)}, the least of those who fit")
            offers.served()
        return len(self._preemptions.evictions) > stopped

    def _most(self, gang: Gang) -> float:
        """A job that asks for so many GPUs and needs that many GPU-seconds or more can stop no other."""
        if not self._knobs.preempt:
            return 0.0
        if self._known.fair_share.any_over():
            return inf
        return self._known.running.most(self._now, self._knobs.weight(gang.gpus))

    def _priority(self, job: JobState, slowdown: float = 1.0) -> Priority:
        """The priority of a waiting job where it runs so slowly: smaller goes first."""
        seconds = restart_s(job, self._state.costs)
        seconds += job.remaining_s(self._now) * slowdown**self._knobs.waste
        return self._known.fair_share.over(job, job.job.gpus), self._knobs.weight(job.job.gpus) * seconds

    def _needs(self, job: JobState) -> str:
        """The service that a job needs, in words."""
        return f"{job.job.gpus * job.remaining_s(self._now) / HOUR_S:.3g} GPU-hours"

    def _sure_s(self, job: JobState) -> float:
        """How long a start of a job works for sure."""
        return self._knobs.sure_s(self._state.costs.restart_s(job.job))

    def _slowdown(self, job: JobState, placement: Placement) -> float:
        return self._state.costs.cost(job.job, placement.allocation).slowdown

    def _fit(self, job: JobState) -> Placement | None:
        """The closest free GPUs for a gang."""
        if job.job.gpus > self._free.total(job.job.gpu_type):
            return None
        placement = closest(self._free, job.job, self._best_level(job), self._state.topology.top)
        return None if placement is None or self._delays_turn(job, placement) else placement

    def _best_level(self, job: JobState) -> int:
        return self._state.best_level(job.job.gang)

    def _declined(self, job: JobState, placement: Placement, slowdown: float) -> bool:
        """Whether a job waits for a closer placement: `patience` times what taking this one would cost it.

        That is what the network slows the job down by, or if less what it does until the job moves, and the
        restart.
        """
        if slowdown <= SLOW or placement.level <= self._best_level(job):
            return False
        costs_s = (slowdown - 1) * job.remaining_s(self._now)
        if job.job.preemptible and self._knobs.moves:
            until_move_s = (1 - 1 / slowdown) * LEASES_FAR * self._sure_s(job)
            costs_s = min(costs_s, until_move_s + self._state.costs.restart_s(job.job))
        until_s = job.origin_s + self._knobs.patience * costs_s
        if until_s <= self._now:
            return False
        self.due_s = min(self.due_s, until_s)
        if self._known.declining.get(job.job_id) != until_s:
            self._declines[job.job_id] = self._decline(job, placement.level, slowdown, costs_s, until_s)
        return True

    def _place_preempted(self, job: JobState) -> Placement | None:
        """Where a stopped job goes on at once: nowhere that it would decline, as its wait begins now."""
        placement = self._fit(job)
        if placement is None or not self._knobs.patience or placement.level <= self._best_level(job):
            return placement
        return placement if self._slowdown(job, placement) <= SLOW else None

    def _decline(self, job: JobState, level: int, slowdown: float, costs_s: float, until_s: float) -> Wait:
        levels, best = self._state.topology.levels, self._best_level(job)
        reason = (
            f"one {levels[level]} could hold it, {slowdown:.3g} times slower than one {levels[best]}; "
            f"taking it would cost {span(costs_s)}; it declines that for {span(until_s - job.origin_s)}"
        )
        return Wait(job.job_id, best, until_s, reason)

    def _start(self, job: JobState, placement: Placement, why: str) -> None:
        if self._reserved is not None:
            self._reserved = self._keeps(job, placement)
        self._free.take(placement.allocation)
        self.started.add(job.order)
        self._declines.pop(job.job_id, None)
        level = self._state.topology.levels[placement.level]
        waited = span(self._now - job.origin_s)
        reason = f"{level} has {plural(job.job.gpus, 'GPU')} for it; {why}; waited {waited}"
        slowdown = self._slowdown(job, placement)
        if slowdown > SLOW:
            reason += f"; runs {slowdown:.3g} times slower there than at best"
        self._starts.append(Start(job.job_id, placement.allocation, placement.level, reason))

    def _place_overdue(self, job: JobState, highest: int) -> Placement | None:
        """GPUs for a job that goes before all: free ones where it runs well, else those of others, else any.

        Args:
            job: Which job.
            highest: The highest level that it takes.
        """
        free = self._fit(job)
        if free is not None and self._slowdown(job, free) <= SLOW:
            return free
        if self._knobs.preempt:
            best = self._best_level(job)
            for level in range(best, best + 1 if free else highest + 1):
                if placement := self._try_preempt(job, level, first=True):
                    return placement
        return free if free is not None and free.level <= highest else None

    def _preempt_for(self, job: JobState) -> Placement | None:
        """GPUs of running jobs that hold more than a job needs; None if too few. Never far apart."""
        gang, level = job.job.gang, self._best_level(job)
        if not self._knobs.preempt or gang.gpus >= self._hopeless.get(level, inf):
            return None
        placement = self._try_preempt(job, level)
        if placement is None and gang.gpu_type is None and gang.per_machine is None:
            self._hopeless[level] = gang.gpus  # later jobs need more: fewer can be stopped for them
        return placement

    def _try_preempt(self, job: JobState, level: int, first: bool = False) -> Placement | None:
        """Stop jobs so that another fits in a domain of a level; None, and nothing done, if no use."""
        candidates = self._preemptions.candidates(job, None if first else self._priority(job))
        victims = find_victims(self._free, candidates, job.job, level)
        if not victims:
            return None
        self._preemptions.evictions.release(victims)
        placement = closest(self._free, job.job, self._best_level(job), level)
        assert placement is not None, "the victims' GPUs are enough"
        priority = self._priority(job, self._slowdown(job, placement))
        gives_way = first or self._preemptions.are_worth_less(victims, job, priority)
        if not gives_way or self._delays_turn(job, placement):
            self._preemptions.evictions.take_back(victims)
            return None
        for victim in victims:
            hours = self._preemptions.holds(victim) / HOUR_S
            first_of_all = "goes before all" if first else f"needs only {self._needs(job)}"
            reason = f"would hold {hours:.3g} GPU-hours more; {job.job_id} {first_of_all}"
            self._preemptions.evictions.stop(victim, job, reason)
        return placement

    def _move_closer(self) -> None:
        """Let jobs that are spread out move closer together where that saves them more than two restarts.

        They go before those that wait, as they leave as many GPUs as they take. Only jobs past their lease
        that a move might pay are tried, those that lose most first.
        """
        tried = 0
        for job in self._known.spread_out:
            if tried == self._knobs.moves:
                return
            if job in self._preemptions.evictions or self._preemptions.lease_end_s(job) > self._now:
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
            self._preemptions.evictions.move(job, placement, reason)

    def _saves_s(self, job: JobState, slowdown: float) -> float:
        """What a move saves a running job beyond a second restart, seconds."""
        left_s = self._left_s(job)
        return left_s - left_s * job.speed * slowdown - 2 * self._state.costs.restart_s(job.job)

    def _left_s(self, job: JobState) -> float:
        """Time left of a running job, where it is."""
        return job.end_s() - self._now
