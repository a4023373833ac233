"""MonkeyTree: order of arrival, and few migrations that keep every rack's uplinks to few jobs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dally.plan import Decision, Migrate, Plan, Start
from dally.policies.common.in_order import BackfillKnobs, InOrder, OrderKnobs
from dally.policies.common.knobs import knob
from dally.policies.monkeytree.rack_fragments import RackFragments
from dally.policies.monkeytree.rearrange import Rearranged, Rearrangement
from dally.state import ClusterState, JobState
from dally.words import plural, span


@dataclass(frozen=True, slots=True)
class MonkeyTreeKnobs(BackfillKnobs):
    """Settings of `monkeytree`."""

    bound: int = knob(2, "jobs that may have part of their GPUs in a rack and the rest in others", least=0)
    migrate: bool = knob(True, "whether running jobs move for that, or only new ones are placed")


class MonkeyTree(InOrder):
    """Starts jobs in order of arrival wherever GPUs are free, and keeps jobs from sharing uplinks.

    A ring sends one flow into and one out of each rack that its job spans, whatever it has there. So what
    loads a rack's uplink is its fragments: the jobs that have part of their GPUs there and part elsewhere.
    Where a rack would have more than `bound` after a start, or still has when GPUs come free, an integer
    program says where those that start go and which workers of running jobs change racks, as few as can be.
    """

    name = "monkeytree"
    summary = (
        "Order of arrival; few migrations, by an integer program, keep each rack to two cross-rack jobs."
    )
    source = (
        "Zabreyko et al., MonkeyTree: Near-Minimal Congestion for Multi-tenant Training via Migration, "
        "arXiv 2602.08296; all but its objective and bound is a reconstruction"
    )
    knobs_type = MonkeyTreeKnobs

    def __init__(self, knobs: MonkeyTreeKnobs, state: ClusterState) -> None:
        super().__init__(OrderKnobs(backfill=knobs.backfill), state)
        self.fragments = RackFragments(state.topology)
        self._bound, self._migrate = knobs.bound, knobs.migrate
        self._free_before = state.topology.gpus

    def started(self, job: JobState, now: float) -> None:
        super().started(job, now)
        self.fragments.add(job)

    def stopped(self, job: JobState, now: float) -> None:
        super().stopped(job, now)
        self.fragments.remove(job)

    def finished(self, job: JobState, now: float) -> None:
        super().finished(job, now)
        self.fragments.remove(job)

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """Remember what is free, to see when more comes free."""
        self._free_before = state.free.total()

    def snapshot(self) -> dict[str, Any]:
        return {"free_before": self._free_before}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        self._free_before = learnt.get("free_before", self._free_before)

    def decide(self, state: ClusterState, now: float) -> Plan:
        """Start jobs in order, and rearrange those whose racks would have too many fragments."""
        plan = super().decide(state, now)
        starts = {each.job_id: each.allocation for each in plan.decisions if isinstance(each, Start)}
        if not starts and state.free.total() <= self._free_before:
            return plan

        def may_move(job: JobState) -> bool:
            """Whether a running job is at work, so that moves never keep it from getting on."""
            return self._migrate and job.job.preemptible and job.ready_s < now

        found = Rearrangement(state, self.fragments, starts, self._bound, may_move).best()
        if found is None:
            return plan
        movers = [name for name in found.places if name not in starts]
        moves = [self._move(found, name, len(movers) - 1) for name in movers]
        worst = max(found.before, key=found.before.__getitem__)
        rest: list[Decision] = []
        for each in plan.decisions:
            if isinstance(each, Start) and (place := found.places.get(each.job_id)) is not None:
                there = self._names(self.fragments.shares(place))
                reason = f"{each.reason}; on {there} because else {self._crowded(found, worst)}"
                each = Start(each.job_id, place, state.topology.level_of(place), reason)
            rest.append(each)
        return replace(plan, decisions=(*moves, *rest))

    def _move(self, found: Rearranged, name: str, others: int) -> Migrate:
        """A migration beside others, and what it is good for."""
        job, place = self._state.jobs[name], found.places[name]
        held, given = self.fragments.shares(job.allocation), self.fragments.shares(place)
        left = {rack: gpus - given.get(rack, 0) for rack, gpus in held.items() if gpus > given.get(rack, 0)}
        gained = [rack for rack, gpus in given.items() if gpus > held.get(rack, 0)]
        # A rack with too many that it leaves, else the one with most, for which it only makes room.
        rack = max(found.before, key=lambda rack: (rack in left, found.before[rack]))
        besides = f", with {plural(others, 'other move')}," if others else ""
        reason = (
            f"{self._crowded(found, rack)}; moving {sum(left.values())} of job {name}'s {sum(held.values())} "
            f"GPUs from {self._names(left)} to {self._names(gained)} "
            f"({span(self._state.costs.restart_s(job.job))}){besides} brings it to {found.after[rack]}"
        )
        return Migrate(name, place, self._state.topology.level_of(place), reason)

    def _crowded(self, found: Rearranged, rack: int) -> str:
        return f"{self._names([rack])} would have {found.before[rack]} cross-rack fragments"

    def _names(self, racks: Iterable[int]) -> str:
        return ", ".join(self._state.topology.domains[rack].name for rack in racks)
