"""Carries out a plan on Slurm: the intent goes into the journal first, then the order to Slurm."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil, inf

from dally.jobs.job import JobKind
from dally.plan import Migrate, Plan, Preempt, Resize, Start, Wait
from dally.scheduling.scheduler import wait_facts
from dally.words import span
from slurm_plugin.client.orders import Order, ReleaseOnNodes, Requeue, Reserve, Signal
from slurm_plugin.client.slurm import Slurm, SlurmJob, SlurmNode, State
from slurm_plugin.config import Config
from slurm_plugin.controller.companions import CompanionStep
from slurm_plugin.controller.corrections import Corrections
from slurm_plugin.controller.job_requests import has_exact_nodes, min_cpus
from slurm_plugin.controller.maintenance import leave_reason
from slurm_plugin.controller.managed_job import (
    ManagedJob,
    PendingPhase,
    ReleasedPhase,
    RunningPhase,
    StoppingPhase,
    StopPurpose,
    checkpointed,
)
from slurm_plugin.controller.node_room import NodeResources
from slurm_plugin.controller.pending_starts import PendingStart
from slurm_plugin.controller.reconciler import Reconciler
from slurm_plugin.controller.time_limits import TimeLimits
from slurm_plugin.controller.transitions import Log
from slurm_plugin.controller.unavailable_gpus import (
    is_claim,
    kept_gpus,
    own_reservation,
    reservation_name,
    reserved_for,
)

_CAN_STOP = (State.RUNNING, State.SUSPENDED)
_PURPOSES = {Preempt: StopPurpose.PREEMPT, Migrate: StopPurpose.MIGRATE, Resize: StopPurpose.RESIZE}
_MOST_REFUSALS = 10_000
_HALF_DONE_S = 60.0
"""For so long a companion that has left may be followed by another, as was decided once."""

TOLD_LATE_S = 60.0
"""After a start of slurmctld the end of a job that ran before may come so late.

