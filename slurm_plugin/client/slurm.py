"""What Dally needs of Slurm: one typed interface, whatever carries it (command line, pyslurm, a fake)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from math import inf
from typing import NamedTuple, Protocol

from dally.errors import DallyError
from dally.jobs.job import Job
from slurm_plugin.client.accounting_limits import AccountingLimits
from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.orders import Order


class SlurmUnavailableError(DallyError):
    """Slurm did not answer, or not in time; what it was asked to do may or may not have happened."""


class State(StrEnum):
    """A job's state, as far as Dally tells states apart.

    PENDING waits, RUNNING holds nodes and runs (or is being set up), COMPLETING still holds nodes but is
    coming to its end (or, requeued, on its way back to PENDING), SUSPENDED holds its GPUs and makes no
    progress, ENDED has left, UNKNOWN is a state of a Slurm newer than this program.
    """

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETING = "completing"
    ENDED = "ended"
    UNKNOWN = "unknown"


HOLDS_GPUS = (State.RUNNING, State.SUSPENDED, State.COMPLETING, State.UNKNOWN)
"""States in which a job may hold GPUs."""


class Hold(StrEnum):
    """Who holds a pending job: nobody, its user (so wait all jobs that wait for Dally), or an administrator.

    A job that Slurm put back held after a requeue counts as held by its user.
    """

    NONE = "none"
    USER = "user"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job as Slurm shows it.

    Text of users is as they wrote it: never trust it, never put it on a command line.

    Attributes:
        job_id: Its number, `17`, or for a task of an array `17_3`.
        submit_s: Submission, seconds since 1970; Slurm may give a number twice, with another submission.
        state: See `State`.
        state_name: The state in Slurm's own words, like COMPLETED or TIMEOUT.
        reason: Why it is pending, in Slurm's words; empty if nothing is said.
        hold: Who holds it, while it is pending.
        user: Name of its user.
        account: Account it is charged to; empty if none.
        job_name: What its user calls it; empty if nothing.
        qos: Its QOS; empty if none.
        nice: What its user or an operator takes off its priority.
        licenses: Licences it asks for, like `matlab:2,ansys`; empty if none.
        memory_per_node_mb: Memory it asks for on each node; 0 if not so asked.
        memory_per_cpu_mb: Memory it asks for with each CPU; 0 if not so asked.
        memory_per_gpu_mb: Memory it asks for with each GPU; 0 if not so asked.
        partition: Partition; several, separated by commas, while it may still start in any of them.
        comment: The user's comment, in which `dally-sbatch` says what the job is.
        admin_comment: Comment that only job_submit.lua and operators can write.
        min_nodes: Fewest nodes it asks for.
        max_nodes: Most nodes it asks for (`--nodes`), while it waits; 0 if it says nothing.
        tasks: Number of tasks.
        tasks_per_node: Tasks on each node; None if not asked for.
        cpus_per_task: CPUs of each task, while it waits.
        cpus_per_node: Fewest CPUs of each node (`--mincpus`, or what a task takes).
        cpus_per_gpu: CPUs it asks for with each GPU; 0 if not so asked.
        tmp_disk_mb: Temporary disk that its nodes must have (`--tmp`); 0 if not asked for.
        tres_per_job: What `--gpus` asked for, like `gres:gpu:h100:16`; empty if nothing; so the next three.
        tres_per_node: What `--gres` or `--gpus-per-node` asked for.
        tres_per_task: What `--gpus-per-task` asked for.
        tres_per_socket: What `--gpus-per-socket` asked for.
        required_nodes: Node list it is pinned to, expanded; empty if none.
        excluded_nodes: Nodes it must not use, expanded.
        features: Its `--constraint`; empty if none.
        reservation: Reservation it asks for; empty if none.
        exclusive: It shares its nodes with nobody.
        switches: Most leaf switches it accepts (`--switches`); 0 if not asked for.
        segment: Nodes of each of its segments (`--segment`); 0 if not asked for, or not shown (before 25.05).
        spreads_segments: Each of them must be in another block (`--spread-segments`).
        consolidates_segments: They must lie close together (`--consolidate-segments`).
        whole_blocks: No other job may have a node in the blocks of its own (`--exclusive=topo`).
        heterogeneous: It is a part of a heterogeneous job.
        dependency: What it still depends on; empty if nothing.
        begin_s: It may not start before, seconds since 1970; 0 for at once.
        deadline_s: Slurm ends it where its limit goes beyond that (`--deadline`), seconds since 1970; 0 if it
            has none.
        time_limit_s: Its time limit, seconds; None for unlimited or the partition's.
        start_s: When it started running, seconds since 1970; None while it is pending.
        nodes: Nodes it holds, expanded.
        gpus: GPUs it holds on each of them, by node; nodes without are left out.
        requeue: It may be requeued.
        restarts: How often it was requeued.
        requeued_held: Whoever last requeued it, be it Dally, had it held (`scontrol requeuehold`).
        exit_code: Exit code of its script, once it ended.
        array_id: Number of its array; empty if none.
        array_throttle: Most tasks of the array that may run at once; 0 for no limit.
        tres: What it holds, or asks for while it waits, as Slurm counts it: `cpu`, `mem` (MB), `node`,
            `gres/gpu:a100` and so on, as far as the site accounts for it.
    """

    job_id: str
    submit_s: float
    state: State
    state_name: str = ""
    reason: str = ""
    hold: Hold = Hold.NONE
    user: str = ""
    account: str = ""
    job_name: str = ""
    qos: str = ""
    nice: int = 0
    licenses: str = ""
    memory_per_node_mb: int = 0
    memory_per_cpu_mb: int = 0
    memory_per_gpu_mb: int = 0
    partition: str = ""
    comment: str = ""
    admin_comment: str = ""
    min_nodes: int = 1
    max_nodes: int = 0
    tasks: int = 1
    tasks_per_node: int | None = None
    cpus_per_task: int = 1
    cpus_per_node: int = 1
    cpus_per_gpu: int = 0
    tmp_disk_mb: int = 0
    tres_per_job: str = ""
    tres_per_node: str = ""
    tres_per_task: str = ""
    tres_per_socket: str = ""
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    features: str = ""
    reservation: str = ""
    exclusive: bool = False
    switches: int = 0
    segment: int = 0
    spreads_segments: bool = False
    consolidates_segments: bool = False
    whole_blocks: bool = False
    heterogeneous: bool = False
    dependency: str = ""
    begin_s: float = 0.0
    deadline_s: float = 0.0
    time_limit_s: float | None = None
    start_s: float | None = None
    nodes: tuple[str, ...] = ()
    gpus: Mapping[str, int] = field(default_factory=dict)
    requeue: bool = True
    restarts: int = 0
    requeued_held: bool = False
    exit_code: int = 0
    array_id: str = ""
    array_throttle: int = 0
    tres: Mapping[str, float] = field(default_factory=dict)

    @property
    def arrival(self) -> tuple[float, tuple[int, ...]]:
        """What orders jobs by arrival, see `arrival`."""
        return arrival(self.submit_s, self.job_id)


