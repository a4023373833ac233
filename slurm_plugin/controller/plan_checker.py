"""Checks a plan before it is carried out: nobody is stopped, and nothing is tried, in vain."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf

from dally.jobs.job import JobKind
from dally.plan import Decision, Migrate, Plan, Preempt, Start, Wait
from dally.policies.common.sizing import shrunk
from dally.words import plural, span
from slurm_plugin.client.slurm import State
from slurm_plugin.controller import failed_starts
from slurm_plugin.controller.limit_use import LimitUse
from slurm_plugin.controller.managed_job import (
    ON_GPUS,
    ManagedJob,
    PendingPhase,
    RunningPhase,
    StoppingPhase,
)
from slurm_plugin.controller.node_room import NodeResources
from slurm_plugin.controller.reconciler import Reconciler
from slurm_plugin.controller.time_limits import TimeLimits
from slurm_plugin.controller.unavailable_gpus import own_reservation

_STOPS_NOBODY = "it stops no other job before it has run once"


class PlanChecker:
    """Has the policy decide without the jobs that cannot have what it decides for them.

    A job is in doubt if Slurm has refused it since it last ran or was changed, or is likely to refuse it.
    It starts where GPUs are free; nobody is stopped for it.

    Args:
        reconciler: Managed jobs and state.
        limits: How long jobs may run.
    """

    def __init__(self, reconciler: Reconciler, limits: TimeLimits) -> None:
        self._reconciler, self._limits = reconciler, limits
        self._managed_jobs, self._state = reconciler.managed_jobs, reconciler.state

    def decide(self, now: float) -> Plan:
        """The policy's plan; it decides anew each time that jobs, or nodes for them, had to be left out."""
        withheld = False
        while True:
            plan = self._reconciler.scheduler.decide(now)
            if reserved := self._moved_onto_reserved(plan, now):
                plan = self._without_moves(plan)
                if not withheld and all(isinstance(each, Wait) for each in plan.decisions):
                    self._withhold(reserved)
                    withheld = True
                    continue
            declined = self._in_vain(plan)
            beyond: dict[str, str] = {}
            full: dict[str, dict[str, NodeResources]] = {}
            if not declined:
                plan, beyond = self._within_limits(plan)
            if not declined and not beyond:
                plan, declined, full = self._placed(plan, now)
            if not declined and not beyond and not full:
                return plan
            for job_id, why in beyond.items():
                self._reconciler.admission.start_beyond_limit(self._managed_jobs[job_id], now, why)
            for job_id, why in declined.items():
                self._reconciler.admission.start_declined(self._managed_jobs[job_id], now, why)
            for job_id, nodes in full.items():
                self._reconciler.admission.nodes_full(self._managed_jobs[job_id], nodes, now)

    def _for_suspended(self, plan: Plan) -> dict[str, str]:
        """The waiting jobs for which suspended ones had to leave, which cannot write a checkpoint."""
        found: dict[str, str] = {}
        for each in plan.decisions:
            if isinstance(each, Preempt) and self._reconciler.seen(each.job_id).state is State.SUSPENDED:
                waiting = (job for job in each.by if isinstance(self._managed_jobs[job].phase, PendingPhase))
                found |= dict.fromkeys(waiting, f"job {each.job_id} would have to leave, and is suspended")
        return found

    def _in_vain(self, plan: Plan) -> dict[str, str]:
        """If others had to leave for jobs in doubt: all jobs in doubt that do not start beside them."""
        if lost := self._for_suspended(plan):
            return lost
        doubts = self._doubts()
        if not doubts:
            return {}
        takers = {taker for each in plan.decisions if isinstance(each, Preempt) for taker in each.by}
        starts = [each for each in plan.decisions if type(each) is Start and each.job_id in doubts]
        beside = {each.job_id for each in starts if self._state.free.holds(each.allocation)} - takers
        if takers & doubts.keys() or len(beside) < len(starts):
            return {job_id: why for job_id, why in doubts.items() if job_id not in beside}
        return {}

    def _doubts(self) -> dict[str, str]:
        """The pending jobs that Slurm might not start, and why."""
        seen, conditions, doubts = self._reconciler.seen, self._reconciler.conditions, {}
        limited = {
            failed_starts.payer(seen(each.job_id))
            for each in self._managed_jobs.values()
            if each.refusals.reason.startswith(("QOS", "Assoc"))
        }
        for managed in self._managed_jobs.values():
            if not isinstance(managed.phase, PendingPhase):
                continue
            job, why = seen(managed.job_id), ""
            if managed.refusals.reason:
                why = f"Slurm did not start it ({managed.refusals.reason})"
            elif job.licenses and self._has_not_run(managed) and not conditions.knows_licenses(job):
                why = f"it asks for licences ({job.licenses}), and only Slurm knows which are free"
            elif limited and failed_starts.payer(job) in limited:
                why = "a limit of its user, account or QOS keeps another job from starting"
            if why:
                doubts[managed.job_id] = f"{why}; {_STOPS_NOBODY}"
        return doubts

    def _has_not_run(self, managed: ManagedJob) -> bool:
        return self._state.jobs[managed.job_id].first_start_s == inf

    def _within_limits(self, plan: Plan) -> tuple[Plan, dict[str, str]]:
        """The plan with no more GPUs for any job than limits leave it; which jobs may not start, and why not.

        Limits and licences are shared out in the order of the plan. A job of open size starts smaller;
        one that runs and would grow too much stays as it is.
        """
        decisions, beyond = list[Decision](), dict[str, str]()
        conditions, pending = self._reconciler.conditions, self._reconciler.pending_starts
        use = self._reconciler.admission.limit_use.copy()
        for each in plan.decisions:
            managed = self._managed_jobs.get(each.job_id)
            if not isinstance(each, Start | Migrate) or managed is None or each.job_id in pending:
                decisions.append(each)
                continue
            job, held = self._reconciler.seen(each.job_id), sum(managed.gpus.values())
            if isinstance(managed.phase, PendingPhase):
                fitting, why = self._largest_start(managed, each, use)
            elif isinstance(managed.phase, RunningPhase) and _gpus(each) > held:
                use.give_back(job, held)
                why = conditions.refusal(managed, use, _gpus(each))
                fitting = each
                if why:
                    use.promise(job, held)
                    continue
            else:
                decisions.append(each)
                continue
            if why:
                beyond[each.job_id] = why
            else:
                use.promise(job, _gpus(fitting))
                decisions.append(fitting)
        return replace(plan, decisions=tuple(decisions)), beyond

    def _largest_start(
        self, managed: ManagedJob, start: Start | Migrate, use: LimitUse
    ) -> tuple[Start | Migrate, str]:
        """A start with as many of its GPUs as limits allow; why they allow none, if so."""
        refusal = self._reconciler.conditions.refusal
        wanted, job = _gpus(start), managed.job
        why = refusal(managed, use, wanted)
        least = job.least_gpus if job.kind is JobKind.ELASTIC else wanted
        if not why or least == wanted or refusal(managed, use, least):
            return start, why
        for gpus in range(wanted - 1, least - 1, -1):
            allocation = shrunk(start.allocation, gpus)
            whole = all(count == (job.gpus_per_machine or count) for _, count in allocation)
            if whole and not refusal(managed, use, gpus):
                level = self._state.topology.level_of(allocation)
                reason = f"{start.reason}; no more than {plural(gpus, 'GPU')}, as {why}"
                return replace(start, allocation=allocation, level=level, reason=reason), ""
        return start, why

    def _placed(
        self, plan: Plan, now: float
    ) -> tuple[Plan, dict[str, str], dict[str, dict[str, NodeResources]]]:
        """The plan without starts that cannot be had; why not, or which of their nodes are full, by job.

        Policies do not count CPUs and memory: a full node is kept from the job, and the policy decides anew.
        """
        decisions: list[Decision] = []
        declined: dict[str, str] = {}
        full: dict[str, dict[str, NodeResources]] = {}
        short: dict[str, str] = {}
        places = any(isinstance(each, Start | Migrate) for each in plan.decisions)
        left = self._room_left(plan, now) if places else {}
        for each in plan.decisions:
            managed = self._managed_jobs.get(each.job_id)
            is_promised = each.job_id in self._reconciler.pending_starts
            if not isinstance(each, Start | Migrate) or managed is None or is_promised:
                decisions.append(each)
                continue
            takes = self._reconciler.conditions.takes(managed, self._state.topology.named(each.allocation))
            # A move is carried out before what it makes room for.
            if isinstance(each, Migrate) or not isinstance(managed.phase, PendingPhase):
                left.update({node: left[node] - room for node, room in takes.items()})
                decisions.append(each)
                continue
            lacking = {node: room for node, room in takes.items() if not left[node].holds(room)}
            forbidden = [] if managed.job.machines is None else sorted(takes.keys() - managed.job.machines)
            if forbidden:
                declined[each.job_id] = f"the policy chose {forbidden[0]}, which the job may not use"
            elif far := self._refused_by_blocks(each):
                declined[each.job_id] = far
            elif lacking:
                full[each.job_id] = lacking
            elif self._limits.is_too_short(managed, self._reconciler.seen(each.job_id), each.allocation, now):
                needed = span(self._limits.needed_s(managed, each.allocation))
                short[each.job_id] = (
                    f"would need {needed} on the GPUs that it could have, and its partition, "
                    "a reservation or its deadline gives less"
                )
            else:
                left.update({node: left[node] - room for node, room in takes.items()})
                decisions.append(each)
        later_half = list(short)[len(short) // 2 :]  # the others may get more GPUs without them
        declined |= {job_id: short[job_id] for job_id in later_half}
        return replace(plan, decisions=tuple(decisions)), declined, full

    def _moved_onto_reserved(self, plan: Plan, now: float) -> set[str]:
        """All nodes reserved for others, if a plan moves running jobs onto any.

        They are free to the policy while a job of such a reservation waits. What else waits knows that it may
        not use them; what runs does not.
        """
        found = set[str]()
        for each in plan.decisions:
            managed = self._managed_jobs.get(each.job_id)
            if managed is None or not isinstance(each, Migrate) or not isinstance(managed.phase, ON_GPUS):
                continue
            new = self._state.topology.named(each.allocation).keys() - managed.gpus.keys()
            job = self._reconciler.seen(each.job_id)
            reserved = self._reconciler.conditions.reserved_from(job, now, now + 1)
            if not reserved.isdisjoint(new):
                found |= reserved
        return found

    def _without_moves(self, plan: Plan) -> Plan:
        """What of a plan with such moves can be had: jobs of reservations that start on free GPUs, and waits.

        The rest may count on the moves. It is decided anew once these have started, or without the nodes.
        """
        free, seen = self._state.free, self._reconciler.seen
        kept = tuple(
            each
            for each in plan.decisions
            if isinstance(each, Wait)
            or (type(each) is Start and own_reservation(seen(each.job_id)) and free.holds(each.allocation))
        )
        return replace(plan, decisions=kept)

    def _withhold(self, nodes: Iterable[str]) -> None:
        """Keep what is free of nodes from the policy, until the next look at Slurm."""
        state = self._state
        machines = state.topology.machine_index
        for machine in sorted(machines[name] for name in nodes if name in machines):
            unavailable = state.withheld.get(machine, 0) + state.free.on(machine)
            self._reconciler.scheduler.withhold(machine, unavailable, machine in state.closed)

    def _refused_by_blocks(self, start: Start) -> str:
        """Why Slurm would not start a job so far apart under topology/block; empty if it does."""
        job, nodes = self._reconciler.seen(start.job_id), self._state.topology.named(start.allocation)
        layout = job.spreads_segments, job.consolidates_segments
        return self._reconciler.conditions.blocks.refusal(nodes, job.segment, *layout)

    def _room_left(self, plan: Plan, now: float) -> dict[str, NodeResources]:
        """What is free of each node once all that leave are gone, and all that are to start have theirs."""
        conditions, known = self._reconciler.conditions, self._managed_jobs
        left = conditions.room_left()
        stopped = {each.job_id for each in plan.decisions if isinstance(each, Preempt | Migrate)}
        for managed in known.values():
            leaves = managed.job_id in stopped or isinstance(managed.phase, StoppingPhase)
            if leaves and isinstance(managed.phase, ON_GPUS):
                for node, taken in conditions.takes(managed, managed.gpus).items():
                    left[node] += taken
        for start, _ in self._reconciler.pending_starts.early(now):
            gpus = self._state.topology.named(start.allocation)
            for node, taken in conditions.takes(known[start.job_id], gpus).items():
                left[node] -= taken
        return left


def _gpus(decision: Start | Migrate) -> int:
    return sum(count for _, count in decision.allocation)
