"""Spares a running job that a plan would stop only so that jobs of much lower priority get its GPUs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import inf

from dally.cluster.topology import Allocation
from dally.jobs.priority import may_take_gpus
from dally.plan import Decision, Migrate, Plan, Preempt, Start, Wait
from dally.state import ClusterState


def spare_higher_priority(plan: Plan, state: ClusterState, ratio: float) -> Plan:
    """The plan without such stops, and without the starts and moves that need the GPUs of jobs spared.

    Policies see no waiting job of much lower priority than a running one that they may stop. But a running
    job of low priority may move, or grow, onto the GPUs of another. What is left of a plan always fits: where
    GPUs are short, the start or move of lowest priority goes, and its job stays where it is.

    Args:
        plan: As the policy decided it; `Preempt.by` names those that get the GPUs.
        state: As the policy saw it.
        ratio: See `ClusterState.priority_ratio`.

    Returns:
        The plan; each stop that was for somebody is for jobs of enough priority, and names only these.
    """

    def entitled(stop: Preempt) -> tuple[str, ...]:
        victim = state.jobs[stop.job_id].priority
        return tuple(name for name in stop.by if may_take_gpus(state.jobs[name].priority, victim, ratio))

    stops = [each for each in plan.decisions if isinstance(each, Preempt) and each.by]
    if all(entitled(stop) == stop.by for stop in stops):
        return plan
    decisions: list[Decision] = list(plan.decisions)
    dropped: set[str] = set()
    spared = ""
    while True:
        in_vain = next(
            (
                each
                for each in decisions
                if isinstance(each, Preempt) and each.by and dropped >= {*entitled(each)}
            ),
            None,
        )
        if in_vain is not None:
            decisions.remove(in_vain)
            spared = in_vain.job_id
        elif (excess := _excess(decisions, state)) is not None:
            decisions.remove(excess)
            dropped.add(excess.job_id)
            if isinstance(excess, Start):
                reason = f"{spared} keeps its GPUs: those that would get them have a much lower priority"
                decisions.append(Wait(excess.job_id, state.topology.top, inf, reason))
        else:
            break
    kept = (
        replace(each, by=tuple(name for name in entitled(each) if name not in dropped))
        if isinstance(each, Preempt)
        else each
        for each in decisions
    )
    return replace(plan, decisions=tuple(kept))


def _excess(decisions: Sequence[Decision], state: ClusterState) -> Start | Migrate | None:
    """A start or move for which GPUs are missing, that of the lowest priority; None if all fit."""
    gained: Counter[int] = Counter()

    def count(allocation: Allocation, sign: int) -> None:
        for machine, gpus in state.free.taken_by(allocation):
            gained[machine] += sign * gpus

    placed = [each for each in decisions if isinstance(each, Start | Migrate)]
    for each in decisions:
        if isinstance(each, Preempt | Migrate):
            count(state.jobs[each.job_id].allocation, 1)
    for each in placed:
        count(each.allocation, -1)
    short = next((machine for machine, gpus in gained.items() if state.free.on(machine) + gpus < 0), None)
    taken_by = state.free.taken_by
    there = [each for each in placed if any(machine == short for machine, _ in taken_by(each.allocation))]
    return min(there, key=lambda each: state.jobs[each.job_id].priority, default=None)
