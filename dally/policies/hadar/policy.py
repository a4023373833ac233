"""Hadar: prices for the GPUs of each server, and jobs that run where their payoff is greatest."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dally.cluster.topology import Allocation
from dally.jobs.job import Gang
from dally.policies.base import Cache
from dally.policies.common.arrays import Flags, Floats, Ints
from dally.policies.common.estimates import restart_s
from dally.policies.common.in_rounds import InRounds
from dally.policies.common.knobs import knob
from dally.policies.common.rounds import RoundTarget, RoundTargets, movable
from dally.policies.hadar.dual_subroutine import BidQueue, decide_exactly, decide_greedily
from dally.policies.hadar.find_alloc import Bid, Bidder
from dally.policies.hadar.job_table import JobTable, JobView
from dally.policies.hadar.market import Demands, Market, PriceRange, Servers, price_range
from dally.profiles.corrected_iterations import CostGroup
from dally.state import ClusterState, JobState
from dally.words import plural, span

Amount = TypeVar("Amount", float, Floats)
"""One number, or one for each job."""

_LEAST_S = 1e-3
"""Completion times are at least this long, so that utilities stay finite."""

_MOST_REMEMBERED = 1000
"""Gangs whose machines are remembered."""


@dataclass(frozen=True, slots=True)
class HadarKnobs:
    """Settings of `hadar`."""

    utility: str = knob(
        "throughput",
        "what a completion time is worth: work done per second since arrival, or 1 / seconds",
        ("throughput", "completion"),
    )
    round_s: float = knob(360.0, "seconds between two rounds", above=0)
    exact: int = knob(12, "with so many jobs or fewer a round is decided exactly", least=0)
    horizon: float = knob(
        1.0, "the horizon of the prices, in times of the end of all jobs one by one at their slowest", above=0
    )
    floor: float = knob(
        0.0,
        "the lowest price is this part of the highest, at least; what nobody pays is then free",
        least=0,
        most=1,
    )
    mixed: bool = knob(True, "a gang may have GPUs of several types; no: only if none alone holds it")


class Hadar(InRounds):
    """Hands out GPUs by payoff: what a job's completion time is worth, less the price of its GPUs.

    A round offers the free GPUs and those of all jobs that may be preempted. A placement is worth the utility
    of ending when the job would if it ran there from now on. A gang may mix GPU types; it runs at the pace of
    the slowest. Few jobs are chosen exactly, many greedily, the greatest payoff a GPU first.
    """

    name = "hadar"
    summary = "GPUs of several types have prices; jobs take those of the greatest payoff."
    source = (
        "Sultana et al., Hadar: Heterogeneity-Aware Optimization-Based Online Scheduling for Deep Learning "
        "Clusters, IPDPS 2024, arXiv 2503.10918 (reconstructed)"
    )
    knobs_type = HadarKnobs
    preempt_reason = "others have a higher payoff for each GPU"
    islands = False

    def __init__(self, knobs: HadarKnobs, state: ClusterState) -> None:
        super().__init__(knobs.round_s)
        self.knobs = knobs
        self._costs = state.costs
        self._servers = Servers(state.topology)
        self._table = JobTable(state.topology)
        self._tiers = Cache[tuple[CostGroup, Gang, int], tuple[Flags, ...]]()

    def finished(self, job: JobState, now: float) -> None:
        self._table.drop(job)

    withdrawn = finished

    def submitted(self, job: JobState, now: float) -> None:
        if job.allocation and not job.preemptible:
            self._table.drop(job)
            return
        slowest = min(self._costs.worker_speeds(job.job).values())
        self._table.put(job, job.expected_s / slowest, restart_s(job, self._costs))

    started = stopped = repaced = revised = reprioritized = submitted

    def costs_revised(self, state: ClusterState, now: float) -> None:
        """The least speeds of jobs are others now; jobs behind those of higher priority do not bid."""
        for job_id in (*state.waiting, *state.running):
            self.submitted(state.jobs[job_id], now)

    def allocate(self, state: ClusterState, now: float) -> RoundTargets:
        """The dual subroutine: prices for this round's GPUs, and the bids that pay."""
        return RoundTargets(self.round(state, now).targets() if len(self._table) else {})

    def round(self, state: ClusterState, now: float) -> "HadarRound":
        """A round at `now`, over all jobs that bid; there must be one."""
        return HadarRound(self, state, self._table.view(now), now)

    def wait_reason(self, state: ClusterState, job: JobState, now: float, memo: Any) -> str:
        """What the job would have paid."""
        span_s = now - job.job.submit_s + restart_s(job, self._costs) + job.remaining_s(now)
        worth = self.utility(job.expected_s, max(span_s, _LEAST_S)) / job.job.gpus
        return (
            f"utility {worth:.3g} at best for each of {plural(job.job.gpus, 'GPU')}: those it "
            "could have go to "
            f"others or cost more; {state.free.usable(job.job.gang)} were free"
        )

    def utility(self, work_s: Amount, span_s: Amount) -> Amount:
        """What it is worth that so much work ends so long, more than 0 s, after its arrival."""
        return work_s / span_s if self.knobs.utility == "throughput" else 1.0 / span_s

    def tiers(self, job: JobState) -> tuple[Flags, ...]:
        """The machines that a job may have, for each speed as the bottleneck."""
        key = self._costs.group(job.job), job.job.gang, self._costs.revision
        if key not in self._tiers:
            if len(self._tiers) > _MOST_REMEMBERED:  # which machines jobs accept changes with the cluster
                self._tiers.clear()
            speeds, accepted = self._costs.worker_speeds(job.job), self._servers.accepted(job.job.machines)
            alone = () if self.knobs.mixed else self._servers.alone(speeds, accepted, job.job.gang)
            self._tiers[key] = alone or self._servers.tiers(speeds, accepted)
        return self._tiers[key]

    def market(self, state: ClusterState, prices: PriceRange) -> Market:
        """This round's GPUs: free ones, and those of jobs that may be preempted."""
        machines = range(len(self._servers.gpus))
        left: Ints = np.fromiter((state.free.on(machine) for machine in machines), np.int64, len(machines))
        usable = self._servers.gpus.copy()
        for machine, withheld in state.withheld.items():
            usable[machine] -= withheld
        held = [job.allocation for job in movable(state)]
        for allocation in held:
            for machine, gpus in state.free.taken_by(allocation):
                left[machine] += gpus
        shared = np.fromiter(map(state.free.is_shared, machines), np.bool_, len(machines))
        market = Market(self._servers, usable, left, prices, shared)
        for allocation in held:
            market.occupy(allocation)
        return market


