"""A job of the fake Slurm: what was submitted, what has become of it, and which nodes would do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from dally.jobs.job import CHECKPOINTED
from slurm_plugin.client.orders import ReleaseOnNodes, ReleaseToSlurm
from slurm_plugin.client.slurm import Hold, SlurmJob, SlurmNode, State

RunTime = float | Callable[[Mapping[str, int]], float]


_SHOWS_GPUS = (State.RUNNING, State.SUSPENDED)


@dataclass(frozen=True, slots=True)
class FakeNode:
    """A node: its name, GPUs, the partitions it is in, its GPUs' type, its CPUs, memory and features."""

    name: str
    gpus: int = 8
    partitions: tuple[str, ...] = ("gpu",)
    gpu_type: str = ""
    cpus: float = inf
    memory_mb: float = inf
    features: tuple[str, ...] = ()

    def view(self, state: str, used: int, cpus_used: float, memory_used_mb: float) -> SlurmNode:
        """The node as Slurm shows it, in a state (empty: up), with so much in use."""
        base = "mixed" if used else "idle"
        name = {"": base, "drain": f"{base}+drain", "blocked": f"{base}+blocked"}.get(state, state)
        return SlurmNode(
            self.name,
            not state,
            name,
            self.gpus,
            used,
            self.partitions,
            memory_mb=0 if self.memory_mb == inf else self.memory_mb,
            features=frozenset(self.features),
            cpus=0 if self.cpus == inf else self.cpus,
            cpus_used=cpus_used,
            memory_used_mb=memory_used_mb,
            gres=f"gpu:{self.gpu_type}:{self.gpus}" if self.gpu_type else f"gpu:{self.gpus}",
            blocked=state == "blocked",
        )


@dataclass(frozen=True, slots=True)
class SubmitSpec:
    """What a user submits.

    Attributes:
        nodes: Fewest nodes.
        max_nodes: Most nodes, 0 for as many as it takes; with `gpus_per_node` always `nodes`.
        gpus_per_node: GPUs on each node (`--gres`).
        gpus: GPUs altogether (`--gpus`), if not by node.
        gpus_per_task: GPUs of each task, if neither.
        gpu_type: The only type of GPU that will do; empty for any.
        cpus: CPUs on each node.
        memory_mb: Memory on each node.
        exclusive: It shares its nodes with nobody, and gets all their GPUs.
        constraint: Its `--constraint`; empty for none.
        excluded: Nodes that it must not use.
        segment: Nodes of each of its segments; 0 if it has none.
        spreads_segments: Each must be in another block.
        consolidates_segments: They must lie close together.
        whole_blocks: No other job may have a node in the blocks of its own.
        hidden_segment: It has one that is not shown, as before 25.05: it starts on no node list.
        reservation: Its reservation; empty for none.
        licenses: The one licence that it needs, by name; empty for none.
        tasks: Tasks altogether; 0 for `tasks_per_node` on each node.
        tasks_per_node: Tasks on each node, if they are not counted altogether.
        run_time_s: How long it runs once started, or a function of its GPUs by node that says so, seconds.
        resumes: Put back, it goes on from where it was; else it begins anew.
        exit_code: What its script ends with.
        checkpoint_exit_s: A signal makes it end so much later, as one that has written its checkpoint.
        checkpoint_code: What it ends with then; None: it requeues itself instead.
        user: Its user.
        account: Its account.
        job_name: What its user calls it.
        qos: Its QOS.
        partition: Partition.
        comment: The user's comment.
        time_limit_s: It is stopped after this, seconds.
        requeue: It may be requeued.
        held: Submitted with `--hold`.
        begin_s: It may not start before.
        deadline_s: It is cancelled where its limit would end later; 0 for none.
        array: Numbers of the tasks, if it is an array.
        array_throttle: Most tasks that may run at once; 0 for no limit.
    """

    nodes: int = 1
    max_nodes: int = 0
    gpus_per_node: int = 0
    gpus: int = 0
    gpus_per_task: int = 0
    gpu_type: str = ""
    cpus: int = 0
    memory_mb: int = 0
    exclusive: bool = False
    constraint: str = ""
    excluded: tuple[str, ...] = ()
    segment: int = 0
    spreads_segments: bool = False
    consolidates_segments: bool = False
    whole_blocks: bool = False
    hidden_segment: bool = False
    reservation: str = ""
    licenses: str = ""
    tasks: int = 0
    tasks_per_node: int = 1
    run_time_s: RunTime = inf
    resumes: bool = False
    exit_code: int = 0
    checkpoint_exit_s: float | None = None
    checkpoint_code: int | None = CHECKPOINTED
    user: str = "alice"
    account: str = ""
    job_name: str = ""
    qos: str = ""
    partition: str = "gpu"
    comment: str = ""
    time_limit_s: float | None = None
    requeue: bool = True
    held: bool = True
    begin_s: float = 0.0
    deadline_s: float = 0.0
    array: tuple[int, ...] = ()
    array_throttle: int = 0

    @property
    def most_nodes(self) -> float:
        """Most nodes it can be given."""
        return self.max_nodes or (self.nodes if self.gpus_per_node else inf)


