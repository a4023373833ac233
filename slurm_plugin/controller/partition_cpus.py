"""The CPUs of nodes that all jobs of a partition have together, where it has a bound (MaxCPUsPerNode)."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from math import ceil, inf

from slurm_plugin.client.slurm import HOLDS_GPUS, Partition, SlurmJob, SlurmNode


class PartitionCpus:
    """What jobs of bounded partitions have of each node now.

    Args:
        partitions: All partitions, by name.
        jobs: All jobs that Slurm knows.

    Attributes:
        any: Whether a partition is bounded.
    """

    def __init__(self, partitions: Mapping[str, Partition], jobs: Iterable[SlurmJob]) -> None:
        bounds = {name: each.cpus_per_node for name, each in partitions.items()}
        self._most = {name: most for name, most in bounds.items() if most < inf}
        self.any = bool(self._most)
        self._taken = Counter[tuple[str, str]]()
        for job in jobs if self.any else ():
            if job.partition in self._most and job.state in HOLDS_GPUS:
                for node in job.nodes:
                    self._taken[job.partition, node] += ceil(job.tres.get("cpu", 0.0) / len(job.nodes))

    def left(self, partitions: Collection[str], node: SlurmNode) -> float:
        """CPUs of a node that jobs of one of some partitions may have more, whatever is free; inf for any."""
        return max(
            (
                self._most.get(name, inf) - self._taken[name, node.name]
                for name in node.partitions
                if name in partitions
            ),
            default=inf,
        )
