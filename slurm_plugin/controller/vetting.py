"""Looks at a plan before it is carried out: nobody is stopped, and nothing is tried, in vain."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from dally.jobs.job import JobKind
from dally.plan import Decision, Plan, Preempt, Start
from dally.words import span
from slurm_plugin.client.slurm import SlurmJob
from slurm_plugin.controller import refusals
from slurm_plugin.controller.limits import Limits
from slurm_plugin.controller.mirror import Mirror
from slurm_plugin.controller.tickets import Standing, Ticket

_STOPS_NOBODY = "it stops no other job before it has run once"
_MB_IN_GB = 1000


class Vetting:
    """Has the policy decide without the jobs that cannot have what it decides for them.

    A job is in doubt if Slurm has refused it since it last ran or was changed, or is likely to refuse it.
    It starts where GPUs are free, on nodes that have not refused it; nobody is stopped for it.

    Args:
        mirror: Tickets and state.
        limits: How long jobs may run.
    """

    def __init__(self, mirror: Mirror, limits: Limits) -> None:
        self._mirror, self._limits = mirror, limits
        self._tickets, self._state = mirror.tickets, mirror.state

    def decide(self, now: float) -> Plan:
        """The policy's plan; it decides anew after each look at which jobs had to be left out for a while."""
        while True:
            plan = self._mirror.scheduler.decide(now)
            declined = dict(self._in_vain(plan))
            if not declined:
                plan, declined = self._placed(plan)
            if not declined:
                return plan
            for job_id, why in declined.items():
                self._mirror.decline(self._tickets[job_id], now, why)

    def _in_vain(self, plan: Plan) -> Iterator[tuple[str, str]]:
        """If others had to leave for jobs in doubt: all jobs in doubt that do not start beside them."""
        doubts = dict(self._doubts())
        if not doubts:
            return
        takers = {taker for each in plan.decisions if isinstance(each, Preempt) for taker in each.by}
        starts = [each for each in plan.decisions if type(each) is Start and each.job_id in doubts]
        beside = {each.job_id for each in starts if self._state.free.holds(each.allocation)} - takers
        if takers & doubts.keys() or len(beside) < len(starts):
            yield from ((job_id, why) for job_id, why in doubts.items() if job_id not in beside)

    def _doubts(self) -> Iterator[tuple[str, str]]:
        """The waiting jobs that Slurm might not start, and why."""
        seen, tickets = self._mirror.seen, self._tickets.values()
        known = [refusals.whose_limit(each, seen(each.job_id)) for each in tickets if each.refused]
        limited = {payer for payer in known if payer}
        for ticket in tickets:
            if ticket.standing is Standing.WAITING:
                job = seen(ticket.job_id)
                why = self._doubt(ticket, job)
                if not why and refusals.payer(job) in limited:
                    why = "a limit of its user, account or QOS keeps another job from starting"
                if why:
                    yield ticket.job_id, f"{why}; {_STOPS_NOBODY}"

    def _doubt(self, ticket: Ticket, job: SlurmJob) -> str:
        if ticket.refused:
            return f"Slurm did not start it ({ticket.refused})"
        if self._state.jobs[ticket.job_id].first_start_s < inf:
            return ""
        if job.licenses:
            return f"it asks for licences ({job.licenses}), and only Slurm knows which are free"
        if job.memory_per_node_mb > self._mirror.most_memory_mb > 0:
            memory_gb = job.memory_per_node_mb / _MB_IN_GB
            return f"it asks for {memory_gb:,.0f} GB of memory on a node, and no node has that"
        return ""

    def _placed(self, plan: Plan) -> tuple[Plan, dict[str, str]]:
        """The plan with starts off nodes that refused them, and jobs whose starts cannot be had, with why."""
        decisions: list[Decision] = []
        declined: dict[str, str] = {}
        short: dict[str, str] = {}
        for each in plan.decisions:
            ticket = self._tickets.get(each.job_id)
            if isinstance(each, Start) and ticket is not None and ticket.standing is Standing.WAITING:
                start = self._off_refused(each, ticket, decisions)
                if start is None:
                    nodes = ", ".join(ticket.refused_nodes)
                    declined[each.job_id] = f"only nodes are free on which it did not start: {nodes}"
                elif why := self._lacks_time(start, ticket):
                    short[each.job_id] = why
                else:
                    decisions.append(start)
            else:
                decisions.append(each)
        later_half = list(short)[len(short) // 2 :]  # the others may get more GPUs without them
        declined |= {job_id: short[job_id] for job_id in later_half}
        return replace(plan, decisions=tuple(decisions)), declined

    def _lacks_time(self, start: Start, ticket: Ticket) -> str:
        if not self._limits.is_too_short(ticket, self._mirror.seen(ticket.job_id), start.allocation):
            return ""
        needed = span(self._limits.needed_s(ticket, start.allocation))
        return f"would need {needed} on the GPUs that it could have, and its partition gives less"

    def _off_refused(self, start: Start, ticket: Ticket, others: Sequence[Decision]) -> Start | None:
        """The start, on other nodes as close together if it was to be on some that refused the job."""
        state = self._state
        refused = {node for node in ticket.refused_nodes if node in state.topology.machine_index}
        if refused.isdisjoint(state.topology.named(start.allocation)):
            return start
        types = state.topology.by_type(start.allocation)
        if ticket.job.kind is JobKind.FORKED or len(types) > 1:
            return None
        gpus, gpu_type = next((count, name) for name, count in types.items())
        gang = ticket.job.gang._replace(gpus=gpus, gpu_type=gpu_type)
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
