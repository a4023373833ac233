"""Carries out a plan on Slurm: the intent goes into the journal first, then the order to Slurm."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

from dally.jobs.job import JobKind
from dally.plan import Migrate, Plan, Preempt, Resize, Start, Wait
from dally.scheduling.scheduler import wait_facts
from dally.words import span
from slurm_plugin.client.slurm import Fence, HandBack, Order, Place, Requeue, Signal, Slurm, SlurmNode, State
from slurm_plugin.config import Config
from slurm_plugin.controller.claims import Claim
from slurm_plugin.controller.companions import Change
from slurm_plugin.controller.intake import has_exact_nodes
from slurm_plugin.controller.ledger import Log
from slurm_plugin.controller.limits import Limits
from slurm_plugin.controller.mirror import Mirror
from slurm_plugin.controller.tickets import Standing, Ticket, checkpointed
from slurm_plugin.controller.withheld import FENCE

_CAN_STOP = (State.RUNNING, State.SUSPENDED)
_HAVE_DUES = tuple(standing for standing in Standing if standing is not Standing.LEFT)
_MOST_REFUSALS = 10_000
_HALF_DONE_S = 60.0
"""For so long a companion that has left may be followed by another, as was decided once."""

_MOST_MENDS = 200
"""In one go, hand-backs last: a huge array of one user keeps nobody waiting; the next view tells again."""


class Actuator:
    """Turns decisions into orders.

    Whatever happens between two of its steps, the tickets on disk say what was meant, and the next view of
    Slurm what has become of it: a job is then either where it was, or where it was meant to be.

    Args:
        slurm: Who takes the orders.
        mirror: Tickets and state.
        config: Settings.
        limits: How long jobs may run.
        log: Records events.
        commit: Puts tickets and events on disk; nothing is ordered before.
        at: Told of each step, by name; for tests that stop here.
    """

    def __init__(
        self,
        slurm: Slurm,
        mirror: Mirror,
        config: Config,
        limits: Limits,
        log: Log,
        commit: Callable[[float], None],
        at: Callable[[str], None],
    ) -> None:
        self._slurm, self._mirror, self._config = slurm, mirror, config
        self._log, self._commit, self._at = log, commit, at
        self._tickets = mirror.tickets
        self._limits = limits
        self._refusals: dict[tuple[str, str], str] = {}
        self._changes: dict[str, Change] = {}
        self._half_done: dict[str, tuple[Resize, float]] = {}

    def mend(self, now: float) -> None:
        """Order what the last view of Slurm calls for: jobs held again or handed back."""
        orders, self._mirror.orders = self._mirror.orders, []
        orders.sort(key=lambda order: isinstance(order, HandBack))
        self._order("mend", orders[:_MOST_MENDS], now)

    def stop(self, plan: Plan, now: float) -> bool:
        """Ask the jobs that must give way for their checkpoints; True if any is put back at once."""
        self._changes = dict(self._by_companions(plan, now))
        for decision in plan.decisions:
            if isinstance(decision, Preempt | Migrate) and decision.job_id not in self._changes:
                ticket = self._tickets.get(decision.job_id)
                if ticket and ticket.standing is Standing.RUNNING and not self._is_waited_for(decision):
                    self._ask(ticket, decision, now)
        self._let_leave(now)
        return self.put_back(now)

    def _by_companions(self, plan: Plan, now: float) -> Iterator[tuple[str, Change]]:
        """The resizes that companions can carry out while their jobs train, and those that are half done."""
        companions, topology = self._mirror.companions, self._mirror.state.topology
        decided = {each.job_id for each in plan.decisions if not isinstance(each, Wait)}
        half_done = {job_id: each for job_id, each in self._half_done.items() if job_id not in decided}
        self._half_done = {}
        new = {each.job_id: (each, now) for each in plan.decisions if isinstance(each, Resize)}
        for job_id, (decision, since_s) in {**half_done, **new}.items():
            ticket = self._tickets.get(job_id)
            if ticket is None or ticket.standing is not Standing.RUNNING or now > since_s + _HALF_DONE_S:
                continue
            change = companions.change(ticket, topology.named(decision.allocation), now)
            if change is not None:
                companions.why[job_id] = decision.reason
                yield job_id, change
            if change.leave if change else job_id in half_done:  # or none has left long enough ago
                self._half_done[job_id] = decision, since_s

    def _let_leave(self, now: float) -> None:
        leaving = [
            (job_id, companion) for job_id, change in self._changes.items() for companion in change.leave
        ]
        for job_id, companion in leaving:
            self._log(now, "companion_leaves", job=job_id, companion=companion)
        self._order("signal", [self._mirror.companions.leave(companion) for _, companion in leaving], now)

    def _let_join(self, now: float) -> bool:
        """Release the companions whose GPUs are free; True if there is any to look after."""
        free, machines = self._mirror.state.free, self._mirror.state.topology.machine_index
        orders = []
        for job_id, change in self._changes.items():
            place = tuple(sorted((machines[node], gpus) for node, gpus in change.gpus))
            if change.joins and free.holds(place):
                ticket, job = self._tickets[job_id], self._mirror.seen(job_id)
                orders.append(self._mirror.companions.join(change, ticket, job, now))
                self._log(now, "companion_joins", job=job_id, companion=change.joins, gpus=dict(change.gpus))
        self._changes = {}
        self._order("place", orders, now)
        return bool(orders)

    def _is_waited_for(self, decision: Preempt | Migrate) -> bool:
        """Whether its GPUs are for jobs that have others' GPUs coming to them already."""
        return isinstance(decision, Preempt) and bool(decision.by) and self._mirror.claims.cover(decision.by)

    def _ask(self, ticket: Ticket, decision: Preempt | Migrate, now: float) -> None:
        ticket.standing, ticket.since_s, ticket.until_s = Standing.STOPPING, now, now
        ticket.why, ticket.moving = decision.reason, isinstance(decision, Migrate)
        ticket.resizing = isinstance(decision, Resize)
        ticket.by = decision.by if isinstance(decision, Preempt) else ()
        ticket.signalled = not ticket.request.signal
        self._mirror.changed.add(ticket.job_id)
        self._mirror.decided.append(ticket.job_id)
        said = {"signal": ticket.request.signal, "grace_s": ticket.request.grace_s, "reason": decision.reason}
        self._log(now, "stop", job=ticket.job_id, **said)

    def save(self, now: float) -> None:
        """Ask running jobs for their checkpoints whose time limits come before they are done."""
        for ticket in list(self._tickets.values()):
            if ticket.standing is Standing.RUNNING and now >= ticket.until_s:
                limit_s = self._mirror.seen(ticket.job_id).time_limit_s or 0.0
                reason = f"its time limit of {span(limit_s)} ends before it is done; it goes on later"
                self._ask(ticket, Preempt(ticket.job_id, (), reason), now)

    def put_back(self, now: float) -> bool:
        """Requeue the stopping jobs whose grace is over, or that have written their checkpoint and ended.

        Their checkpoint signals come first. One that may have been lost is sent again: a second one costs a
        job less than none. True if any is put back.
        """
        self._signal(now)
        due: list[tuple[Ticket, Requeue]] = []
        for ticket in self._tickets.values():
            if ticket.standing is Standing.STOPPING:
                job = self._mirror.seen(ticket.job_id)
                if checkpointed(ticket, job):
                    due.append((ticket, Requeue(ticket.job_id, ended=True)))
                elif now >= ticket.until_s and job.state in _CAN_STOP:
                    due.append((ticket, Requeue(ticket.job_id)))
        said = self._order("requeue", [order for _, order in due], now)
        for (ticket, _), refusal in zip(due, said, strict=True):
            if refusal is not None:
                self._mirror.keep(ticket, now, refusal)
        return bool(due)

    def _signal(self, now: float) -> None:
        """Ask for the checkpoints; a job's grace begins when it was asked."""
        unasked = [
            ticket
            for ticket in self._tickets.values()
            if ticket.standing is Standing.STOPPING
            and not ticket.signalled
            and self._mirror.seen(ticket.job_id).state in _CAN_STOP
        ]
        self._order("signal", [Signal(ticket.job_id, ticket.request.signal) for ticket in unasked], now)
        for ticket in unasked:
            ticket.signalled, ticket.until_s = True, now + ticket.request.grace_s
            self._mirror.changed.add(ticket.job_id)

    def start(self, plan: Plan, nodes: Iterable[SlurmNode], now: float) -> bool:
        """Release jobs onto their nodes; True if there is anything to look after."""
        placed = [
            self._promise(decision, now)
            for decision in plan.decisions
            if isinstance(decision, Start | Migrate) and self._can_start(decision, plan, now)
        ]
        joins = self._let_join(now)
        return self._release(placed, nodes, now) or joins

    def start_claimed(self, nodes: Iterable[SlurmNode], now: float) -> bool:
        """Release the jobs for which others have left by now; True if there is anything to look after."""
        free = self._mirror.state.free
        due = self._mirror.claims.take_due(now)
        placed = [self._promise(each, now) for each in due if free.holds(each.allocation)]
        return self._release(placed, nodes, now)

    def _release(self, placed: Sequence[Ticket], nodes: Iterable[SlurmNode], now: float) -> bool:
        """Order the starts, each inside a fence where others might take its GPUs."""
        shared = self._shared(nodes)
        fences = [self._fence(ticket, now) for ticket in placed if shared.intersection(ticket.gpus)]
        said = self._order("fence", fences, now)
        fenced = {fence.name for fence, refusal in zip(fences, said, strict=True) if refusal is None}
        orders = [self._place(ticket, fenced, now) for ticket in placed]
        for ticket, refusal in zip(placed, self._order("place", orders, now), strict=True):
            if refusal is not None:
                self._mirror.refuse(ticket, now, refusal)
        return bool(placed)

    def _can_start(self, decision: Start | Migrate, plan: Plan, now: float) -> bool:
        """Whether it can be carried out now; if only others, or itself, must leave before, it is claimed."""
        ticket = self._tickets.get(decision.job_id)
        if ticket is None or not (ticket.standing is Standing.WAITING or ticket.leaves_to_move):
            return False
        mirror = self._mirror
        if mirror.claims.may_start(decision, now) and mirror.state.free.holds(decision.allocation):
            return True
        mirror.claims.add(Claim(decision, self._leaving(decision, plan)))
        return False

    def _leaving(self, decision: Start | Migrate, plan: Plan) -> frozenset[str]:
        """The job itself, and those that the plan stops on machines to which it goes."""
        jobs = self._mirror.state.jobs
        machines = {machine for machine, _ in decision.allocation}
        return frozenset(
            other.job_id
            for other in plan.decisions
            if isinstance(other, Preempt | Migrate)
            and other.job_id in jobs
            and any(machine in machines for machine, _ in jobs[other.job_id].allocation)
        ) | {decision.job_id}

    def _promise(self, decision: Start | Migrate, now: float) -> Ticket:
        """The job is about to start: its GPUs are no longer free, though it does not run yet."""
        ticket, state = self._tickets[decision.job_id], self._mirror.state
        ticket.standing, ticket.since_s = Standing.STARTING, now
        ticket.until_s, ticket.why = now + self._config.start_timeout_s, decision.reason
        ticket.gpus, ticket.released = state.topology.named(decision.allocation), True
        ticket.limit_s = self._limits.given_s(ticket, self._mirror.seen(ticket.job_id), decision.allocation)
        self._mirror.changed.add(ticket.job_id)
        self._mirror.decided.append(ticket.job_id)
        for machine, gpus in decision.allocation:
            self._mirror.scheduler.withhold(machine, state.withheld.get(machine, 0) + gpus)
        return ticket

    def _shared(self, nodes: Iterable[SlurmNode]) -> set[str]:
        """Nodes on which jobs of other partitions may start too."""
        ours = set(self._config.partitions)
        return {node.name for node in nodes if not ours.issuperset(node.partitions)}

    def _fence(self, ticket: Ticket, now: float) -> Fence:
        return Fence(_fence_name(ticket, now), tuple(ticket.gpus), ticket.job.user)

    def _place(self, ticket: Ticket, fenced: set[str], now: float) -> Place:
        name = _fence_name(ticket, now)
        fence, nodes = name if name in fenced else None, tuple(ticket.gpus)
        tasks, job = _tasks(ticket), self._mirror.seen(ticket.job_id)
        limit_s = ticket.limit_s or ticket.job.time_limit_s
        limit_min = None if limit_s in (None, job.time_limit_s) else int(limit_s // 60)
        if tasks is None:
            return Place(ticket.job_id, nodes, fence, limit_min=limit_min)
        exact = has_exact_nodes(job, ticket.min_nodes)
        return Place(ticket.job_id, nodes, fence, tasks, exact, job.cpus_per_task, limit_min)

    def wait(self, plan: Plan, now: float) -> None:
        """Put waits on record."""
        for decision in plan.decisions:
            ticket = self._tickets.get(decision.job_id)
            if isinstance(decision, Wait) and ticket and ticket.standing is Standing.WAITING:
                self._log(now, "wait", job=ticket.job_id, **wait_facts(self._mirror.state, decision))
                self._mirror.scheduler.wait_explained(decision)
                ticket.why, ticket.until_s = decision.reason, decision.until_s
                ticket.level = self._mirror.state.topology.levels[decision.level]
                self._mirror.changed.add(ticket.job_id)

    def _order(self, step: str, orders: Sequence[Order], now: float) -> tuple[str | None, ...]:
        """Put on disk what is meant, then order it; what Slurm says again and again is on record once."""
        if not orders:
            return ()
        self._commit(now)
        self._at(step)
        said = self._slurm.run(orders)
        self._at(f"{step} done")
        for order, refusal in zip(orders, said, strict=True):
            self._note(order, refusal, now)
        return said

    def _note(self, order: Order, refusal: str | None, now: float) -> None:
        what, job = type(order).__name__.lower(), getattr(order, "job_id", "")
        if refusal is None:
            self._refusals.pop((what, job), None)
        elif self._refusals.get((what, job)) != refusal:
            if len(self._refusals) > _MOST_REFUSALS:
                self._refusals.clear()
            self._refusals[what, job] = refusal
            self._log(now, "refused", order=what, job=job, said=refusal)


def _tasks(ticket: Ticket) -> int | None:
    """How many tasks a job of open size gets: as many for each GPU as it asked for."""
    if ticket.job.kind is JobKind.RIGID:
        return None
    return max(1, sum(ticket.gpus.values()) * ticket.tasks // ticket.job.gpus)


def next_due_s(tickets: Iterable[Ticket], now: float, restart_gap_s: float) -> float:
    """When the next grace, back-off, gap, time to start or time to run is over; inf if there is none."""
    dues = (
        ticket.left_s + restart_gap_s if ticket.standing is Standing.WAITING else ticket.until_s
        for ticket in tickets
        if ticket.standing in _HAVE_DUES
    )
    return min((due_s for due_s in dues if due_s > now), default=inf)


def _fence_name(ticket: Ticket, now: float) -> str:
    return f"{FENCE}{ticket.job_id}_{now:.0f}"