@lru_cache(maxsize=1 << 16)
def arrival(submit_s: float, job_id: str) -> tuple[float, tuple[int, ...]]:
    """What orders jobs by arrival: submission, then number, 17 before 17_3 before 100."""
    return submit_s, tuple(int(part) for part in job_id.split("_"))


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node.

    Attributes:
        name: Its name.
        available: Slurm would start a job on it: not down, draining, rebooting or unknown.
        state_name: Its state in Slurm's own words, with flags, like `mixed+drain`.
        gpus: GPUs configured.
        gpus_used: Of these, in use by any job.
        partitions: Partitions it is in.
        memory_mb: Memory that jobs may have; 0 if unknown.
        features: Its active features, which `--constraint` names.
        cpus: CPUs that jobs may have; 0 if unknown.
        cpus_used: Of these, allocated.
        memory_used_mb: Of its memory, allocated.
        gres: What is configured beside CPUs and memory, in Slurm's own words, like `gpu:h100:8`.
        blocked: It is not available only for as long as a job beside it shares its blocks with nobody.
        gpus_shared: GPUs of which jobs have parts (`--gres=shard:1`, MPS), so that nobody gets them whole;
            they do not count as used.
        tmp_disk_mb: Temporary disk, of which jobs take nothing from each other.
        threads_per_core: CPUs of each core; Slurm gives no two jobs CPUs of one core.
    """

    name: str
    available: bool
    state_name: str
    gpus: int
    gpus_used: int
    partitions: tuple[str, ...]
    memory_mb: float = 0
    features: frozenset[str] = frozenset()
    cpus: float = 0
    cpus_used: float = 0
    memory_used_mb: float = 0
    gres: str = ""
    blocked: bool = False
    gpus_shared: int = 0
    threads_per_core: int = 1
    tmp_disk_mb: float = 0


@dataclass(frozen=True, slots=True)
class Reservation:
    """One reservation.

    Attributes:
        name: Its name.
        nodes: Its nodes, expanded.
        start_s: When it begins, seconds since 1970.
        end_s: When it is over, likewise.
        maintenance: It is for maintenance.
        cpus: CPUs of its nodes that it is for; inf if that is not known, and taken as all.
        bounds_jobs: Its jobs run on its nodes, within its time, and nowhere else.
    """

    name: str
    nodes: tuple[str, ...]
    start_s: float
    end_s: float
    maintenance: bool = False
    cpus: float = inf
    bounds_jobs: bool = True


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """What a partition gives jobs that say nothing of it.

    Slurm shows CPUs and memory by GPU of a job only once it has looked for nodes for it, which it does not
    while the job is held; the others it shows at once, as if the job had asked for them.

    Attributes:
        cpus_per_gpu: CPUs for each GPU (DefCpuPerGPU); 0 for none.
        memory_per_gpu_mb: Memory for each GPU (DefMemPerGPU), which goes before the next two.
        memory_per_cpu_mb: Memory for each CPU (DefMemPerCPU).
        memory_per_node_mb: Memory on each node (DefMemPerNode).
    """

    cpus_per_gpu: int = 0
    memory_per_gpu_mb: int = 0
    memory_per_cpu_mb: int = 0
    memory_per_node_mb: int = 0


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition, and which jobs it takes.

    Attributes:
        name: Its name.
        longest_s: The longest time limit of its jobs, seconds; inf for none.
        min_nodes: Fewest nodes that it gives a job.
        max_nodes: Most nodes of a job; inf for any number.
        cpus_per_node: Most CPUs that all its jobs have of a node together; inf for all.
        starts_jobs: It is neither down nor inactive.
        qos: The QOS whose limits its jobs are under beside their own; empty if none.
        accounts: The only accounts that may use it; None for all but `denied_accounts`.
        denied_accounts: Accounts that may not.
        groups: The only Unix groups whose users may use it; None for all.
        allowed_qos: The only QOS that jobs in it may have; None for all but `denied_qos`.
        denied_qos: QOS that they may not have.
        defaults: What it gives jobs that say nothing of it; the cluster's where it has none.
        exclusive_by: The setting by which jobs share nodes or blocks with certain jobs only (ExclusiveUser,
            ExclusiveTopo); empty if it has none.
    """

    name: str
    longest_s: float = inf
    min_nodes: int = 0
    max_nodes: float = inf
    cpus_per_node: float = inf
    starts_jobs: bool = True
    qos: str = ""
    accounts: frozenset[str] | None = None
    denied_accounts: frozenset[str] = frozenset()
    groups: frozenset[str] | None = None
    allowed_qos: frozenset[str] | None = None
    denied_qos: frozenset[str] = frozenset()
    defaults: JobDefaults = JobDefaults()
    exclusive_by: str = ""