@dataclass(slots=True)
class FakeJob:
    """A job (or task of an array) as it is now; the fields are those of `SlurmJob`.

    Attributes:
        ready_s: When it may start after its release.
        max_nodes: Most nodes it can be given.
        tasks: Its tasks.
        limit_s: Its time limit.
        done: How much of its run is behind it, 0 to 1; more than 0 only if it resumes.
        run_number: Counts starts and stops, so that an event of an earlier run is known as such.
    """

    job_id: str
    spec: SubmitSpec
    submit_s: float
    array_id: str = ""
    state: State = State.PENDING
    state_name: str = "PENDING"
    reason: str = ""
    hold: Hold = Hold.NONE
    requeued_held: bool = False
    min_nodes: int = 1
    max_nodes: float = inf
    tasks: int = 1
    limit_s: float | None = None
    done: float = 0.0
    required_nodes: tuple[str, ...] = ()
    reservation: str = ""
    begin_s: float = 0.0
    start_s: float | None = None
    gpus: Mapping[str, int] = field(default_factory=dict)
    restarts: int = 0
    exit_code: int = 0
    admin_comment: str = ""
    ready_s: float = 0.0
    run_number: int = 0

    def reset_size(self) -> None:
        """Set nodes, tasks and time limit to what the job was submitted with."""
        self.limit_s = self.spec.time_limit_s
        self.min_nodes, self.max_nodes = self.spec.nodes, self.spec.most_nodes
        self.tasks = self.spec.tasks or self.spec.nodes * self.spec.tasks_per_node

    def remaining_s(self) -> float:
        """Return how long the rest of the job's run takes on the GPUs that it has."""
        run_time = self.spec.run_time_s
        return (1 - self.done) * (run_time(self.gpus) if callable(run_time) else run_time)

    def keep_progress(self, now: float) -> None:
        """Keep what a job that resumes has done since its start, as it is stopped."""
        if self.spec.resumes and self.start_s is not None and self.gpus and self.done < 1:
            self.done += (1 - self.done) * min(1.0, (now - self.start_s) / self.remaining_s())

    def resize(self, nodes: int, order: ReleaseOnNodes | ReleaseToSlurm) -> None:
        """Set the tasks of a pending job, its most nodes and its time limit, if the order says so."""
        if self.state is State.PENDING:
            self.tasks = order.tasks or self.tasks
            self.max_nodes = nodes if order.exact else self.max_nodes
            self.limit_s = 60.0 * order.limit_min if order.limit_min else self.limit_s

    def set_hold(self, hold: Hold) -> None:
        """Hold the job, or end its hold."""
        self.hold = hold
        self.requeued_held = self.requeued_held and hold is not Hold.NONE
        self.reason = {Hold.USER: "JobHeldUser", Hold.ADMIN: "JobHeldAdmin", Hold.NONE: ""}[hold]

    def view(self) -> SlurmJob:
        """The job as Slurm shows it; the GPUs of a job that is coming to its end are not shown."""
        spec, waits = self.spec, self.state is State.PENDING
        return SlurmJob(
            job_id=self.job_id,
            submit_s=self.submit_s,
            state=self.state,
            state_name=self.state_name,
            reason=self.reason,
            hold=self.hold if waits else Hold.NONE,
            requeued_held=waits and self.requeued_held,
            user=spec.user,
            account=spec.account,
            job_name=spec.job_name,
            qos=spec.qos,
            licenses=spec.licenses,
            segment=spec.segment,
            spreads_segments=spec.spreads_segments,
            consolidates_segments=spec.consolidates_segments,
            whole_blocks=spec.whole_blocks,
            memory_per_node_mb=spec.memory_mb,
            cpus_per_node=max(1, spec.cpus),
            exclusive=spec.exclusive,
            features=spec.constraint,
            excluded_nodes=spec.excluded,
            partition=spec.partition,
            comment=spec.comment,
            admin_comment=self.admin_comment,
            min_nodes=self.min_nodes,
            tasks=self.tasks,
            tasks_per_node=spec.tasks_per_node if spec.tasks_per_node > 1 else None,
            tres_per_job=_tres(spec.gpu_type, spec.gpus),
            tres_per_node=_tres(spec.gpu_type, spec.gpus_per_node),
            tres_per_task=_tres(spec.gpu_type, spec.gpus_per_task),
            required_nodes=self.required_nodes,
            reservation=self.reservation,
            begin_s=self.begin_s,
            deadline_s=spec.deadline_s,
            time_limit_s=self.limit_s,
            start_s=self.start_s,
            nodes=tuple(self.gpus),
            gpus={node: n for node, n in self.gpus.items() if n} if self.state in _SHOWS_GPUS else {},
            requeue=spec.requeue,
            restarts=self.restarts,
            exit_code=self.exit_code,
            array_id=self.array_id,
            array_throttle=spec.array_throttle,
            tres=self._tres(),
        )

    def _tres(self) -> Mapping[str, float]:
        """What the job asks for, as accounting counts it."""
        spec = self.spec
        gpus = spec.gpus or spec.gpus_per_node * self.min_nodes or spec.gpus_per_task * self.tasks
        tres: dict[str, float] = {
            "cpu": max(self.tasks, spec.cpus * self.min_nodes),
            "node": self.min_nodes,
            "gres/gpu": gpus,
        }
        return tres | ({f"gres/gpu:{spec.gpu_type}": gpus} if spec.gpu_type else {})


