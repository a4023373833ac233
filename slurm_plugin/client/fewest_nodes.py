"""How many nodes a waiting job asks for, where Slurm shows an estimate."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from slurm_plugin.client.slurm import SlurmJob, SlurmNode, State


def with_fewest_nodes(jobs: Iterable[SlurmJob], nodes: Iterable[SlurmNode]) -> tuple[SlurmJob, ...]:
    """The jobs, with the numbers of nodes that those in the queue ask for.

    Of a held job whose tasks have several CPUs, 22.05 shows one node more than hold its tasks or than it asks
    for, where they would leave CPUs of these free. Where `--nodes` says how many, readers know that as
    `max_nodes`; else a job may run on one node, or on those that its `--nodelist` names.

    Args:
        jobs: The jobs as Slurm shows them.
        nodes: The nodes of Slurm.
    """
    largest: dict[str, float] = {}
    for node in nodes:
        for name in node.partitions:
            largest[name] = max(largest.get(name, 0), node.cpus)
    return tuple(_sized(job, largest) for job in jobs)


def _sized(job: SlurmJob, largest: Mapping[str, float]) -> SlurmJob:
    fewest = max(1, len(job.required_nodes))
    estimated = job.state is State.PENDING and not (job.max_nodes or job.tasks_per_node)
    if not estimated or job.cpus_per_task < 2 or job.min_nodes != fewest + 1:
        return job
    cpus = max(largest.get(name, 0) for name in job.partition.split(","))
    holds = job.tasks <= fewest * (cpus // job.cpus_per_task)
    return replace(job, min_nodes=fewest) if holds else job
