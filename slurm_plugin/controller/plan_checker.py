"""Checks a plan before it is carried out: nobody is stopped, and nothing is tried, in vain."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from dally.jobs.job import JobKind
from dally.plan import Decision, Plan, Preempt, Start
from dally.words import span
from slurm_plugin.controller import failed_starts
from slurm_plugin.controller.managed_job import JobPhase, ManagedJob
from slurm_plugin.controller.reconciler import Reconciler
from slurm_plugin.controller.time_limits import TimeLimits

_STOPS_NOBODY = "it stops no other job before it has run once"
_MB_IN_GB = 1000


class PlanChecker:
    """Has the policy decide without the jobs that cannot have what it decides for them.

    A job is in doubt if Slurm has refused it since it last ran or was changed, or is likely to refuse it.
    It starts where GPUs are free, on nodes that have not refused it; nobody is stopped for it.

    Args:
        reconciler: Managed jobs and state.
        limits: How long jobs may run.
    """

    def __init__(self, reconciler: Reconciler, limits: TimeLimits) -> None:
        self._reconciler, self._limits = reconciler, limits
        self._managed_jobs, self._state = reconciler.managed_jobs, reconciler.state

    def decide(self, now: float) -> Plan:
        """The policy's plan; it decides anew each time that jobs had to be left out for a while."""
        while True:
            plan = self._reconciler.scheduler.decide(now)
            declined = self._in_vain(plan)
            if not declined:
                plan, declined = self._placed(plan)
            if not declined:
                return plan
            for job_id, why in declined.items():
                self._reconciler.start_declined(self._managed_jobs[job_id], now, why)

    def _in_vain(self, plan: Plan) -> dict[str, str]:
        """If others had to leave for jobs in doubt: all jobs in doubt that do not start beside them."""
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
        seen, doubts = self._reconciler.seen, {}
        limited = {
            failed_starts.payer(seen(each.job_id))
            for each in self._managed_jobs.values()
            if each.refused.startswith(("QOS", "Assoc"))
        }
        most_memory_mb = self._reconciler.most_memory_mb
        for managed in self._managed_jobs.values():
            if managed.phase is not JobPhase.PENDING:
                continue
            job, why = seen(managed.job_id), ""
            has_run = self._state.jobs[managed.job_id].first_start_s < inf
            if managed.refused:
                why = f"Slurm did not start it ({managed.refused})"
            elif job.licenses and not has_run:
                why = f"it asks for licences ({job.licenses}), and only Slurm knows which are free"
            elif job.memory_per_node_mb > most_memory_mb > 0 and not has_run:
                memory_gb = job.memory_per_node_mb / _MB_IN_GB
                why = f"it asks for {memory_gb:,.0f} GB of memory on a node, and no node has that"
            elif failed_starts.payer(job) in limited:
                why = "a limit of its user, account or QOS keeps another job from starting"
            if why:
                doubts[managed.job_id] = f"{why}; {_STOPS_NOBODY}"
        return doubts

    def _placed(self, plan: Plan) -> tuple[Plan, dict[str, str]]:
        """The plan with starts off nodes that refused them, and jobs whose starts cannot be had, with why."""
        decisions: list[Decision] = []
        declined: dict[str, str] = {}
        short: dict[str, str] = {}
        for each in plan.decisions:
            managed = self._managed_jobs.get(each.job_id)
            if not isinstance(each, Start) or managed is None or managed.phase is not JobPhase.PENDING:
                decisions.append(each)
                continue
            start = self._off_refused_nodes(each, managed, decisions)
            if start is None:
                nodes = ", ".join(managed.refused_nodes)
                declined[each.job_id] = f"only nodes are free on which it did not start: {nodes}"
            elif self._limits.is_too_short(managed, self._reconciler.seen(each.job_id), start.allocation):
                needed = span(self._limits.needed_s(managed, start.allocation))
                short[each.job_id] = (
                    f"would need {needed} on the GPUs that it could have, and its partition gives less"
                )
            else:
                decisions.append(start)
        later_half = list(short)[len(short) // 2 :]  # the others may get more GPUs without them
        declined |= {job_id: short[job_id] for job_id in later_half}
        return replace(plan, decisions=tuple(decisions)), declined

    def _off_refused_nodes(
        self, start: Start, managed: ManagedJob, others: Sequence[Decision]
    ) -> Start | None:
        """The start, on other nodes as close together if it was to be on some that refused the job."""
        state = self._state
        refused = {node for node in managed.refused_nodes if node in state.topology.machine_index}
        if refused.isdisjoint(state.topology.named(start.allocation)):
            return start
        types = state.topology.by_type(start.allocation)
        if managed.job.kind is JobKind.FORKED or len(types) > 1:
            return None
        gpus, gpu_type = next((count, name) for name, count in types.items())
        gang = managed.job.gang._replace(gpus=gpus, gpu_type=gpu_type)
        with state.free.trial() as free:
            for other in others:
                if isinstance(other, Start) and free.holds(other.allocation):
                    free.take(other.allocation)
            for machine in (state.topology.machine_index[node] for node in refused):
                free.take(((machine, free.on(machine)),))
            level = free.lowest_level(gang)
            found = None if level is None or level > start.level else free.find(gang, level)
        if found is None or level is None:
            return None
        reason = f"{start.reason}; elsewhere, as Slurm did not start it on {', '.join(sorted(refused))}"
        return replace(start, allocation=found, level=level, reason=reason)
