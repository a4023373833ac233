"""Dally as published: delay scheduling with tuned timers and network-sensitive preemption at lease ends."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from dally.cluster.topology import Allocation
from dally.jobs.job import Gang
from dally.plan import Decision, Migrate, Plan, Preempt, Start, Wait
from dally.policies.base import Policy
from dally.policies.common.knobs import knob
from dally.policies.common.leases import LeaseBook, ScatteredLeases
from dally.policies.dally.delay_queue import DelayQueue, QueueEntry, Rank
from dally.policies.dally.timers import FixedTimers, Timers, TunedTimers
from dally.state import ClusterState, JobState
from dally.words import plural, span

NEVER_ASSIGNED = -inf


@dataclass(frozen=True, slots=True)
class DallyKnobs:
    """Settings of `dally`."""

    timers: str = knob("auto", "delay timers", ("auto", "manual", "no-wait", "consolidated"))
    machine: float = knob(12.0, "manual timer of the machine level, in leases", least=0)
    rack: float = knob(24.0, "manual timer of the levels above, in leases", least=0)
    lease_s: float = knob(3600.0, "length of a lease, seconds", above=0)
    horizon: int = knob(24, "how long the auto-tuner remembers a wait, in leases", least=1)


def build_timers(knobs: DallyKnobs, levels: int) -> Timers:
    """The timers that the knobs ask for, over `levels` levels below the top."""
    if knobs.timers == "manual":
        leases = (knobs.machine, *(knobs.rack,) * (levels - 1))
        return FixedTimers(tuple(delay * knobs.lease_s for delay in leases))
    if knobs.timers == "auto":
        return TunedTimers(levels, knobs.lease_s, knobs.horizon)
    return FixedTimers((0.0 if knobs.timers == "no-wait" else inf,) * levels)


class Dally(Policy):
    """Delay scheduling by network sensitivity; see `docs/policies/dally.md` and arXiv 2401.16492.

    The delay is charged to a job that really lost its GPUs, not to one whose lease was renewed.
    """

    name = "dally"
    summary = (
        "Jobs decline far placements until a timer runs out; those the network slowed most choose first; "
        "GPUs change hands at lease ends."
    )
    source = "Sharma et al., GPU Cluster Scheduling for Network-Sensitive Deep Learning, arXiv 2401.16492"
    knobs_type = DallyKnobs

    def __init__(self, knobs: DallyKnobs, state: ClusterState) -> None:
        self.knobs = knobs
        self.timers = build_timers(knobs, state.topology.top)
        self.queue = DelayQueue(self.timers, state.best_level, state.topology.top)
        self.leases = LeaseBook(knobs.lease_s)
        self.scattered = ScatteredLeases(knobs.lease_s, state.best_level)
        self._assigned: dict[str, float] = {}

    def decide(self, state: ClusterState, now: float) -> Plan:
        """Offer what is free, and what leases give back, by rank."""
        expired = self._expired(now)
        if not (self.queue or expired):
            return Plan(wakeup_s=self.scattered.next_end_s(now))
        with state.free.trial():
            # GPUs change hands at lease ends only: their holders bid for them beside those that wait.
            for job in expired:
                state.free.give(job.allocation)
            offers = OfferRound(self, state, now, expired)
            offers.run()
        # A job started now has no lease in the book yet; one lease ahead is never too late for it.
        ends_s = (self.leases if self.queue else self.scattered).next_end_s(now)
        wakeup_s = min(self.queue.next_due_s(), offers.next_due_s, ends_s, now + self.knobs.lease_s)
        return Plan(offers.decisions(), wakeup_s)

    def submitted(self, job: JobState, now: float) -> None:
        self.queue.add(job, self._rank(job, now), now)

    def started(self, job: JobState, now: float) -> None:
        self.timers.record(job.level, job.job.gpus, now - job.origin_s, now)
        self.resumed(job, now)

    def resumed(self, job: JobState, now: float) -> None:
        self.queue.remove(job)
        self.leases.started(job)
        self.scattered.started(job)

    def stopped(self, job: JobState, now: float) -> None:
        self._assigned[job.job_id] = self.leases.began_s(job, now)
        self._release(job)
        self.queue.add(job, self._rank(job, now), now)

    def finished(self, job: JobState, now: float) -> None:
        self._release(job)
        self._assigned.pop(job.job_id, None)

    def withdrawn(self, job: JobState, now: float) -> None:
        self.queue.remove(job)
        self._assigned.pop(job.job_id, None)

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """Leases that nobody took are renewed."""
        self.leases.settle(now, wanted=bool(self.queue))
        self.scattered.settle(now, wanted=True)

    def snapshot(self) -> dict[str, Any]:
        return {
            "histories": self.timers.snapshot() if isinstance(self.timers, TunedTimers) else {},
            "assigned_s": dict(sorted(self._assigned.items())),
            "leases": self.leases.snapshot(),
            "scattered": self.scattered.snapshot(),
        }

    def restore(self, learnt: Mapping[str, Any]) -> None:
        self._assigned = dict(learnt["assigned_s"])
        self.leases.restore(learnt["leases"])
        self.scattered.restore(learnt["scattered"])
        if isinstance(self.timers, TunedTimers):
            self.timers.restore(learnt["histories"])

    def _release(self, job: JobState) -> None:
        self.leases.stopped(job)
        self.scattered.stopped(job)

    def _rank(self, job: JobState, now: float) -> Rank:
        return job.network_sensitivity(now), self._assigned.get(job.job_id, NEVER_ASSIGNED), job.order

    def _expired(self, now: float) -> list[JobState]:
        """Running jobs whose lease is over, for those that wait or for themselves."""
        expired = (self.leases if self.queue else self.scattered).expired(now)
        return [job for job in expired if job.preemptible]

    def time_passed(self, state: ClusterState, now: float) -> None:
        """Delays run out."""
        if isinstance(self.timers, TunedTimers):
            self.timers.age(now)
        with state.free.trial() as free:
            for job in self._expired(now):
                free.give(job.allocation)
            gangs = {job.job.gang for job in state.to_explain()}
            for job_id in self.queue.refresh(free, gangs, now):
                state.explain_again(job_id)


class OfferRound:
    """One round of offers on trial: which jobs get what is free, and which expired leases are renewed.

    Attributes:
        next_due_s: When the next delay of the jobs that it stops runs out; they are not in the queue yet.
    """

    def __init__(self, policy: Dally, state: ClusterState, now: float, expired: list[JobState]) -> None:
        self._policy, self._state, self._free, self._now = policy, state, state.free, now
        # Who has an expired lease bids for its own GPUs, by when the lease began; the best comes last.
        self._holders: list[tuple[Rank, JobState]] = []
        for job in expired:
            rank = job.network_sensitivity(now), policy.leases.began_s(job, now), job.order
            self._holders.append((rank, job))
        self._holders.sort(reverse=True)
        # For each gang and level that jobs accept, how many of the jobs have been served.
        self._served = [(size, [0] * (size.top + 1)) for size in policy.queue.classes.values()]
        self._takers: dict[int, list[str]] = {}
        self._stops: list[Decision] = []
        self._starts: list[Decision] = []
        self.next_due_s = inf

    def run(self) -> None:
        """Serve jobs by rank, best first, until none accepts what is left."""
        while True:
            best = self._best_waiting()
            # Whom the network slowed most goes first, be it to keep its GPUs or to get some.
            if self._holders and (best is None or self._holders[-1][0] < best[0].rank):
                self._renew(self._holders.pop()[1])
            elif best is not None:
                self._start(*best)
            else:
                return

    def decisions(self) -> tuple[Decision, ...]:
        """Stops first, so that what starts finds its GPUs free; then waits to be explained."""
        orders: dict[Gang, list[int]] = {}
        for job in self._state.to_explain(self._starts):
            orders.setdefault(job.job.gang, []).append(job.order)
        waits: list[Decision] = []
        for gang, size in self._policy.queue.classes.items():
            for order in sorted(orders.get(gang, ())):
                entry = size.entries[order]
                delays_s = size.delays_s[entry.tier :]
                waits.append(self._wait(entry.job, entry.tier, entry.job.origin_s, delays_s))
        return (*self._stops, *self._starts, *waits)

    def _best_waiting(self) -> tuple[QueueEntry, int, list[int]] | None:
        """The best waiting job that accepts what is free, the lowest level that holds it, what was served."""
        best: Rank | None = None
        for size, served in self._served:
            level = self._free.lowest_level(size.gang, size.base)
            if level is None:
                continue
            for tier in range(level, size.top + 1):
                ranked = size.by_rank[tier]
                if served[tier] < len(ranked):
                    rank, order = ranked[served[tier]]
                    if best is None or rank < best:
                        best, found = rank, (size.entries[order], level, served)
        return None if best is None else found

    def _start(self, entry: QueueEntry, level: int, served: list[int]) -> None:
        served[entry.tier] += 1
        job = entry.job
        allocation = self._place(job, level)
        have = f"{self._state.topology.levels[level]} has {plural(job.job.gpus, 'free GPU')}"
        reason = f"{have}; waited {span(self._now - job.origin_s)}"
        if level > self._state.best_level(job.job.gang):
            reason += f", timer for {self._state.topology.levels[level - 1]} is over"
        self._starts.append(Start(job.job_id, allocation, level, f"{reason}; score {entry.rank[0]:.3f}"))

    def _renew(self, job: JobState) -> None:
        """A job whose lease ended keeps its GPUs, moves closer together, or stops."""
        request, levels = job.job, self._state.topology.levels
        best = self._state.best_level(request.gang)
        level = self._free.lowest_level(request.gang, best)
        # The highest level that it takes as soon as a new wait begins.
        delays_s = self._policy.timers.delays_s(request.gpus, self._now)[best:]
        at_once = max((each + 1 for each, delay_s in enumerate(delays_s, best) if delay_s <= 0), default=best)
        if level is not None and level < job.level:
            have = f"{levels[level]} has {plural(request.gpus, 'free GPU')}"
            reason = f"lease over; {have}, it held a {levels[job.level]}'s"
            self._starts.append(Migrate(job.job_id, self._place(job, level), level, reason))
        elif self._free.holds(job.allocation):
            self._free.take(job.allocation)
        elif level is not None and level <= at_once:
            reason = f"lease over and GPUs given away; another {levels[level]} is free"
            self._starts.append(Migrate(job.job_id, self._place(job, level), level, reason))
        else:
            # Its GPUs are given away: it stops, and a new wait begins at its best level.
            held = self._free.taken_by(job.allocation)
            takers = tuple(dict.fromkeys(t for machine, _ in held for t in self._takers.get(machine, ())))
            score = job.network_sensitivity(self._now)
            better = ", ".join(f"job {name}" for name in takers)
            reason = f"lease over; {better} had a better claim than its score {score:.3f}"
            self._stops.append(Preempt(job.job_id, takers, reason))
            wait = self._wait(job, best, self._now, delays_s)
            if wait.until_s > self._now:
                self.next_due_s = min(self.next_due_s, wait.until_s)
            self._starts.append(wait)

    def _place(self, job: JobState, level: int) -> Allocation:
        allocation = self._free.find(job.job.gang, level)
        assert allocation is not None
        self._free.take(allocation)
        for machine, _ in self._free.taken_by(allocation):
            self._takers.setdefault(machine, []).append(job.job_id)
        return allocation

    def _wait(self, job: JobState, tier: int, origin_s: float, delays_s: tuple[float, ...]) -> Wait:
        """The wait of a job that takes `tier` or closer, with the delays of the levels from there up."""
        level = self._state.topology.levels[tier]
        delay_s = min(delays_s, default=inf)
        reason = f"no {level} has {plural(job.job.gpus, 'free GPU')}"
        if tier == self._state.topology.top:
            reason = f"{plural(job.job.gpus, 'GPU')} asked for, {self._free.usable(job.job.gang)} free"
        if delay_s < inf:
            leases = delay_s / self._policy.knobs.lease_s
            lasting = f"{leases:g} lease{'s' * (leases != 1)}"
            reason += f"; declines farther ones for {lasting}"
            if isinstance(self._policy.timers, TunedTimers):
                waits = self._policy.timers.observations(tier, job.job.gpus, self._now)
                reason += f", tuned from {plural(waits, 'wait')}"
        elif not delays_s:
            reason += "; takes any"
        return Wait(job.job_id, tier, origin_s + delay_s, reason)
