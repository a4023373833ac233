"""Gavel: time shares on GPU types by a linear program, and rounds in which jobs take turns to get them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from dally.plan import Plan
from dally.policies.common.arrays import Floats
from dally.policies.common.in_rounds import InRounds
from dally.policies.common.knobs import knob
from dally.policies.common.rounds import PendingChanges, RoundTargets, handed_out, movable
from dally.policies.gavel.round_credits import RoundCredits
from dally.policies.gavel.round_placement import Pools, RoundPlacement, RoundTable
from dally.policies.gavel.shares import Demand, Shares, finish_time_fairness, least_makespan, least_served
from dally.state import ClusterState, JobState
from dally.words import plural

SETTLED = 0.01
"""A job whose share elsewhere is at most this is content where it runs."""


@dataclass(frozen=True, slots=True)
class GavelKnobs:
    """Settings of `gavel`."""

    objective: str = knob(
        "las",
        "max-min attained service, finish-time fairness, or the least makespan",
        ("las", "ftf", "makespan"),
    )
    aware: bool = knob(True, "know that types differ in speed; no: share time on all types alike")
    round_s: float = knob(360.0, "seconds of a round", above=0)
    hold_s: float = knob(
        1920.0, "seconds that shares stay at least though jobs come and go; 0 is a round", least=0
    )
    turn_restarts: float = knob(
        10.0,
        "a turn is half a round of work, or so many times what the job's restart costs, at least",
        least=0,
    )
    spare: str = knob(
        "in-order",
        "jobs without a share of a type get its GPUs type by type, as its authors do, or once "
        "all shares are met",
        ("in-order", "last"),
    )


@dataclass(frozen=True, slots=True)
class RoundShares:
    """What rounds go by: the shares of one moment and the rounds had since.

    Attributes:
        credits: Shares and rounds of each job.
        capacity: GPUs of each type that the shares are of.
        value: The objective that they reach.
        since_s: Since when they hold.
        stale: Jobs or machines have changed since.
    """

    credits: RoundCredits
    capacity: tuple[int, ...]
    value: float
    since_s: float
    stale: bool


class Gavel(InRounds):
    """Shares of time maximise an objective over all jobs; each round the jobs furthest below theirs run.

    A job runs on one type at a time; a gang that no type alone can hold runs on all types mixed. A job that
    is to run on the type where it runs already stays where it is; others get the closest GPUs of the type,
    the largest gangs first. A turn ends only after half a round of work, or more after a long restart, so
    that restarts cannot eat up all of it. GPUs left over go to waiting jobs.
    """

    name = "gavel"
    summary = (
        "Time shares on each GPU type by a linear program (LAS, finish-time fairness or makespan), in rounds."
    )
    source = "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning, OSDI 2020"
    knobs_type = GavelKnobs
    preempt_reason = "turn over"
    plans_by = "speeds on each type of GPU"

    def __init__(self, knobs: GavelKnobs, state: ClusterState) -> None:
        super().__init__(knobs.round_s)
        self.knobs = knobs
        self.pools = Pools(state.topology)
        self._state = state
        self._speeds: dict[str, list[float]] = {}
        self._changed = PendingChanges(state)
        self._standing = RoundShares(RoundCredits(len(self.pools.names)), (), 0.0, -inf, stale=True)

    def submitted(self, job: JobState, now: float) -> None:
        self._look_up(job)
        self._changed.note()

    def reported(self, job: JobState, now: float) -> None:
        super().reported(job, now)
        before = self._speeds[job.job_id]
        self._look_up(job)
        if self._speeds[job.job_id] != before:
            self._changed.note()

    def costs_revised(self, state: ClusterState, now: float) -> None:
        """All look at their speeds again."""
        before = dict(self._speeds)
        for job_id in before:
            self._look_up(state.jobs[job_id])
        if self._speeds != before:
            self._changed.note()

    def _look_up(self, job: JobState) -> None:
        speeds = self._state.costs.type_speeds(job.job)
        self._speeds[job.job_id] = [speeds.get(gpu_type, 0.0) for gpu_type in self.pools.types]

    def finished(self, job: JobState, now: float) -> None:
        self._standing.credits.forget(job.job_id)
        del self._speeds[job.job_id]
        self._changed.note()

    withdrawn = finished

    def time_passed(self, state: ClusterState, now: float) -> None:
        """After a restart, all jobs are here again."""
        self._changed.time_passed()

    def allocate(self, state: ClusterState, now: float) -> RoundTargets:
        """New shares if they are out of date and old enough, then a turn for the jobs that are next."""
        with handed_out(state) as free:
            jobs = [
                job
                for name, job in state.jobs.items()
                if (job.preemptible if job.allocation else name in state.waiting)
            ]
            table = RoundTable(jobs, self._speeds, free)
            shares = self._at(table, now)

            def reason(place: int, pool: int) -> str:
                credit = shares.credits.of(table.ids[place])
                had = f"had {credit.turns[pool]} of {shares.credits.rounds} rounds"
                value = f"{self.knobs.objective} {shares.value:.4g}"
                return f"{self.pools.names[pool]} {credit.shares[pool]:.2f}, {had}; {value}"

            def sure(job: JobState) -> bool:
                """Whether a turn is not over: half a round of work, or more after a long restart."""
                restarts_s = self.knobs.turn_restarts * self._state.costs.restart_s(job.job)
                return job.ready_s > now - max(self.knobs.round_s / 2, restarts_s)

            placement = RoundPlacement(free, self.pools, table, shares.credits, reason)
            placement.keep(sure)
            placement.place_mixed(due=True)
            # The types, fastest first by the sum over the jobs, or each first in turn if speeds do not count.
            types = [*range(self.pools.mixed)]
            if self.knobs.aware:
                total: list[float] = table.speeds.sum(axis=0).tolist()
                types.sort(key=lambda pool: -total[pool])
            else:
                first = int(now // self.knobs.round_s) % len(types)
                types = types[first:] + types[:first]
            placement.place_by_type(types, shares_first=self.knobs.spare == "last")
            placement.place_mixed(due=False)
            return RoundTargets(placement.targets, shares)

    def wait_reason(self, state: ClusterState, job: JobState, now: float, memo: RoundShares) -> str:
        credits = memo.credits
        credit = credits.of(job.job_id)
        promised = ", ".join(
            f"{had} on {name} for a share of {share:.2f}"
            for name, share, had in zip(self.pools.names, credit.shares, credit.turns, strict=True)
            if share
        )
        rounds = plural(credits.rounds, "round")
        return f"of {rounds} it had {promised or 'none promised'}; others go first"

    def needs_next_round(self, state: ClusterState, now: float) -> bool:
        """Whether shares are to be renewed, or a running job has a share elsewhere."""
        if self._changed or self._standing.stale:
            return True
        for job in movable(state):
            shares = self._standing.credits.of(job.job_id).shares
            if sum(shares) - shares[self.pools.of(job.allocation)] > SETTLED:
                return True
        return False

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """If this was a round, its shares hold from now on and whoever runs in it has a turn."""
        if plan.memo is not None:
            if plan.memo.credits is not self._standing.credits:
                self._changed.answer()
            self._standing = plan.memo
            running = (state.jobs[job_id] for job_id in state.running)
            self._standing.credits.add_round({job.job_id: self.pools.of(job.allocation) for job in running})
        super().plan_applied(plan, state, now)

    def snapshot(self) -> dict[str, Any]:
        standing = self._standing
        return {
            **super().snapshot(),
            "changed": self._changed.snapshot(),
            "stale": standing.stale,
            "turns": standing.credits.snapshot(),
            "capacity": [*standing.capacity],
            "value": standing.value,
            "since_s": None if standing.since_s == -inf else standing.since_s,
        }

    def restore(self, learnt: Mapping[str, Any]) -> None:
        super().restore(learnt)
        self._changed.restore(learnt.get("changed"))
        credits = RoundCredits(len(self.pools.names))
        credits.restore(learnt["turns"])
        since_s = -inf if learnt["since_s"] is None else learnt["since_s"]
        capacity, stale = tuple(learnt["capacity"]), learnt.get("stale", True)
        self._standing = RoundShares(credits, capacity, learnt["value"], since_s, stale)

    def _at(self, table: RoundTable, now: float) -> RoundShares:
        """What a round at `now` goes by: the present shares, or new ones."""
        old = self._standing
        stale = bool(self._changed) or old.stale or table.capacity != old.capacity
        young = now < old.since_s + self.knobs.hold_s and any(name in old.credits for name in table.ids)
        if young or not stale:
            return RoundShares(old.credits, old.capacity, old.value, old.since_s, stale)
        value = 0.0
        parts: Floats = np.zeros(table.opens.shape)  # nothing for jobs that fit nowhere now
        if table.able.any():
            jobs = [job for job, fits in zip(table.jobs, table.able.tolist(), strict=True) if fits]
            shares = self._objective(table.demand(self.knobs.aware), jobs, now)
            value = shares.value
            parts[table.able] = shares.parts if self.knobs.aware else table.spread(shares.parts)
        rows = dict(zip(table.ids, parts.tolist(), strict=True))
        return RoundShares(old.credits.renewed(rows), table.capacity, value, now, stale=False)

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
