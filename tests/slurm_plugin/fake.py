"""A Slurm in memory, for tests and measurements: it answers like a real one, its time moves when told.

`tests/slurm_plugin/client/test_contract.py` holds it to real Slurm.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
    Look,
    Partition,
    PriorityFactors,
    Reservation,
    SlurmJob,
    SlurmNode,
    SlurmUnavailableError,
    State,
)
from tests.slurm_plugin.fake_cluster import FakeCluster
from tests.slurm_plugin.fake_job import FakeJob, FakeNode, SubmitSpec
from tests.slurm_plugin.fake_reservations import FENCE_S, RefusedError


class FakeSlurm(FakeCluster):
    """A cluster that is only imagined; implements `Slurm`.

    Attributes:
        may_annotate: We may change admin comments, as administrators of accounting and SlurmUser may.
        unavailable: Every call raises, as if slurmctld were down.
        told_limits: The limits that are told; None: slurmdbd is away.
        booted: When slurmctld was started.
        safe: It is told that jobs must be able to run to their end under limits on minutes.
        factors: What priorities are made of; None: that cannot be read.
        breaks_after: `run` raises once it has carried out this many orders; None for never.
        refuse: What Slurm says against every order for a job, by job.
        accounting: The ended jobs that accounting has; None: there is no accounting.
        signals: The signals that running jobs got: time, job and signal.
    """

    def __init__(
        self, nodes: Sequence[FakeNode], clock: Callable[[], float] | None = None, **delays_s: float
    ) -> None:
        super().__init__(nodes, clock() if clock else 0.0, **delays_s)
        self.may_annotate = True
        self.unavailable = False
        self.told_limits: tuple[ResourceLimit, ...] | None = ()
        self.safe = False
        self.booted = 0.0
        self.private = False
        self.factors: PriorityFactors | None = PriorityFactors()
        self.breaks_after: int | None = None
        self.refuse: dict[str, str] = {}
        self.accounting: tuple[Job, ...] | None = ()
        self.signals: list[tuple[float, str, str]] = []
        self._clock = clock
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
        return tuple(map(self._view, self._nodes.values()))

    def _view(self, node: FakeNode) -> SlurmNode:
        on = self._on[node.name].values()
        shown = node.view(
            self._node_states.get(node.name, "blocked" if self._is_blocked(node.name) else ""),
            self._used[node.name],
            sum(self._cpus(job, node) for job in on),
            sum(map(self.memory_mb, on)),
        )
        return replace(shown, gpus_shared=self.shared[node.name]) if self.shared[node.name] else shown

    def reservations(self) -> tuple[Reservation, ...]:
        """All reservations, fences included."""
        self._answer()
        return tuple(self._reservations)

    def look(self) -> Look:
        """Jobs, nodes and reservations."""
        return Look(self.jobs(), self.nodes(), self.reservations(), self.partitions())

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

    def booted_s(self) -> float:
        """When slurmctld was started."""
        self._answer()
        return self.booted

    def hides_jobs(self) -> bool:
        """Whether users see their own jobs alone."""
        return self.private

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
        if job.state in (State.PENDING, State.RUNNING, State.SUSPENDED):
            self._end(job, "CANCELLED", 0)
        self._schedule()

    def requeue(self, job_id: str) -> None:
        """Put a running job back, as its user may."""
        self._requeue_now(self._jobs[job_id])
        self._schedule()

    def requeue_held(self, job_id: str) -> None:
        """Put a running job back to be held, as its user or an administrator may."""
        self._requeue_held(self._jobs[job_id])
        self._schedule()

    def forget_start(self, job_id: str) -> None:
        """Show a job as held again, as a slurmctld does that was killed before it saved what came after."""
        job = self._jobs[job_id]
        if job.state is State.RUNNING:
            self._stop(job, State.PENDING, "PENDING")
        job.required_nodes, job.reservation = (), ""
        self._hold(job, Hold.USER)
        job.requeued_held = job.restarts > 0

    def shrink(self, job_id: str, *nodes: str) -> None:
        """Take nodes from a running job, as its user may."""
        job = self._jobs[job_id]
        self._used.subtract({node: job.gpus[node] for node in nodes})
        for node in nodes:
            del self._on[node][job_id]
        job.gpus = {node: gpus for node, gpus in job.gpus.items() if node not in nodes}
        job.min_nodes = len(job.gpus)
        self._schedule()

    def suspend(self, job_id: str) -> None:
        """An administrator suspends a running job; it keeps its GPUs, and writes no checkpoint."""
        job = self._jobs[job_id]
        job.state, job.state_name = State.SUSPENDED, "SUSPENDED"

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
            self._events.add(at_s, self._forget_reservations)

    # Orders.

    def _run(self, order: Order) -> str | None:
        try:
            if isinstance(order, ReservationOrder):
                self._reservations.run(order, self.now_s)
                if isinstance(order, Reserve):
                    over_s = (order.start_s or self.now_s) + order.minutes * FENCE_S
                    self._events.add(over_s, self._forget_reservations)
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

    def _requeue(self, job: FakeJob, ended: bool) -> None:
        if job.state is State.RUNNING or (ended and job.state is State.ENDED):
            if not job.spec.requeue:
                raise RefusedError("Requested operation is presently disabled")
            self._requeue_held(job)

    def _requeue_held(self, job: FakeJob) -> None:
        self._requeue_now(job)
        self._hold(job, Hold.USER)
        job.requeued_held = True

    def _checkpoint(self, job: FakeJob) -> None:
        after_s, code = job.spec.checkpoint_exit_s, job.spec.checkpoint_code
        if after_s is not None:
            leave = (
                partial(self._requeue_now, job) if code is None else partial(self._end, job, "FAILED", code)
            )
            self._events.add(self.now_s + after_s, leave, job)
