"""The part of a Slurm in memory that acts by itself: time passes, and jobs start, run and end.

What Slurm does within moments happens at once; a job that waits for busy nodes holds up no other, as with
Slurm's backfill.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf

from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.slurm import Hold, Partition, State
from slurm_plugin.constraint import satisfies
from tests.slurm_plugin.fake_events import FakeEvents
from tests.slurm_plugin.fake_job import FakeJob, FakeNode, split_gpus
from tests.slurm_plugin.fake_reservations import FakeReservations

REQUEUE_DELAY_S = 121.0
UNLIMITED_S = 365 * 86_400.0


class FakeCluster:
    """Nodes and the jobs on them.

    Attributes:
        now_s: Its time, seconds.
        start_delay_s: From release to start.
        completing_s: How long a job that ends or is requeued still holds its nodes.
        remember_s: How long ended jobs are shown.
        enforces_limits: Jobs are stopped at their time limits.
        in_order: A job without a node list that waits holds up those without that came later.
        total_licenses: How many there are of each licence.
        most_gpus: Most GPUs that the jobs of a QOS may hold at once, by QOS.
        most_minutes: Most GPU minutes that the jobs of a QOS may have, by QOS, enforced as with `safe`.
        spent_min: Of these, what jobs had that have ended.
        told_blocks: The blocks; it starts no job farther apart than they and its segment allow.
        shared: GPUs of which jobs that are not shown have parts, by node.
        rules: What partitions demand, by name; those not named demand nothing.
    """

    def __init__(
        self,
        nodes: Sequence[FakeNode],
        now_s: float = 0.0,
        start_delay_s: float = 0.0,
        completing_s: float = 0.0,
        remember_s: float = 300.0,
    ) -> None:
        self.now_s = now_s
        self.start_delay_s = start_delay_s
        self.completing_s = completing_s
        self.remember_s = remember_s
        self.enforces_limits = True
        self.in_order = False
        self.total_licenses: dict[str, int] = {}
        self.most_gpus: dict[str, int] = {}
        self.most_minutes: dict[str, float] = {}
        self.spent_min: dict[str, float] = {}
        self.told_blocks = BlockTopology()
        self.shared: Counter[str] = Counter()
        self.rules: dict[str, Partition] = {}
        self._nodes = {node.name: node for node in nodes}
        self._node_states: dict[str, str] = {}
        self._used: Counter[str] = Counter()
        self._on: dict[str, dict[str, FakeJob]] = {node.name: {} for node in nodes}
        self._jobs: dict[str, FakeJob] = {}
        self._released: dict[str, FakeJob] = {}
        self._reservations = FakeReservations(self._nodes)
        self._events = FakeEvents()

    @property
    def busy(self) -> bool:
        """Whether any job has not ended."""
        return any(job.state is not State.ENDED for job in self._jobs.values())

    @property
    def next_event_s(self) -> float | None:
        """When something will happen by itself; None if nothing will."""
        return self._events.next_s

    def advance(self, to_s: float) -> None:
        """Let time pass; what happens until then, at that moment included, happens in order."""
        while (at_s := self.next_event_s) is not None and at_s <= to_s:
            self.now_s = max(self.now_s, at_s)
            self._events.happen(at_s)
            self._schedule()
        self.now_s = max(self.now_s, to_s)

    def _make_eligible(self, job: FakeJob) -> None:
        """Let a job start, behind those that were released before."""
        self._hold(job, Hold.NONE)
        self._released[job.job_id] = job
        job.ready_s = max(job.begin_s, self.now_s + self.start_delay_s)
        if job.ready_s > self.now_s:
            self._events.add(job.ready_s, _nothing, job)

    def _hold(self, job: FakeJob, hold: Hold) -> None:
        self._released.pop(job.job_id, None)
        job.set_hold(hold)

    def _schedule(self) -> None:
        """Start every released job that can start, those released earlier first."""
        held_up = False
        for job in list(self._released.values()):
            if job.spec.deadline_s and self.now_s + (job.limit_s or 0.0) > job.spec.deadline_s:
                self._end(job, "DEADLINE", 0)
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
        spec = job.spec
        layout = spec.spreads_segments, spec.consolidates_segments
        if self.told_blocks.refusal(job.required_nodes, spec.segment, *layout):
            return "BadConstraints"
        if job.spec.hidden_segment and job.required_nodes:
            return "BadConstraints"
        if any(self._nodes[name].memory_mb < self.memory_mb(job) for name in job.required_nodes):
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

    def _running_min(self, qos: str) -> float:
        """GPU minutes that the jobs of a QOS may take that run now, from their start to their limit."""
        run = (job for job in self._jobs.values() if job.gpus and job.spec.qos == qos)
        return sum(sum(job.gpus.values()) * (job.limit_s or 0.0) / 60 for job in run)

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
        beside = self._beside(name, job) if self.told_blocks.block_of else []
        if any(job.spec.whole_blocks or other.spec.whole_blocks for other in beside):
            return 0
        if job.spec.gpu_type not in ("", node.gpu_type) or (job.spec.exclusive and others):
            return 0
        cpus = sum(self._cpus(other, node) for other in others) + self._cpus(job, node)
        memory_mb = sum(map(self.memory_mb, others)) + self.memory_mb(job)
        has_room = cpus <= node.cpus and memory_mb <= node.memory_mb
        alike = (other for other in others if other.spec.partition == job.spec.partition)
        of_partition = sum(self._cpus(each, node) for each in (*alike, job))
        rules = self.rules.get(job.spec.partition, Partition(job.spec.partition))
        has_room = has_room and of_partition <= rules.cpus_per_node
        return node.gpus - self._used[name] - self.shared[name] if has_room else 0

    def _beside(self, name: str, job: FakeJob | None = None) -> list[FakeJob]:
        """Other jobs in the block of a node."""
        of = next(iter(self.told_blocks.block_of.values()), {})
        block = of.get(name, name)
        on = (self._on[each].values() for each in self._nodes if of.get(each, each) == block)
        return [other for others in on for other in others if other is not job]

    def _is_blocked(self, name: str) -> bool:
        """Whether a job beside a node shares its block with nobody."""
        return not self._on[name] and any(other.spec.whole_blocks for other in self._beside(name))

    def memory_mb(self, job: FakeJob) -> int:
        """Memory that a job takes of each node: what it asks for, or has by default for each GPU."""
        rules = self.rules.get(job.spec.partition, Partition(job.spec.partition))
        return job.spec.memory_mb or rules.defaults.memory_per_gpu_mb * job.spec.gpus_per_node

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
            self._events.add(self.now_s + limit_s, lambda: self._end(job, "TIMEOUT", 0), job)
        elif run_time_s != inf:
            name = "FAILED" if job.spec.exit_code else "COMPLETED"
            self._events.add(self.now_s + run_time_s, lambda: self._end(job, name, job.spec.exit_code), job)

    def _end(self, job: FakeJob, name: str, exit_code: int) -> None:
        self._released.pop(job.job_id, None)
        job.exit_code = exit_code
        self._stop(job, State.ENDED, name)
        self._events.add(self.now_s + self.remember_s, lambda: self._forget(job), job)

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
            self._events.add(self.now_s + self.completing_s, leave, job)
        else:
            leave()

    def _forget_reservations(self) -> None:
        """Reservations that are over go, and jobs that wait for one go on without, whoever holds them."""
        over = self._reservations.end(self.now_s)
        for job in self._jobs.values():
            if job.reservation in over and job.state is State.PENDING:
                if job.reservation == job.spec.reservation:
                    self._hold(job, Hold.ADMIN)
                    job.state_name, job.reason = "RESV_DEL_HOLD", "ReservationDeleted"
                job.reservation = ""


def _nothing() -> None:
    """An event that only lets Slurm look again."""