def _tres(gpu_type: str, gpus: int) -> str:
    """GPUs asked for, in Slurm's words; nothing for none."""
    kind = f"{gpu_type}:" if gpu_type else ""
    return f"gres:gpu:{kind}{gpus}" if gpus else ""


def split_gpus(job: FakeJob, free: Mapping[str, int]) -> dict[str, int] | None:
    """GPUs that a job would get by node; None if they do not suffice.

    Args:
        job: The job.
        free: Free GPUs of the nodes it may use, the required ones first. As Slurm does, a job that asks for a
            number of GPUs altogether gets as many as it can on the first nodes and one at least on each.
    """
    required = [node for node in job.required_nodes if node in free]
    if len(required) < len(job.required_nodes):
        return None
    order = [*required, *(node for node in free if node not in required)]
    fewest = max(job.min_nodes, len(required))
    gpus = job.spec.gpus or job.tasks * job.spec.gpus_per_task
    if gpus:
        most = min(len(order), int(min(job.max_nodes, gpus)))
        tries = (_split(gpus, order[:count], free) for count in range(fewest, max(fewest, most) + 1))
        return next((split for split in tries if split), None)
    chosen = [*required, *(node for node in order[len(required) :] if free[node] >= job.spec.gpus_per_node)]
    chosen = chosen[:fewest]
    if len(chosen) < fewest or any(free[node] < job.spec.gpus_per_node for node in chosen):
        return None
    return dict.fromkeys(chosen, job.spec.gpus_per_node)


def _split(gpus: int, nodes: Sequence[str], free: Mapping[str, int]) -> dict[str, int] | None:
    split: dict[str, int] = {}
    for index, node in enumerate(nodes):
        later = len(nodes) - index - 1
        split[node] = min(free[node], gpus - sum(split.values()) - later)
    return split if sum(split.values()) == gpus and all(count > 0 for count in split.values()) else None