@dataclass(frozen=True, slots=True)
class PriorityFactors:
    """Weights and factors of Slurm's priority; without weights all jobs have the same.

    Attributes:
        weight_age: PriorityWeightAge; the next four likewise.
        weight_fair_share: Of the fair share of a job's association.
        weight_job_size: Of the part of the cluster's nodes and CPUs that it asks for.
        weight_partition: Of its partition.
        weight_qos: Of its QOS.
        max_age_s: PriorityMaxAge, seconds: at this age that factor is 1.
        favors_small: Small jobs have the greater factor of size.
        period_s: PriorityCalcPeriod, seconds: so often Slurm works out fair shares anew.
        partitions: Factors of partitions by name, 0 to 1; so are the next two.
        qos: Of QOS.
        fair_share: Of associations, by account and user.
    """

    weight_age: float = 0.0
    weight_fair_share: float = 0.0
    weight_job_size: float = 0.0
    weight_partition: float = 0.0
    weight_qos: float = 0.0
    max_age_s: float = 7 * 86_400.0
    favors_small: bool = False
    period_s: float = 300.0
    partitions: Mapping[str, float] = field(default_factory=dict)
    qos: Mapping[str, float] = field(default_factory=dict)
    fair_share: Mapping[tuple[str, str], float] = field(default_factory=dict)


