"""Carries out a plan on Slurm: the intent goes into the journal first, then the order to Slurm."""

from collections.abc import Callable, Iterable, Sequence
from math import inf

from dally.cycle import wait_facts
from dally.plan import Migrate, Plan, Preempt, Start, Wait
from dally.topology import Allocation
from slurm_plugin.config import Config
from slurm_plugin.mirror import CHECKPOINTED, Log, Mirror
from slurm_plugin.slurm import Fence, Order, Place, Requeue, Signal, Slurm, SlurmNode, State
from slurm_plugin.tickets import Standing, Ticket
from slurm_plugin.withheld import FENCE


class Hands:
    """Turns decisions into orders.

    Whatever happens between two of its steps, the tickets on disk say what was meant, and the next view of
    Slurm what has become of it: a job is then either where it was, or where it was meant to be.

    Args:
        slurm: Who takes the orders.
        mirror: Tickets and state.
        config: Settings.
        log: Records events.
        commit: Puts tickets and events on disk; nothing is ordered before.
        at: Told of each step, by name; for tests that stop here.
    """

    def __init__(
        self,
        slurm: Slurm,
        mirror: Mirror,
        config: Config,
        log: Log,
        commit: Callable[[float], None],
        at: Callable[[str], None],
    ) -> None:
        self._slurm, self._mirror, self._config = slurm, mirror, config
        self._log, self._commit, self._at = log, commit, at
        self._tickets = mirror.tickets

    def mend(self, now: float) -> None:
        """Order what the last view of Slurm calls for: jobs held again or handed back."""
        orders, self._mirror.orders = self._mirror.orders, []
        if orders:
            self._commit(now)
            self._at("mend")
            self._order(orders, now)
            self._at("mended")

    def stop(self, plan: Plan, now: float) -> bool:
        """Ask the jobs that must give way for their checkpoints; True if any is put back at once."""
        asked: list[Ticket] = []
        for decision in plan.decisions:
            if isinstance(decision, Preempt | Migrate):
                ticket = self._tickets[decision.job_id]
                if ticket.standing is Standing.RUNNING:
                    self._ask(ticket, decision, now)
                    asked.append(ticket)
        if not asked:
            return False
        self._commit(now)
        self._at("stop")
        signals = [Signal(each.job_id, each.request.signal) for each in asked if each.request.signal]
        self._order(signals, now)
        self._at("stop signalled")
        return self.put_back(now)

    def _ask(self, ticket: Ticket, decision: Preempt | Migrate, now: float) -> None:
        grace_s = ticket.request.grace_s if ticket.request.signal else 0
        ticket.standing, ticket.since_s, ticket.until_s = Standing.STOPPING, now, now + grace_s
        ticket.why, ticket.moving = decision.reason, isinstance(decision, Migrate)
        ticket.by = decision.by if isinstance(decision, Preempt) else ()
        self._mirror.changed.add(ticket.job_id)
        self._mirror.decided.append(ticket.job_id)
        said = {"signal": ticket.request.signal, "grace_s": grace_s, "reason": decision.reason}
        self._log(now, "stop", job=ticket.job_id, **said)

    def put_back(self, now: float) -> bool:
        """Requeue the stopping jobs whose grace is over, or that have written their checkpoint and ended."""
        ended, over = [], []
        for ticket in self._tickets.values():
            if ticket.standing is Standing.STOPPING:
                job = self._mirror.seen(ticket.job_id)
                if job.state is State.ENDED and job.exit_code == CHECKPOINTED:
                    ended.append(Requeue(ticket.job_id, ended=True))
                elif now >= ticket.until_s:
                    over.append(Requeue(ticket.job_id))
        self._order([*ended, *over], now)
        self._at("stop requeued")
        return bool(ended or over)

    def start(self, plan: Plan, nodes: Iterable[SlurmNode], now: float) -> bool:
        """Release jobs onto their nodes; True if there is anything to look after."""
        placed: list[Ticket] = []
        for decision in plan.decisions:
            if isinstance(decision, Start | Migrate) and self._can_start(decision, plan, now):
                self._promise(decision, now)
                placed.append(self._tickets[decision.job_id])
        if not placed:
            return False
        self._commit(now)
        self._at("place")
        shared = self._shared(nodes)
        fences = [self._fence(ticket, now) for ticket in placed if shared.intersection(ticket.gpus)]
        said = self._order(fences, now)
        self._at("place fenced")
        fenced = {fence.name for fence, refusal in zip(fences, said, strict=True) if refusal is None}
        orders = [self._place(ticket, fenced, now) for ticket in placed]
        for ticket, refusal in zip(placed, self._order(orders, now), strict=True):
            if refusal is not None:
                self._mirror.refuse(ticket, now, refusal)
        self._at("placed")
        return True

    def _can_start(self, decision: Start | Migrate, plan: Plan, now: float) -> bool:
        ticket = self._tickets.get(decision.job_id)
        if ticket is None or ticket.standing is not Standing.WAITING:
            return False
        gpus = self._mirror.state.topology.named(decision.allocation)
        if not self._mirror.state.free.holds(decision.allocation):
            self._claim(decision.job_id, decision.allocation, plan)
            return False
        return now >= ticket.left_s + self._config.restart_gap_s or not set(gpus) & set(ticket.left_nodes)

    def _claim(self, job_id: str, allocation: Allocation, plan: Plan) -> None:
        """Keep what is free of its GPUs until those who hold the rest have left."""
        free = self._mirror.state.free
        leaving = frozenset(
            decision.job_id
            for decision in plan.decisions
            if (isinstance(decision, Preempt) and job_id in decision.by)
            or (isinstance(decision, Migrate) and decision.job_id == job_id)
        )
        kept = tuple((machine, min(gpus, free.on(machine))) for machine, gpus in allocation)
        self._mirror.claims[job_id] = self._mirror.state.topology.named(kept), leaving

    def _promise(self, decision: Start | Migrate, now: float) -> None:
        """The job is about to start: its GPUs are no longer free, though it does not run yet."""
        ticket, state = self._tickets[decision.job_id], self._mirror.state
        ticket.standing, ticket.since_s = Standing.STARTING, now
        ticket.until_s, ticket.why = now + self._config.start_timeout_s, decision.reason
        ticket.gpus = state.topology.named(decision.allocation)
        self._mirror.changed.add(ticket.job_id)
        self._mirror.decided.append(ticket.job_id)
        for machine, gpus in decision.allocation:
            state.withhold(machine, state.withheld.get(machine, 0) + gpus)

    def _shared(self, nodes: Iterable[SlurmNode]) -> set[str]:
        """Nodes on which jobs of other partitions may start too."""
        ours = set(self._config.partitions)
        return {node.name for node in nodes if not ours.issuperset(node.partitions)}

    def _fence(self, ticket: Ticket, now: float) -> Fence:
        return Fence(_fence_name(ticket, now), tuple(ticket.gpus), ticket.job.user)

    def _place(self, ticket: Ticket, fenced: set[str], now: float) -> Place:
        name = _fence_name(ticket, now)
        return Place(ticket.job_id, tuple(ticket.gpus), name if name in fenced else None)

    def wait(self, plan: Plan, now: float) -> None:
        """Put waits on record."""
        for decision in plan.decisions:
            ticket = self._tickets.get(decision.job_id)
            if isinstance(decision, Wait) and ticket and ticket.standing is Standing.WAITING:
                self._log(now, "wait", job=ticket.job_id, **wait_facts(self._mirror.state, decision))
                self._mirror.scheduler.waits(decision)
                ticket.why, ticket.until_s = decision.reason, decision.until_s
                self._mirror.changed.add(ticket.job_id)

    def _order(self, orders: Sequence[Order], now: float) -> tuple[str | None, ...]:
        if not orders:
            return ()
        said = self._slurm.run(orders)
        for order, refusal in zip(orders, said, strict=True):
            if refusal is not None:
                what = type(order).__name__.lower()
                self._log(now, "refused", order=what, job=getattr(order, "job_id", ""), said=refusal)
        return said


def next_due_s(tickets: Iterable[Ticket]) -> float:
    """When the next grace or time to start is over; inf if there is none."""
    busy = (Standing.STARTING, Standing.STOPPING, Standing.ASIDE)
    return min((ticket.until_s for ticket in tickets if ticket.standing in busy), default=inf)


def _fence_name(ticket: Ticket, now: float) -> str:
    return f"{FENCE}{ticket.job_id}_{now:.0f}"