class HadarRound:
    """One round in the making.

    Attributes:
        market: The GPUs on offer, and their prices.
    """

    def __init__(self, policy: Hadar, state: ClusterState, view: JobView, now: float) -> None:
        self._policy, self._state, self._view, self.now = policy, state, view, now
        self._costs = state.costs
        span_s = now - view.arrival_s + view.delay_s + view.remaining_s
        self._ceilings = policy.utility(view.work_s, np.maximum(span_s, _LEAST_S))
        # Equal payoffs for each GPU go by arrival.
        self._order = np.argsort(-self._ceilings / view.gpus, kind="stable")
        self.market = policy.market(state, self.prices())

    def prices(self) -> PriceRange:
        """The prices of this round; the horizon counts from now, so that all jobs end before it or at it."""
        policy, view = self._policy, self._view
        horizon_s = self.now + policy.knobs.horizon * float(view.longest_s.sum())
        demands = Demands(
            best=policy.utility(view.work_s, view.work_s),
            worst=policy.utility(view.work_s, horizon_s - view.arrival_s),
            gpus=view.gpus,
            rounds=np.maximum(1.0, view.longest_s / policy.knobs.round_s),
            types=view.types,
        )
        return price_range(demands, self._state.topology.gpus, policy.knobs.floor)

    def targets(self) -> Mapping[str, RoundTarget]:
        """What the jobs are to have that bid with success."""
        return {
            job.job_id: RoundTarget(bid.allocation, self.reason(job, bid)) for job, bid in self.accepted()
        }

    def accepted(self) -> list[tuple[JobState, Bid]]:
        """The jobs that run in this round, with what, by the payoff that each could have for a GPU."""
        if len(self._view) <= self._policy.knobs.exact:
            bids = decide_exactly(self.market, [self._bidder(place) for place in range(len(self._view))])
        else:
            bids = decide_greedily(self.market, self._queue(), self._bidder)
        if self._policy.knobs.floor and len(bids) < len(self._view):
            # GPUs that no job pays for are free then; else a job that has waited long would wait for ever.
            rest = self._queue()
            rest.leave_out(bids)
            self.market.occupied[:] = 0
            bids |= decide_greedily(self.market, rest, self._bidder, refuses=False)
        return [(self._view.jobs[self._order[place]], bid) for place, bid in sorted(bids.items())]

    def _queue(self) -> BidQueue:
        """All jobs, the greatest payoff a GPU that one could have first."""
        order, view = self._order, self._view
        return BidQueue(view.gpus[order], self._ceilings[order], view.gang[order])

    def _bidder(self, place: int) -> Bidder:
        job = self._view.jobs[self._order[place]]
        return Bidder(
            gang=job.job.gang,
            highest=self._state.free.highest(job.job.gang),
            tiers=self._policy.tiers(job),
            held=self.held(job),
            utility=partial(self.utility, job),
            ceiling=float(self._ceilings[self._order[place]]),
        )

    def held(self, job: JobState) -> Allocation:
        """What a running job bids to keep."""
        return job.allocation

    def utility(self, job: JobState, allocation: Allocation) -> float:
        """What it is worth to a job to run on an allocation from now on."""
        slowdown = self._costs.cost(job.job, allocation).slowdown
        return self.worth(job, slowdown, stays=allocation == self.held(job))

    def worth(self, job: JobState, slowdown: float, stays: bool) -> float:
        """What it is worth to a job to run at a slowdown from now on, after a restart unless it stays."""
        if stays:
            delay_s = max(0.0, job.ready_s - self.now)
        else:
            delay_s = self._costs.restart_s(job.job) if job.allocation else restart_s(job, self._costs)
        end_s = self.now + delay_s + job.remaining_s(self.now) * slowdown
        return self._policy.utility(job.expected_s, max(end_s - job.job.submit_s, _LEAST_S))

    def reason(self, job: JobState, bid: Bid) -> str:
        """Why a job gets what it gets."""
        if bid.allocation == job.allocation:
            return "stays where it runs"
        speed = 1 / self._costs.cost(job.job, bid.allocation).slowdown
        waited = "" if job.allocation else f"; waited {span(self.now - job.origin_s)}"
        return (
            f"payoff {bid.payoff:.3g} = utility {bid.utility:.3g} - price {bid.price:.2g} for "
            f"{plural(job.job.gpus, 'GPU')} at {speed:.2f} of its best speed{waited}"
        )