class Look(NamedTuple):
    """One look at Slurm.

    Attributes:
        jobs: All jobs, as `Slurm.jobs` gives them.
        nodes: All nodes, no older than the jobs: GPUs that a job has just got count as in use.
        reservations: All reservations, no older than the jobs: that which a job asks for is among them.
        partitions: All partitions.
    """

    jobs: tuple[SlurmJob, ...]
    nodes: tuple[SlurmNode, ...]
    reservations: tuple[Reservation, ...]
    partitions: tuple[Partition, ...]


class Slurm(Protocol):
    """Access to one Slurm cluster.

    Every method raises `SlurmUnavailableError` if Slurm did not answer in time; unknown states and fields
    never make one fail.
    """

    def jobs(self) -> tuple[SlurmJob, ...]:
        """All jobs that Slurm still knows, array tasks one by one, by submission and number."""

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All nodes, by name as Slurm lists them."""

    def reservations(self) -> tuple[Reservation, ...]:
        """All reservations, those to come included."""

    def look(self) -> Look:
        """All of these together, which may take less time than one after the other."""

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions."""

    def limits(self) -> AccountingLimits:
        """The limits of QOS and associations; none where Slurm does not enforce them."""

    def spent(self, accounting: AccountingLimits) -> AccountingLimits:
        """The same limits with what is spent of them by now."""

    def priority_factors(self) -> PriorityFactors:
        """What the priorities of jobs are made of; no weights where Slurm's have no factors."""

    def fair_shares(self) -> Mapping[tuple[str, str], float]:
        """The fair shares alone, of associations by account and user, as they are now."""

    def blocks(self, partitions: Sequence[str]) -> BlockTopology:
        """The blocks of topology/block in these partitions."""

    def licenses(self) -> Mapping[str, int]:
        """How many of each licence are free, by name."""

    def booted_s(self) -> float:
        """When slurmctld was started, seconds since 1970 by its clock; 0 if it does not say."""

    def hides_jobs(self) -> bool:
        """Whether users see their own jobs alone (PrivateData), as it was a minute ago at most."""

    def ended_jobs(self, partitions: Sequence[str], days: int) -> tuple[Job, ...]:
        """The GPU jobs of some partitions that ended in the last days, with the time that they ran.

        They come in the order in which they would have ended without waits. Where there is no accounting,
        that is `SlurmUnavailableError`, too.
        """

    def run(self, orders: Sequence[Order]) -> tuple[str | None, ...]:
        """Carry out orders, in this order; for each None, or what Slurm said against it in one line.

        A refused order does not keep the others from being carried out.
        """
