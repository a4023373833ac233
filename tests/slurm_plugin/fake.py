"""A Slurm in memory, for tests and measurements: it answers like a real one, its time moves when told.

`tests/slurm_plugin/client/test_contract.py` holds it to real Slurm. What Slurm does within moments
happens at once; a job that waits for busy nodes holds up no other, as with Slurm's backfill.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import inf
from typing import Any

from dally.jobs.job import Job
from slurm_plugin.client.accounting_limits import AccountingLimits, Counted, ResourceLimit
from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.orders import (
    Annotate,
    Cancel,
    JobOrder,
    Order,
    Rehold,
    ReleaseOnNodes,
    ReleaseToSlurm,
    Requeue,
    ReservationOrder,
    Reserve,
    Signal,
)
from slurm_plugin.client.slurm import (
    Hold,
    Partition,
    PriorityFactors,
    Reservation,
    SlurmJob,
    SlurmNode,
    SlurmUnavailableError,
    State,
)
from slurm_plugin.constraint import satisfies
from tests.slurm_plugin.fake_job import FakeJob, FakeNode, SubmitSpec, split_gpus
from tests.slurm_plugin.fake_reservations import FENCE_S, FakeReservations, RefusedError

REQUEUE_DELAY_S = 121.0
UNLIMITED_S = 365 * 86_400.0


@dataclass(order=True, slots=True)
class _Event:
    at_s: float
    number: int
    job: FakeJob | None = field(compare=False)
    run_number: int = field(compare=False)
    action: Callable[[], None] = field(compare=False)

    @property
    def stale(self) -> bool:
        """Whether the event belongs to an earlier run of its job."""
        return self.job is not None and self.job.run_number != self.run_number


class FakeSlurm:
    """A cluster that is only imagined; implements `Slurm`.

    Attributes:
        now_s: Its time, seconds.
        start_delay_s: From release to start.
        completing_s: How long a job that ends or is requeued still holds its nodes.
        remember_s: How long ended jobs are shown.
        enforces_limits: Jobs are stopped at their time limits.
        in_order: A job without a node list that waits holds up those without that came later.
        may_annotate: We may change admin comments, as administrators of accounting and SlurmUser may.
        unavailable: Every call raises, as if slurmctld were down.
        total_licenses: How many there are of each licence.
        most_gpus: Most GPUs that the jobs of a QOS may hold at once, by QOS.
        told_limits: The limits that are told; None: slurmdbd is away.
        safe: It is told that jobs must be able to run to their end under limits on minutes.
        most_minutes: Most GPU minutes that the jobs of a QOS may have, by QOS, enforced as with `safe`.
        spent_min: Of these, what jobs had that have ended.
        told_blocks: The blocks; it starts no job farther apart than they and its segment allow.
        factors: What priorities are made of; None: that cannot be read.
        rules: What partitions demand, by name; those not named demand nothing.
        breaks_after: `run` raises once it has carried out this many orders; None for never.
        refuse: What Slurm says against every order for a job, by job.
        accounting: The ended jobs that accounting has; None: there is no accounting.
        signals: The signals that running jobs got: time, job and signal.
    """

    def __init__(
        self,
        nodes: Sequence[FakeNode],
        clock: Callable[[], float] | None = None,
        start_delay_s: float = 0.0,
        completing_s: float = 0.0,
        remember_s: float = 300.0,
    ) -> None:
        self.now_s = clock() if clock else 0.0
        self.start_delay_s = start_delay_s
        self.completing_s = completing_s
        self.remember_s = remember_s
        self.enforces_limits = True
        self.in_order = False
        self.may_annotate = True
        self.unavailable = False
        self.total_licenses: dict[str, int] = {}
        self.most_gpus: dict[str, int] = {}
        self.told_limits: tuple[ResourceLimit, ...] | None = ()
        self.safe = False
        self.most_minutes: dict[str, float] = {}
        self.spent_min: dict[str, float] = {}
        self.told_blocks = BlockTopology()
        self.factors: PriorityFactors | None = PriorityFactors()
        self.rules: dict[str, Partition] = {}
        self.breaks_after: int | None = None
        self.refuse: dict[str, str] = {}
        self.accounting: tuple[Job, ...] | None = ()
        self.signals: list[tuple[float, str, str]] = []
        self._clock = clock
        self._nodes = {node.name: node for node in nodes}
        self._node_states: dict[str, str] = {}
        self._used: Counter[str] = Counter()
        self._on: dict[str, dict[str, FakeJob]] = {node.name: {} for node in nodes}
        self._jobs: dict[str, FakeJob] = {}
        self._released: dict[str, FakeJob] = {}
        self._reservations = FakeReservations(self._nodes)
        self._events: list[_Event] = []
        self._numbers = count(1)
        self._next_job = 1

    # What the controller asks.

    def jobs(self) -> tuple[SlurmJob, ...]:
        """All jobs that are remembered."""
        self._answer()
        views = [job.view() for job in self._jobs.values()]
        return tuple(sorted(views, key=lambda job: job.arrival))

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All nodes."""
        self._answer()
        return tuple(
            node.view(
                self._node_states.get(node.name, ""),
                self._used[node.name],
                sum(self._cpus(job, node) for job in self._on[node.name].values()),
                sum(job.spec.memory_mb for job in self._on[node.name].values()),
            )
            for node in self._nodes.values()
        )

    def reservations(self) -> tuple[Reservation, ...]:
        """All reservations, fences included."""
        self._answer()
        return tuple(self._reservations)

    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that the nodes are in."""
        self._answer()
        names = dict.fromkeys(name for node in self._nodes.values() for name in node.partitions)
        return tuple(self.rules.get(name, Partition(name)) for name in names)

    def licenses(self) -> Mapping[str, int]:
        """Free licences by name."""
        self._answer()
        used = Counter(job.spec.licenses for job in self._jobs.values() if job.gpus)
        return {name: count - used[name] for name, count in self.total_licenses.items()}

    def priority_factors(self) -> PriorityFactors:
        """What is told of priorities; `factors` is None if they cannot be read."""
        self._answer()
        if self.factors is None:
            raise SlurmUnavailableError("sshare: error: Problem talking to the database")
        return self.factors

    def fair_shares(self) -> Mapping[tuple[str, str], float]:
        """The shares among what is told of priorities."""
        return self.priority_factors().fair_share

    def limits(self) -> AccountingLimits:
        """What is told of limits; `most_gpus` is enforced, told or not."""
        self._answer()
        if self.told_limits is None:
            raise SlurmUnavailableError("sacctmgr: Problem talking to the database: Connection refused")
        return AccountingLimits(self.told_limits, safe=self.safe)

    def spent(self, accounting: AccountingLimits) -> AccountingLimits:
        """The limits on GPU minutes of a QOS with what it has spent; what a job uses is booked at its end."""
        self._answer()
        limits = (
            replace(each, spent=self.spent_min[each.qos], running=self._running_min(each.qos))
            if each.counted is Counted.SPENT and each.qos in self.spent_min
            else each
            for each in accounting.limits
        )
        return replace(accounting, limits=tuple(limits))

    def _running_min(self, qos: str) -> float:
        """GPU minutes that the jobs of a QOS may take that run now, from their start to their limit."""
        run = (job for job in self._jobs.values() if job.gpus and job.spec.qos == qos)
        return sum(sum(job.gpus.values()) * (job.limit_s or 0.0) / 60 for job in run)

    def blocks(self, partitions: Sequence[str]) -> BlockTopology:
        """What is told of blocks."""
        self._answer()
        return self.told_blocks

    def ended_jobs(self, partitions: Sequence[str], days: int) -> tuple[Job, ...]:
        """What accounting has."""
        self._answer()
        if self.accounting is None:
            raise SlurmUnavailableError("sacct: Slurm accounting storage is disabled")
        return self.accounting

    def run(self, orders: Sequence[Order]) -> tuple[str | None, ...]:
        """Carry out orders."""
        self._answer()
        answers: list[str | None] = []
        for order in orders:
            if self.breaks_after == len(answers):
                raise SlurmUnavailableError("scontrol: Unable to contact slurm controller (connect failure)")
            answers.append(self._run(order))
            self._schedule()
        return tuple(answers)

    def _answer(self) -> None:
        if self._clock:
            self.advance(self._clock())
        if self.unavailable:
            raise SlurmUnavailableError("squeue: Unable to contact slurm controller (connect failure)")

    @property
    def busy(self) -> bool:
        """Whether any job has not ended."""
        return any(job.state is not State.ENDED for job in self._jobs.values())

    # Time.

    @property
    def next_event_s(self) -> float | None:
        """When something will happen by itself; None if nothing will."""
        while self._events and self._events[0].stale:
            heapq.heappop(self._events)
        return self._events[0].at_s if self._events else None

    def advance(self, to_s: float) -> None:
        """Let time pass; what happens until then, at that moment included, happens in order."""
        while (at_s := self.next_event_s) is not None and at_s <= to_s:
            self.now_s = max(self.now_s, at_s)
            while self.next_event_s == at_s:
                heapq.heappop(self._events).action()
            self._schedule()
        self.now_s = max(self.now_s, to_s)

    def _at(self, at_s: float, action: Callable[[], None], job: FakeJob | None = None) -> None:
        heapq.heappush(
            self._events, _Event(at_s, next(self._numbers), job, job.run_number if job else 0, action)
        )

    # What users and administrators do.

    def submit(self, spec: SubmitSpec) -> str:
        """Submit a job or an array; its number."""
        number = str(self._next_job)
        names = [f"{number}_{task}" for task in spec.array] or [number]
        self._next_job += len(names)
        for name in names:
            job = FakeJob(name, spec, self.now_s, array_id=number if spec.array else "")
            job.reset_size()
            job.begin_s, job.reservation = spec.begin_s, spec.reservation
            self._jobs[name] = job
            self._hold(job, Hold.USER) if spec.held else self._make_eligible(job)
        self._schedule()
        return number

    def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        job = self._jobs[job_id]
        if job.state in (State.PENDING, State.RUNNING):
            self._end(job, "CANCELLED", 0)
        self._schedule()

    def requeue(self, job_id: str) -> None:
        """Put a running job back, as its user may."""
        self._requeue_now(self._jobs[job_id])
        self._schedule()

    def forget_start(self, job_id: str) -> None:
        """Show a job as held again, as a slurmctld does that was killed before it saved what came after."""
        job = self._jobs[job_id]
        if job.state is State.RUNNING:
            self._stop(job, State.PENDING, "PENDING")
        job.required_nodes, job.reservation = (), ""
        self._hold(job, Hold.USER)

    def shrink(self, job_id: str, *nodes: str) -> None:
        """Take nodes from a running job, as its user may."""
        job = self._jobs[job_id]
        self._used.subtract({node: job.gpus[node] for node in nodes})
        for node in nodes:
            del self._on[node][job_id]
        job.gpus = {node: gpus for node, gpus in job.gpus.items() if node not in nodes}
        job.min_nodes = len(job.gpus)
        self._schedule()

    def hold(self, job_id: str, by: Hold = Hold.ADMIN) -> None:
        """Hold a pending job, as an administrator or as its user."""
        self._hold(self._jobs[job_id], by)

    def release(self, job_id: str) -> None:
        """Release a job."""
        self._make_eligible(self._jobs[job_id])
        self._schedule()

    def update(self, job_id: str, **values: Any) -> None:
        """Change what a job asks for: fields of `SubmitSpec`, or `required_nodes`."""
        job = self._jobs[job_id]
        job.required_nodes = values.pop("required_nodes", job.required_nodes)
        job.spec = replace(job.spec, **values)
        if "nodes" in values:
            job.reset_size()
        job.limit_s = values.get("time_limit_s", job.limit_s)
        self._schedule()

    def change_node(self, node: FakeNode) -> None:
        """A node registers itself, or has other resources from now on."""
        self._nodes[node.name] = node
        self._on.setdefault(node.name, {})

    def set_node(self, name: str, state: str = "") -> None:
        """Drain a node (`drain`), let it fail with what runs there (`down`), or bring it back (empty)."""
        self._node_states[name] = state
        if state == "down":
            for job in list(self._on[name].values()):
                self._requeue_now(job) if job.spec.requeue else self._end(job, "NODE_FAIL", 1)
        self._schedule()

    def reserve(self, reservation: Reservation, user: str) -> None:
        """Reserve nodes for a user's jobs."""
        self._reservations.add(reservation, user)
        for at_s in (reservation.start_s, reservation.end_s):
            self._at(at_s, self._forget_reservations)

    def _forget_reservations(self) -> None:
        """Reservations that are over go, and jobs that wait for one go on without, whoever holds them."""
        over = self._reservations.end(self.now_s)
        for job in self._jobs.values():
            if job.reservation in over and job.state is State.PENDING:
                if job.reservation == job.spec.reservation:
                    self._hold(job, Hold.ADMIN)
                    job.state_name, job.reason = "RESV_DEL_HOLD", "ReservationDeleted"
                job.reservation = ""

    # Orders.

    def _run(self, order: Order) -> str | None:
        try:
            if isinstance(order, ReservationOrder):
                self._reservations.run(order, self.now_s)
                if isinstance(order, Reserve):
                    over_s = (order.start_s or self.now_s) + order.minutes * FENCE_S
                    self._at(over_s, self._forget_reservations)
                self._forget_reservations()
                return None
            if order.job_id in self.refuse:
                return self.refuse[order.job_id]
            if order.job_id not in self._jobs:
                raise RefusedError("Invalid job id specified")
            self._run_for(self._jobs[order.job_id], order)
        except RefusedError as refused:
            about = "" if isinstance(order, ReservationOrder) else f" for job {order.job_id}"
            return f"{refused}{about}"
        return None

    def _run_for(self, job: FakeJob, order: JobOrder) -> None:
        match order:
            case Annotate(_, admin_comment):
                if not self.may_annotate:
                    raise RefusedError("Access/permission denied")
                job.admin_comment = admin_comment
            case ReleaseOnNodes(_, nodes, reservation):
                job.resize(len(nodes), order)
                self._pin(job, nodes, len(nodes), reservation or "")
                self._make_eligible(job)
            case ReleaseToSlurm(_, min_nodes):
                job.resize(min_nodes, order)
                self._pin(job, order.nodes, min_nodes, job.reservation if order.keep_reservation else "")
                self._make_eligible(job)
            case Rehold(_, keep_reservation):
                self._check_pending(job)
                self._hold(job, Hold.USER)
                self._pin(job, (), job.min_nodes, job.reservation if keep_reservation else "")
            case Requeue(_, ended):
                self._requeue(job, ended)
            case Cancel():
                if job.state is State.PENDING:
                    self._end(job, "CANCELLED", 0)
            case Signal(_, signal):
                if job.state is State.RUNNING:
                    self.signals.append((self.now_s, job.job_id, signal))
                    self._checkpoint(job)

    def _check_pending(self, job: FakeJob) -> None:
        if job.state is State.ENDED:
            raise RefusedError("Job has already finished")
        if job.state is not State.PENDING:
            raise RefusedError("Job is no longer pending execution")

    def _pin(self, job: FakeJob, nodes: tuple[str, ...], node_count: int, reservation: str) -> None:
        """Set a pending job's node list and the rest that a placement sets."""
        self._check_pending(job)
        if any(node not in self._nodes for node in nodes):
            raise RefusedError("Invalid node name specified")
        if reservation and reservation not in self._reservations:
            raise RefusedError("Requested reservation is invalid")
        job.required_nodes, job.reservation, job.begin_s = nodes, reservation, self.now_s
        if node_count > job.max_nodes:
            raise RefusedError("Node count specification invalid")
        job.min_nodes = node_count

    def _make_eligible(self, job: FakeJob) -> None:
        """Let a job start, behind those that were released before."""
        self._hold(job, Hold.NONE)
        self._released[job.job_id] = job
        job.ready_s = max(job.begin_s, self.now_s + self.start_delay_s)
        if job.ready_s > self.now_s:
            self._at(job.ready_s, _nothing, job)

    def _hold(self, job: FakeJob, hold: Hold) -> None:
        self._released.pop(job.job_id, None)
        job.set_hold(hold)

    def _requeue(self, job: FakeJob, ended: bool) -> None:
        if job.state is State.RUNNING or (ended and job.state is State.ENDED):
            if not job.spec.requeue:
                raise RefusedError("Requested operation is presently disabled")
            self._requeue_now(job)
            self._hold(job, Hold.USER)

    def _checkpoint(self, job: FakeJob) -> None:
        after_s, code = job.spec.checkpoint_exit_s, job.spec.checkpoint_code
        if after_s is not None:
            leave = (
                partial(self._requeue_now, job) if code is None else partial(self._end, job, "FAILED", code)
            )
            self._at(self.now_s + after_s, leave, job)

    # What Slurm does by itself.

    def _schedule(self) -> None:
        """Start every released job that can start, those released earlier first."""
        held_up = False
        for job in list(self._released.values()):
            if job.state is State.PENDING and job.reason != "BadConstraints":
                if held_up and not job.required_nodes:
                    job.reason = "Priority"
                    continue
                job.reason = self._try_to_start(job)
                held_up = held_up or (self.in_order and bool(job.reason) and not job.required_nodes)

    def _try_to_start(self, job: FakeJob) -> str:
        """Start a job, or say why it waits."""
        if self.now_s < job.ready_s:
            return "BeginTime" if self.now_s < job.begin_s else ""
        if len(job.required_nodes) > max(job.min_nodes, job.spec.nodes):
            return "BadConstraints"
        if job.reservation and job.reservation not in self._reservations:
            return "Reservation"
        if self._is_throttled(job):
            return "JobArrayTaskLimit"
        if not all(self._may_use(job, name) for name in job.required_nodes):
            return "ReqNodeNotAvail"
        if reason := self._limit(job):
            return reason
        if self.told_blocks.refusal(job.required_nodes, job.spec.segment):
            return "BadConstraints"
        if any(self._nodes[name].memory_mb < job.spec.memory_mb for name in job.required_nodes):
            return "BadConstraints"
        names = job.required_nodes
        if len(names) < job.min_nodes:
            names = tuple(name for name in self._nodes if self._may_use(job, name))
        gpus = split_gpus(job, {name: self._free(job, name) for name in names})
        if gpus is None:
            return "Resources"
        self._start(job, gpus)
        return ""

    def _limit(self, job: FakeJob) -> str:
        """The limit that keeps a job from starting, whatever is free; empty if none does."""
        spec = job.spec
        rules = self.rules.get(spec.partition, Partition(spec.partition))
        if (job.limit_s or 0.0) > rules.longest_s:
            return "PartitionTimeLimit"
        if not rules.min_nodes <= job.min_nodes <= rules.max_nodes:
            return "PartitionNodeLimit"
        if not spec.licenses and spec.qos not in (*self.most_gpus, *self.most_minutes):
            return ""
        run = [other for other in self._jobs.values() if other.gpus]
        taken = sum(other.spec.licenses == spec.licenses for other in run)
        held = sum(sum(other.gpus.values()) for other in run if other.spec.qos == spec.qos)
        asked = spec.gpus or spec.gpus_per_node * job.min_nodes or spec.gpus_per_task * job.tasks
        if spec.licenses and taken >= self.total_licenses.get(spec.licenses, 0):
            return "Licenses"
        if held + asked > self.most_gpus.get(spec.qos, inf):
            return "QOSGrpGRES"
        minutes = self.spent_min.get(spec.qos, 0.0) + self._running_min(spec.qos)
        if minutes + asked * (job.limit_s or 0.0) / 60 > self.most_minutes.get(spec.qos, inf):
            return "QOSGrpGRESMinutes"
        return ""

    def _is_throttled(self, job: FakeJob) -> bool:
        most = job.spec.array_throttle
        alike = (other for other in self._jobs.values() if other.array_id == job.array_id and other.gpus)
        return bool(most) and sum(1 for _ in alike) >= most

    def _may_use(self, job: FakeJob, node: str) -> bool:
        """Whether a node is up and not kept for others."""
        spec, asked = job.spec, self._nodes[node]
        if self._node_states.get(node) or set(spec.partition.split(",")).isdisjoint(asked.partitions):
            return False
        if node in spec.excluded:
            return False
        constraint = spec.constraint.partition("*")[0]  # how many nodes must have it does not count here
        if constraint and not satisfies(constraint, frozenset(asked.features)):
            return False
        if not self._reservations.opens(job.spec.reservation, node, self.now_s):
            return False
        limit_s = UNLIMITED_S if job.limit_s is None else job.limit_s
        here = self._reservations.on(node, self.now_s + max(1.0, limit_s))
        return not here or (job.reservation, job.spec.user) in here

    def _free(self, job: FakeJob, name: str) -> int:
        """Free GPUs of a node that a job can use."""
        node = self._nodes[name]
        others = self._on[name].values()
        if job.spec.gpu_type not in ("", node.gpu_type) or (job.spec.exclusive and others):
            return 0
        cpus = sum(self._cpus(other, node) for other in others) + self._cpus(job, node)
        memory_mb = sum(other.spec.memory_mb for other in others) + job.spec.memory_mb
        return node.gpus - self._used[name] if cpus <= node.cpus and memory_mb <= node.memory_mb else 0

    @staticmethod
    def _cpus(job: FakeJob, node: FakeNode) -> float:
        """CPUs that a job takes of a node."""
        return node.cpus if job.spec.exclusive else max(job.spec.cpus, job.spec.tasks_per_node)

    def _start(self, job: FakeJob, gpus: Mapping[str, int]) -> None:
        del self._released[job.job_id]
        job.run_number += 1
        job.state, job.state_name, job.reason = State.RUNNING, "RUNNING", ""
        job.start_s, job.gpus = self.now_s, dict(gpus)
        if job.spec.exclusive:
            job.gpus = {name: self._nodes[name].gpus for name in gpus}
        self._used.update(job.gpus)
        for name in job.gpus:
            self._on[name][job.job_id] = job
        run_time_s, limit_s = job.remaining_s(), job.limit_s
        if self.enforces_limits and limit_s is not None and limit_s < run_time_s:
            self._at(self.now_s + limit_s, lambda: self._end(job, "TIMEOUT", 0), job)
        elif run_time_s != inf:
            name = "FAILED" if job.spec.exit_code else "COMPLETED"
            self._at(self.now_s + run_time_s, lambda: self._end(job, name, job.spec.exit_code), job)

    def _end(self, job: FakeJob, name: str, exit_code: int) -> None:
        self._released.pop(job.job_id, None)
        job.exit_code = exit_code
        self._stop(job, State.ENDED, name)
        self._at(self.now_s + self.remember_s, lambda: self._forget(job), job)

    def _forget(self, job: FakeJob) -> None:
        del self._jobs[job.job_id]

    def _requeue_now(self, job: FakeJob) -> None:
        """Requeue a job; it keeps its node list, and its submission is that of now."""
        job.restarts += 1
        job.submit_s, job.begin_s = self.now_s, self.now_s + REQUEUE_DELAY_S
        self._stop(job, State.PENDING, "PENDING")
        self._make_eligible(job)

    def _stop(self, job: FakeJob, state: State, name: str) -> None:
        """Take a job off its nodes, at once or after it has been completing."""
        job.run_number += 1
        job.keep_progress(self.now_s)
        if job.spec.qos in self.spent_min and job.start_s is not None:
            self.spent_min[job.spec.qos] += sum(job.gpus.values()) * (self.now_s - job.start_s) / 60

        def leave() -> None:
            self._used.subtract(job.gpus)
            for node in job.gpus:
                self._on[node].pop(job.job_id, None)
            job.gpus, job.state, job.state_name = {}, state, name
            if state is State.PENDING:
                job.start_s = None

        if self.completing_s and job.gpus:
            job.state, job.state_name = State.COMPLETING, "COMPLETING"
            self._at(self.now_s + self.completing_s, leave, job)
        else:
            leave()


def _nothing() -> None:
    """An event that only lets Slurm look again."""
