"""Which nodes a job may use, whatever GPUs are free there: of its partitions, with its features, and roomy.

CPUs and memory count by node, so that nobody is stopped for GPUs of a node on which no CPU is left, and no
job is sent there.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, inf

from dally.hostlist import fold
from dally.jobs.job import Job
from slurm_plugin.client.slurm import SlurmJob, SlurmNode
from slurm_plugin.constraint import satisfies


@dataclass(frozen=True, slots=True)
class NodeResources:
    """CPUs, and memory in MB, of one node."""

    cpus: float = 0
    memory_mb: float = 0

    def __add__(self, other: "NodeResources") -> "NodeResources":
        return NodeResources(self.cpus + other.cpus, self.memory_mb + other.memory_mb)

    def __sub__(self, other: "NodeResources") -> "NodeResources":
        return NodeResources(self.cpus - other.cpus, self.memory_mb - other.memory_mb)

    def holds(self, needed: "NodeResources") -> bool:
        """Whether so much is there."""
        return self.cpus >= needed.cpus and self.memory_mb >= needed.memory_mb


NONE = NodeResources()
Measure = Callable[[SlurmNode], NodeResources]
"""How much room a node is taken to have."""


def usable_nodes(job: SlurmJob, nodes: Iterable[SlurmNode]) -> list[SlurmNode]:
    """The nodes with GPUs on which Slurm would start a job that had them to itself.

    Of a job that names several partitions, and may get GPUs of several nodes, they are those of the partition
    that has most.

    Raises:
        InputError: Its constraint cannot be judged node by node.
    """
    partitions = [
        [node for node in nodes if partition in node.partitions and is_usable(job, node)]
        for partition in job.partition.split(",")
    ]
    if job.min_nodes > 1 or not job.tres_per_node:
        return max(partitions, key=len)
    return [*{node.name: node for usable in partitions for node in usable}.values()]


def is_usable(job: SlurmJob, node: SlurmNode) -> bool:
    """Whether a node of the right partition has GPUs, and whatever else a job asks of nodes."""
    is_open = node.gpus and node.name not in job.excluded_nodes
    has_disk = node.tmp_disk_mb >= job.tmp_disk_mb
    return bool(is_open) and has_disk and (not job.features or satisfies(job.features, node.features))


def in_all(node: SlurmNode) -> NodeResources:
    """What a node has."""
    return NodeResources(node.cpus or inf, node.memory_mb or inf)


def needed(job: SlurmJob, gpus_in_all: int, gpus: int, node: SlurmNode, counts_memory: bool) -> NodeResources:
    """What a job takes of a node; all CPUs if it shares nodes with nobody.

    With `--mem=0`, or without a word and a default, Slurm gives it all memory, if it counts memory. It gets
    whole cores.

    Args:
        job: The job as Slurm shows it.
        gpus_in_all: GPUs that go with its tasks.
        gpus: Of these, on the node.
        node: The node.
        counts_memory: Whether Slurm does.
    """
    tasks = job.tasks_per_node or ceil(job.tasks * gpus / gpus_in_all)
    cpus = max(job.cpus_per_node, job.cpus_per_task * tasks, job.cpus_per_gpu * gpus)
    cpus = ceil(cpus / node.threads_per_core) * node.threads_per_core
    asked_mb = job.memory_per_node_mb or job.memory_per_gpu_mb * gpus or job.memory_per_cpu_mb * cpus
    memory_mb = asked_mb or (node.memory_mb if counts_memory else 0)
    return NodeResources(node.cpus if job.exclusive else cpus, memory_mb)


class NodeRoom:
    """The nodes of Slurm at one moment, and what jobs that are not ours leave of them.

    Args:
        nodes: The nodes. One whose CPUs or memory are not known has room for everything.
        before: The room of the look before, whose sets of names go on: an equal set is the same object, and
            that two sets of a thousand names are the same is seen without a look at each.

    Attributes:
        nodes: The nodes by name.
        with_gpus: Names of those with GPUs.
        down: Of these, the ones on which Slurm starts nothing, whoever leaves.
    """

    def __init__(self, nodes: Iterable[SlurmNode] = (), before: "NodeRoom | None" = None) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._sets: dict[frozenset[str], frozenset[str]] = {}
        self._sets_before = before._sets if before else {}
        self.with_gpus = self.same(frozenset(name for name, node in self.nodes.items() if node.gpus))
        self.down = frozenset(
            name for name in self.with_gpus if not (self.nodes[name].available or self.nodes[name].blocked)
        )
        self._counts_memory = any(node.memory_used_mb for node in self.nodes.values())
        self._ours: dict[str, NodeResources] = {}
        self._known: dict[object, frozenset[str]] = {}

    def same(self, names: frozenset[str]) -> frozenset[str]:
        """These names, as the object that stands for them."""
        found = self._sets.get(names)
        if found is None:
            found = self._sets[names] = self._sets_before.get(names, names)
        return found

    def why_down(self, names: Iterable[str], segment: int | None) -> str:
        """In words, that these nodes are missing, or too few in whole segments, and their states."""
        by_state: dict[str, list[str]] = {}
        for name in sorted(names):
            by_state.setdefault(self.nodes[name].state_name, []).append(name)
        said = (
            f"{fold(each)} {'is' if len(each) == 1 else 'are'} {state}" for state, each in by_state.items()
        )
        whole = "" if segment is None else f" in segments of {segment}"
        return f"too few of the nodes that it may use are up{whole}: {', '.join(said)}"

    def needed(self, job: SlurmJob, gpus_in_all: int, gpus: int, name: str) -> NodeResources:
        """What a job takes of a node with so many of its GPUs there; see `needed`."""
        return needed(job, gpus_in_all, gpus, self.nodes[name], self._counts_memory)

    def add_ours(self, job: SlurmJob, gpus: Mapping[str, int]) -> None:
        """A running job of ours holds these GPUs, by node, and CPUs and memory with them."""
        in_all = sum(gpus.values())
        for name in self.nodes.keys() & gpus.keys():
            room = self.needed(job, in_all, gpus[name], name)
            self._ours[name] = self._ours.get(name, NONE) + room

    def in_all(self, node: SlurmNode) -> NodeResources:
        """What a node has."""
        return in_all(node)

    def now(self, node: SlurmNode) -> NodeResources:
        """What nobody has taken of a node."""
        return self.in_all(node) - NodeResources(node.cpus_used, node.memory_used_mb)

    def beside_others(self, node: SlurmNode) -> NodeResources:
        """What our jobs can have of a node together."""
        return self.now(node) + self._ours.get(node.name, NONE)

    def machines(self, job: SlurmJob, size: tuple[int, int], asked: Job, room: Measure) -> frozenset[str]:
        """Names of the nodes that a job may use and that have room for it, by one of the measures above.

        Args:
            job: The job as Slurm shows it.
            size: Fewest nodes and tasks that it asks for.
            asked: What it asks for, in GPUs.
            room: How much room a node is taken to have.

        Raises:
            InputError: Its constraint cannot be judged node by node.
        """
        asks = (
            *(job.partition, job.features, job.excluded_nodes, job.exclusive, job.tasks_per_node),
            *(bool(job.tres_per_node), job.tmp_disk_mb),
            *(job.cpus_per_node, job.cpus_per_task, job.cpus_per_gpu),
            *(job.memory_per_node_mb, job.memory_per_gpu_mb, job.memory_per_cpu_mb),
        )
        each = asked.gpus_per_machine
        key = room, size, asks, asked.gpus, each
        if key not in self._known:
            sized = replace(job, min_nodes=size[0], tasks=size[1])
            found = frozenset(
                node.name
                for node in usable_nodes(sized, self.nodes.values())
                if room(node).holds(self.needed(sized, asked.gpus, each or 1, node.name))
                and (not job.exclusive or node.gpus == each)
            )
            self._known[key] = self.same(found)
        return self._known[key]
