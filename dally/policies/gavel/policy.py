"""Gavel: time shares on GPU types by a linear program, and rounds in which jobs take turns to get them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar

import numpy as np

from dally.errors import InputError
from dally.plan import Plan
from dally.policies.common.in_rounds import InRounds
from dally.policies.common.rounds import PendingChanges, RoundTargets, handed_out, movable
from dally.policies.gavel.dealing import Deal, Pools, RoundTable
from dally.policies.gavel.shares import Demand, Shares, finish_time_fairness, least_makespan, least_served
from dally.policies.gavel.turns import Turns
from dally.state import ClusterState, JobState
from dally.words import plural

SETTLED = 0.01
"""A job whose share elsewhere is at most this is content where it runs."""


@dataclass(frozen=True, slots=True)
class GavelKnobs:
    """Settings of `gavel`."""

    objective: str = field(
        default="las",
        metadata={
            "help": "max-min attained service, finish-time fairness, or the least makespan",
            "choices": ("las", "ftf", "makespan"),
        },
    )
    aware: bool = field(
        default=True, metadata={"help": "know that types differ in speed; no: share time on all types alike"}
    )
    round_s: float = field(default=360.0, metadata={"help": "seconds of a round"})
    hold_s: float = field(
        default=1920.0,
        metadata={"help": "seconds that shares stay at least though jobs come and go; 0 is a round"},
    )
    turn_restarts: float = field(
        default=10.0,
        metadata={
            "help": "a turn is half a round of work, or so many times what the job's restart costs, at least"
        },
    )
    spare: str = field(
        default="in-order",
        metadata={
            "help": "jobs without a share of a type get its GPUs type by type, as its authors do, or once "
            "all shares are met",
            "choices": ("in-order", "last"),
        },
    )

    def __post_init__(self) -> None:
        if not 0 <= self.hold_s < inf:
            raise InputError(f"knob hold_s is {self.hold_s:g}, must be 0 or more")
        if self.turn_restarts < 0:
            raise InputError(f"knob turn_restarts is {self.turn_restarts:g}, must be 0 or more")


@dataclass(frozen=True, slots=True)
class RoundShares:
    """What rounds go by: the shares of one moment and the turns had since.

    Attributes:
        turns: Shares and turns of each job.
        capacity: GPUs of each type that the shares are of.
        value: The objective that they reach.
        since_s: Since when they hold.
        stale: Jobs or machines have changed since.
    """

    turns: Turns
    capacity: tuple[int, ...]
    value: float
    since_s: float
    stale: bool


class Gavel(InRounds):
    """Shares of time maximise an objective over all jobs; each round the jobs furthest below theirs run.

    A job runs on one type at a time; a gang that no type alone can hold runs on all types mixed. Who is to
    run on the type where it runs already stays where it is; others get the closest GPUs of the type, the
    largest gangs first. A turn ends only after half a round of work, or more after a long restart, so that
    restarts cannot eat up all of it. GPUs left over go to whoever waits.
    """

    name: ClassVar[str] = "gavel"
    summary: ClassVar[str] = (
        "Time shares on each GPU type by a linear program (LAS, finish-time fairness or makespan), in rounds."
    )
    source: ClassVar[str] = (
        "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning, OSDI 2020"
    )
    knobs_type: ClassVar[type] = GavelKnobs
    plans_by: ClassVar[str] = "speeds on each type of GPU"

    def __init__(self, knobs: GavelKnobs, state: ClusterState) -> None:
        super().__init__(knobs.round_s)
        self.knobs = knobs
        self.pools = Pools(state.topology)
        self._state = state
        self._speeds: dict[str, list[float]] = {}
        self._changed = PendingChanges(state)
        self._standing = RoundShares(Turns(len(self.pools.names)), (), 0.0, -inf, stale=True)

    def submitted(self, job: JobState, now: float) -> None:
        """The shares are out of date."""
        self._state.best_level(job.job.gang)
        self._look_up(job)
        self._changed.note()

    def reported(self, job: JobState, now: float) -> None:
        """The shares are out of date if it is not as fast on some type as it was taken to be."""
        super().reported(job, now)
        before = self._speeds[job.job_id]
        self._look_up(job)
        if self._speeds[job.job_id] != before:
            self._changed.note()

    def _look_up(self, job: JobState) -> None:
        speeds = self._state.costs.type_speeds(job.job)
        self._speeds[job.job_id] = [speeds.get(gpu_type, 0.0) for gpu_type in self.pools.types]

    def finished(self, job: JobState, now: float) -> None:
        """The shares are out of date."""
        self._forget(job)

    def withdrawn(self, job: JobState, now: float) -> None:
        """The shares are out of date."""
        self._forget(job)

    def _forget(self, job: JobState) -> None:
        self._standing.turns.forget(job.job_id)
        del self._speeds[job.job_id]
        self._changed.note()

    def time_passed(self, state: ClusterState, now: float) -> None:
        """After a restart, all jobs are here again."""
        self._changed.time_passed()

    def allocate(self, state: ClusterState, now: float) -> RoundTargets:
        """New shares if they are out of date and old enough, then a turn for whoever is next."""
        with handed_out(state) as free:
            jobs = [job for name, job in state.jobs.items() if job.job.preemptible or name in state.waiting]
            capacity = [free.total(gpu_type) for gpu_type in self.pools.types]
            table = RoundTable(jobs, self._speeds, capacity)
            standing = self._at(table, now)

            def reason(place: int, pool: int) -> str:
                return self._reason(standing, table.ids[place], pool)

            deal = Deal(free, self.pools, table, standing.turns, reason)
            deal.stay(lambda job: job.ready_s > now - self._turn_s(job))
            deal.mix(due=True)
            deal.deal(self._in_order(table, now), shares_first=self.knobs.spare == "last")
            deal.mix(due=False)
            return RoundTargets(deal.targets, standing)

    def _turn_s(self, job: JobState) -> float:
        """How long a job that has started works for sure, seconds."""
        restarts_s = self.knobs.turn_restarts * self._state.costs.restart_s(job.job)
        return max(self.knobs.round_s / 2, restarts_s)

    def wait_reason(self, state: ClusterState, job: JobState, now: float, memo: RoundShares) -> str:
        """Its shares, and how many rounds it had."""
        turns = memo.turns
        account = turns.of(job.job_id)
        promised = ", ".join(
            f"{had} on {name} for a share of {share:.2f}"
            for name, share, had in zip(self.pools.names, account.shares, account.turns, strict=True)
            if share
        )
        rounds = plural(turns.rounds, "round")
        return f"of {rounds} it had {promised or 'none promised'}; others go first"

    def preempt_reason(self) -> str:
        """Its turn is over."""
        return "turn over"

    def needs_next_round(self, state: ClusterState, now: float) -> bool:
        """Whether shares are to be renewed, or a running job has a share elsewhere."""
        return (
            bool(self._changed) or self._standing.stale or any(map(self._has_more_elsewhere, movable(state)))
        )

    def _has_more_elsewhere(self, job: JobState) -> bool:
        shares = self._standing.turns.of(job.job_id).shares
        return sum(shares) - shares[self.pools.of(job.allocation)] > SETTLED

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """If this was a round, its shares hold from now on and whoever runs in it has a turn."""
        if plan.memo is not None:
            if plan.memo.turns is not self._standing.turns:
                self._changed.answer()
            self._standing = plan.memo
            running = (state.jobs[job_id] for job_id in state.running)
            self._standing.turns.held({job.job_id: self.pools.of(job.allocation) for job in running})
        super().plan_applied(plan, state, now)

    def snapshot(self) -> dict[str, Any]:
        """The shares, who had how many turns since they hold, and the rounds."""
        standing = self._standing
        return {
            **super().snapshot(),
            "changed": self._changed.snapshot(),
            "stale": standing.stale,
            "turns": standing.turns.snapshot(),
            "capacity": [*standing.capacity],
            "value": standing.value,
            "since_s": None if standing.since_s == -inf else standing.since_s,
        }

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave."""
        super().restore(learnt)
        self._changed.restore(learnt.get("changed"))
        turns = Turns(len(self.pools.names))
        turns.restore(learnt["turns"])
        since_s = -inf if learnt["since_s"] is None else learnt["since_s"]
        capacity, stale = tuple(learnt["capacity"]), learnt.get("stale", True)
        self._standing = RoundShares(turns, capacity, learnt["value"], since_s, stale)

    def _at(self, table: RoundTable, now: float) -> RoundShares:
        """What a round at `now` goes by: the standing shares, or new ones."""
        old = self._standing
        stale = bool(self._changed) or old.stale or table.capacity != old.capacity
        young = now < old.since_s + self.knobs.hold_s and any(name in old.turns for name in table.ids)
        if young or not stale:
            return RoundShares(old.turns, old.capacity, old.value, old.since_s, stale)
        shares = self._shares(table, now)
        rows = dict(zip(table.ids, shares.parts.tolist(), strict=True))
        return RoundShares(old.turns.renewed(rows), table.capacity, shares.value, now, stale=False)

    def _shares(self, table: RoundTable, now: float) -> Shares:
        """What the objective gives each job of the table; nothing to those that fit nowhere now."""
        parts = np.zeros(table.opens.shape)
        if not table.able.any():
            return Shares(0.0, parts)
        jobs = [job for job, fits in zip(table.jobs, table.able.tolist(), strict=True) if fits]
        shares = self._objective(table.demand(self.knobs.aware), jobs, now)
        parts[table.able] = shares.parts if self.knobs.aware else table.spread(shares.parts)
        return Shares(shares.value, parts)

    def _objective(self, demand: Demand, jobs: Sequence[JobState], now: float) -> Shares:
        if self.knobs.objective == "las":
            return least_served(demand)
        # Whole seconds: then what is left does not depend on where a stretch of running was cut.
        remaining_s = np.array([max(1.0, round(job.remaining_s(now))) for job in jobs])
        if self.knobs.objective == "makespan":
            return least_makespan(demand, remaining_s)
        ages_s = np.array([max(0.0, now - job.job.submit_s) for job in jobs])
        part = np.minimum(1.0, demand.capacity.sum() / (len(jobs) * demand.gangs))
        alone_s = np.array([job.expected_s for job in jobs]) / (demand.fair_speeds * part)
        return finish_time_fairness(demand, ages_s, remaining_s, alone_s)

    def _in_order(self, table: RoundTable, now: float) -> list[int]:
        """The types, fastest first by the sum over the jobs, or each first in turn if speeds do not count."""
        types = [*range(self.pools.mixed)]
        if self.knobs.aware:
            total: list[float] = table.speeds.sum(axis=0).tolist()
            return sorted(types, key=lambda pool: -total[pool])
        first = int(now // self.knobs.round_s) % len(types)
        return types[first:] + types[:first]

    def _reason(self, standing: RoundShares, job_id: str, pool: int) -> str:
        account, rounds = standing.turns.of(job_id), standing.turns.rounds
        share, name = account.shares[pool], self.pools.names[pool]
        return (
            f"{name} {share:.2f}, had {account.turns[pool]} of {rounds} rounds; "
            f"{self.knobs.objective} {standing.value:.4g}"
        )