Nodes that could not tell it try again after 15 s. A busy slurmctld may not answer that in time, which is
10 s (MessageTimeout), and then they try once more 15 s later. Requeued until then, a job that has ended runs
once more.
"""


class Actuator:
    """Turns decisions into orders.

    Whatever happens between two of its steps, the managed jobs on disk say what was meant, and the next view
    of Slurm what has become of it: a job is then either where it was, or where it was meant to be.

    Args:
        slurm: Who takes the orders.
        reconciler: Managed jobs and state.
        config: Settings.
        limits: How long jobs may run.
        log: Records events.
        commit: Puts managed jobs and events on disk; nothing is ordered before.
        at: Told of each step, by name; for tests that stop here.
    """

    def __init__(
        self,
        slurm: Slurm,
        reconciler: Reconciler,
        config: Config,
        limits: TimeLimits,
        log: Log,
        commit: Callable[[float], None],
        at: Callable[[str], None],
    ) -> None:
        self._slurm, self._reconciler, self._config = slurm, reconciler, config
        self._log, self._commit, self._at = log, commit, at
        self._managed_jobs, self._state = reconciler.managed_jobs, reconciler.state
        self._transitions = reconciler.transitions
        self._limits = limits
        self._refusals: dict[tuple[str, str], str] = {}
        self._corrections = Corrections()
        self._steps: dict[str, CompanionStep] = {}
        self._half_done: dict[str, tuple[Resize, float]] = {}

    def apply_corrections(self, now: float) -> None:
        """Order what the last view of Slurm calls for."""
        wanted, self._reconciler.corrections = self._reconciler.corrections, []
        cluster = self._reconciler.conditions.configured() if wanted else None
        orders = self._corrections.due(wanted, self._reconciler.all_seen, cluster, now)
        self._corrections.answered(orders, self._order("correct", orders, now), now)

    # Stopping jobs.

    def stop(self, plan: Plan, now: float) -> bool:
        """Ask the jobs that must give way for their checkpoints; True if any is requeued at once."""
        companions = self._reconciler.companions
        self._steps = dict(self._companion_steps(plan, now))
        for decision in plan.decisions:
            if not isinstance(decision, Preempt | Migrate) or decision.job_id in self._steps:
                continue
            managed = self._managed_jobs.get(decision.job_id)
            by = decision.by if isinstance(decision, Preempt) else ()
            covered = bool(by) and self._reconciler.pending_starts.cover(by)  # others stop for these already
            if managed and isinstance(managed.phase, RunningPhase) and not covered:
                self._request_checkpoint(managed, decision, now)
        leaving = [(job_id, each) for job_id, step in self._steps.items() for each in step.leave]
        for job_id, companion in leaving:
            self._log(now, "companion_leaves", job=job_id, companion=companion)
        self._order("signal", [companions.leave(companion) for _, companion in leaving], now)
        return self.requeue_due(now)

    def _companion_steps(self, plan: Plan, now: float) -> Iterator[tuple[str, CompanionStep]]:
        """The resizes that companions can carry out while their jobs train, and those that are half done."""
        companions, topology = self._reconciler.companions, self._state.topology
        decided = {each.job_id for each in plan.decisions if not isinstance(each, Wait)}
        half_done = {job_id: each for job_id, each in self._half_done.items() if job_id not in decided}
        self._half_done = {}
        new = {each.job_id: (each, now) for each in plan.decisions if isinstance(each, Resize)}
        for job_id, (decision, since_s) in {**half_done, **new}.items():
            managed = self._managed_jobs.get(job_id)
            runs = managed is not None and isinstance(managed.phase, RunningPhase)
            if managed is None or not runs or now > since_s + _HALF_DONE_S:
                continue
            step = companions.next_step(managed, topology.named(decision.allocation), now)
            if step is not None:
                companions.why[job_id] = decision.reason
                yield job_id, step
            if step.leave if step else job_id in half_done:  # or none has left long enough ago
                self._half_done[job_id] = decision, since_s

    def _request_checkpoint(self, managed: ManagedJob, decision: Preempt | Migrate, now: float) -> None:
        purpose = _PURPOSES[type(decision)]
        by = decision.by if isinstance(decision, Preempt) else ()
        self._transitions.request_checkpoint(managed, now, decision.reason, purpose, by)
        self._reconciler.decided.append(managed.job_id)
        asked = {"signal": managed.request.signal, "grace_s": managed.request.grace_s}
        self._log(now, "stop", job=managed.job_id, **asked, reason=decision.reason)

    def checkpoint_in_time(self, now: float) -> None:
        """Ask running jobs for their checkpoints where a limit, or a maintenance, comes too early."""
        reservations = self._reconciler.conditions.reservations
        for managed in list(self._managed_jobs.values()):
            if not isinstance(managed.phase, RunningPhase):
                continue
            job, life = self._reconciler.seen(managed.job_id), self._state.jobs[managed.job_id]
            reason = leave_reason(managed, job, life, reservations, now)
            if now >= managed.phase.until_s:
                limit = span(job.time_limit_s or 0.0)
                reason = f"its time limit of {limit} ends before it is done; it goes on later"
            if reason:
                self._request_checkpoint(managed, Preempt(managed.job_id, (), reason), now)

    def requeue_due(self, now: float) -> bool:
        """Requeue the stopping jobs whose grace is over, or that have written their checkpoint and ended.

        Their checkpoint signals come first. One that may have been lost is sent again: a second one costs a
        job less than none. A job's grace begins when it was asked. Where slurmctld was just restarted, jobs
        that ran before may have ended, and Slurm is yet to hear of it. True if any is requeued.
        """
        stopping = [
            (each, each.phase)
            for each in self._managed_jobs.values()
            if isinstance(each.phase, StoppingPhase)
        ]
        seen = self._reconciler.seen
        unasked = [
            each for each, phase in stopping if not phase.signalled and seen(each.job_id).state in _CAN_STOP
        ]
        self._order("signal", [Signal(each.job_id, each.request.signal) for each in unasked], now)
        for managed in unasked:
            self._transitions.signal(managed, now)

        due: list[tuple[ManagedJob, Requeue]] = []
        booted_s: float | None = None
        for managed, _ in stopping:
            job = seen(managed.job_id)
            if checkpointed(managed, job):
                due.append((managed, Requeue(managed.job_id, ended=True)))
            elif now >= managed.phase.until_s and job.state in _CAN_STOP:
                booted_s = self._slurm.booted_s() if booted_s is None else booted_s
                if not _may_have_ended(job, booted_s, now):
                    due.append((managed, Requeue(managed.job_id)))
        answers = self._order("requeue", [order for _, order in due], now)
        for (managed, _), refusal in zip(due, answers, strict=True):
            if refusal is not None:
                self._reconciler.requeue_failed(managed, now, refusal)
        return bool(due)

    # Starting jobs.

    def start(self, plan: Plan, nodes: Iterable[SlurmNode], now: float) -> bool:
        """Release jobs onto their nodes; True if there is anything to look after."""
        decided = [each for each in plan.decisions if isinstance(each, Start | Migrate)]
        left = self._reconciler.conditions.room_left() if decided else {}
        starting = [self._set_starting(each, now) for each in decided if self._can_start(each, left, now)]
        joins = self._let_companions_join(now)
        self._keep_for_pending(nodes, now)
        return self._release_on_nodes(starting, nodes, now) or joins

    def start_pending(self, nodes: Iterable[SlurmNode], now: float) -> bool:
        """Release the jobs for which others have left by now; True if there is anything to look after."""
        due = self._reconciler.pending_starts.take_due(now)
        left = self._reconciler.conditions.room_left() if due else {}
        starting = [self._set_starting(each, now) for each in due if self._fits(each, left)]
        return self._release_on_nodes(starting, nodes, now)

    def _can_start(self, decision: Start | Migrate, left: dict[str, NodeResources], now: float) -> bool:
        """Whether it can be carried out now; it is pending if only others, or the job itself, must leave."""
        managed = self._managed_jobs.get(decision.job_id)
        if managed is None or not (isinstance(managed.phase, PendingPhase) or managed.stops_to_migrate):
            return False
        pending = self._reconciler.pending_starts
        leaving = {decision.job_id}
        if self._fits(decision, left):
            if pending.may_start(decision, now):
                return True
        else:
            jobs, taken_by = self._state.jobs, self._state.free.taken_by
            machines = {machine for machine, _ in taken_by(decision.allocation)}
            leaving |= {
                other.job_id
                for other in self._managed_jobs.values()
                if isinstance(other.phase, StoppingPhase)
                and any(machine in machines for machine, _ in taken_by(jobs[other.job_id].allocation))
            }
        pending.add(PendingStart(decision, frozenset(leaving)))
        return False

    def _fits(self, decision: Start | Migrate, left: dict[str, NodeResources]) -> bool:
        """Whether the GPUs of a start are free and its nodes have the rest, which is no longer left then.

        Policies count GPUs only: of two jobs that others left for, the first may have all CPUs of a node.
        """
        gpus = self._state.topology.named(decision.allocation)
        takes = self._reconciler.conditions.takes(self._managed_jobs[decision.job_id], gpus)
        has_room = all(left[node].holds(needed) for node, needed in takes.items())
        if not has_room or not self._state.free.holds(decision.allocation):
            return False
        left.update({node: left[node] - needed for node, needed in takes.items()})
        return True

    def _keep_for_pending(self, nodes: Iterable[SlurmNode], now: float) -> None:
        """Reserve the nodes of starts that wait for others to leave, where Slurm might give them to a third.

        Jobs that are stopped leave at different times. What the first leaves would go to the next job of
        Slurm's own queue, also by backfill, and the start would wait for that job's end.
        """
        early = [*self._reconciler.pending_starts.early(now)]
        if not early:
            return
        shared, others_wait = self._shared_nodes(nodes), self._reconciler.conditions.others_wait()
        reservations = self._reconciler.conditions.reservations
        reserved = {reserved_for(each) for each in reservations if not is_claim(each)}
        orders = []
        for decision, until_s in early:
            on_nodes = tuple(self._state.topology.named(self._state.free.taken_by(decision.allocation)))
            is_kept = decision.job_id in reserved or own_reservation(self._reconciler.seen(decision.job_id))
            if not is_kept and (others_wait or shared.intersection(on_nodes)):
                user = self._managed_jobs[decision.job_id].job.user
                minutes = 1 + ceil((until_s - now) / 60)
                name = reservation_name(decision.job_id, now, early=True)
                orders.append(Reserve(name, on_nodes, user, minutes))
        self._order("reserve", orders, now)

    def keep_for_oldest(self, now: float, starts_jobs: bool) -> None:
        """Reserve the nodes on which our oldest waiting job can start earliest, if Slurm's jobs want them."""
        orders = self._reconciler.conditions.oldest_first.reservation_orders(now, starts_jobs)
        self._order("reserve", orders, now)

    def _shared_nodes(self, nodes: Iterable[SlurmNode]) -> set[str]:
        """Nodes on which a start needs a reservation: in others' partitions, or in a reservation of ours."""
        ours = set(self._config.partitions)
        shared = {node.name for node in nodes if not ours.issuperset(node.partitions)}
        for reservation in self._reconciler.conditions.reservations:
            if reserved_for(reservation):
                shared.update(reservation.nodes)
        return shared

    def _set_starting(self, decision: Start | Migrate, now: float) -> ManagedJob:
        """The job is about to start."""
        managed = self._managed_jobs[decision.job_id]
        job, until_s = self._reconciler.seen(managed.job_id), now + self._config.start_timeout_s
        limit_s = self._limits.given_s(managed, job, decision.allocation, now)
        self._transitions.begin_start(managed, now, decision.reason, decision.allocation, limit_s, until_s)
        self._reconciler.decided.append(managed.job_id)
        return managed

    def _let_companions_join(self, now: float) -> bool:
        """Release the companions whose GPUs are free; True if there is any to look after."""
        machines = self._state.topology.machine_index
        orders = []
        for job_id, step in self._steps.items():
            allocation = tuple(sorted((machines[node], gpus) for node, gpus in step.gpus))
            managed = self._managed_jobs.get(job_id)  # it may have left since this was decided
            if managed is not None and step.joins and self._state.free.holds(allocation):
                job = self._reconciler.seen(job_id)
                orders.append(self._reconciler.companions.join(step, managed, job, now))
                self._log(now, "companion_joins", job=job_id, companion=step.joins, gpus=dict(step.gpus))
        self._steps = {}
        self._order("release", orders, now)
        return bool(orders)

    def _release_on_nodes(
        self, starting: Sequence[ManagedJob], nodes: Iterable[SlurmNode], now: float
    ) -> bool:
        """Order the starts, each inside a reservation where others might take its GPUs, or stand before it.

        Slurm leaves a job without one behind its own that wait, whatever is free for it.
        """
        if not starting:
            return False
        shared = self._shared_nodes(nodes)
        if self._reconciler.conditions.others_wait():
            shared.update(*(each.gpus for each in starting))
        reserves = [
            Reserve(reservation_name(each.job_id, now), kept, each.job.user)
            for each, kept in ((each, self._kept_nodes(each)) for each in starting)
            if shared.intersection(kept) and not own_reservation(self._reconciler.seen(each.job_id))
        ]
        answers = self._order("reserve", reserves, now)
        reserved = {order.name for order, refusal in zip(reserves, answers, strict=True) if refusal is None}
        orders = []
        for managed in starting:
            name, job = reservation_name(managed.job_id, now), self._reconciler.seen(managed.job_id)
            reservation = name if name in reserved else own_reservation(job) or None
            on_nodes = tuple(managed.gpus)
            limit_s = managed.limit_s or managed.job.time_limit_s
            limit_min = None if limit_s in (None, job.time_limit_s) else int(limit_s // 60)
            tasks: int | None
            if managed.job.kind is JobKind.RIGID:
                tasks, exact, cpus = None, False, 1
            else:  # as many tasks for each GPU as it asked for
                tasks = max(1, sum(managed.gpus.values()) * managed.tasks // managed.job.gpus)
                exact, cpus = has_exact_nodes(job, managed.min_nodes), job.cpus_per_task
            size = tasks, exact, cpus, limit_min, job.switches > 0, min_cpus(managed, job, len(on_nodes))
            orders.append(ReleaseOnNodes(managed.job_id, on_nodes, reservation, *size))
        for managed, refusal in zip(starting, self._order("release", orders, now), strict=True):
            if refusal is not None:
                self._reconciler.admission.start_failed(managed, now, refusal)
        return True

    def _kept_nodes(self, managed: ManagedJob) -> tuple[str, ...]:
        """The nodes that a start keeps from others: its own, and of its whole blocks those that are up."""
        topology, closed = self._state.topology, self._state.closed
        names = kept_gpus(topology, managed.job, managed.gpus)
        return tuple(
            name for name in names if name in managed.gpus or topology.machine_index[name] not in closed
        )

    def record_waits(self, plan: Plan, now: float) -> None:
        """Put waits on record."""
        for decision in plan.decisions:
            managed = self._managed_jobs.get(decision.job_id)
            if isinstance(decision, Wait) and managed and isinstance(managed.phase, PendingPhase):
                self._log(now, "wait", job=managed.job_id, **wait_facts(self._state, decision))
                self._reconciler.scheduler.wait_explained(decision)
                level = self._state.topology.levels[decision.level]
                self._transitions.explain_wait(managed, decision.reason, level, decision.until_s)

    def _order(self, step: str, orders: Sequence[Order], now: float) -> tuple[str | None, ...]:
        """Put on disk what is meant, then order it; what Slurm says again and again is on record once."""
        if not orders:
            return ()
        self._commit(now)
        self._at(step)
        answers = self._slurm.run(orders)
        self._at(f"{step} done")
        for order, refusal in zip(orders, answers, strict=True):
            what, job = order_name(order), getattr(order, "job_id", "")
            if refusal is None:
                self._refusals.pop((what, job), None)
            elif self._refusals.get((what, job)) != refusal:
                if len(self._refusals) > _MOST_REFUSALS:
                    self._refusals.clear()
                self._refusals[what, job] = refusal
                self._log(now, "order_refused", order=what, job=job, said=refusal)
        return answers


def order_name(order: Order) -> str:
    """The name of an order in events and metrics: `release_on_nodes` of a `ReleaseOnNodes`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(order).__name__).lower()


def _may_have_ended(job: SlurmJob, booted_s: float, now: float) -> bool:
    """Whether a job that Slurm shows as running may have ended while slurmctld, up since then, was away."""
    ran_before = job.start_s is not None and job.start_s < booted_s
    # Slurm's clock may be a little ahead of ours; one that is hours off tells nothing.
    return ran_before and abs(now - booted_s) < TOLD_LATE_S


def next_due_s(managed_jobs: Iterable[ManagedJob], now: float, restart_gap_s: float) -> float:
    """When the next grace, back-off, gap, time to start or time to run is over; inf if there is none."""
    dues = (
        managed.left_s + restart_gap_s if isinstance(managed.phase, PendingPhase) else managed.phase.until_s
        for managed in managed_jobs
        if not isinstance(managed.phase, ReleasedPhase)
    )
    return min((due_s for due_s in dues if due_s > now), default=inf)
