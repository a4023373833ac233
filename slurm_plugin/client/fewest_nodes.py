"""How many nodes a waiting job asks for, where Slurm shows an estimate."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import ceil, inf

from slurm_plugin.client.slurm import SlurmJob, SlurmNode, State


def with_fewest_nodes(jobs: Iterable[SlurmJob], nodes: Iterable[SlurmNode]) -> tuple[SlurmJob, ...]:
    """The jobs, with the numbers of nodes that those in the queue ask for.

    Of a held job whose tasks have several CPUs, 22.05 shows one node more than hold its tasks or than it asks
    for, where they would leave CPUs of these free. Where `--nodes` says how many, readers know that as
    `max_nodes`; else a job may run on one node, or on those that its `--nodelist` names. 26.05 shows as many
    as have its CPUs in all: too few where its tasks leave CPUs of each node over.

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
    if job.cpus_per_task < 2 or job.tasks_per_node or job.state is not State.PENDING:
        return job
    on_one = max(largest.get(name, 0) for name in job.partition.split(",")) // job.cpus_per_task
    if not on_one:
        return job  # no node holds a task, as the site says of it
    named, holding = max(1, len(job.required_nodes)), ceil(job.tasks / on_one)
    if job.min_nodes < holding <= (job.max_nodes or inf):
        return replace(job, min_nodes=holding)
    if not job.max_nodes and job.min_nodes == named + 1 and holding <= named:
        return replace(job, min_nodes=named)
    return job
