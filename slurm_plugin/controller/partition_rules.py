"""What partitions demand of jobs, whatever is free there: times, sizes, accounts and QOS."""

from collections.abc import Collection

from dally.words import plural, span
from slurm_plugin.client.slurm import Partition, SlurmJob


def partition_refusal(job: SlurmJob, nodes: int, partition: Partition, qos_flags: Collection[str]) -> str:
    """Why a partition starts no job like this one, in words; empty if it does.

    Groups (AllowGroups) are not looked at: Slurm refuses such jobs as they are submitted.

    Args:
        job: The job as it was submitted.
        nodes: Fewest nodes that it asks for.
        partition: One of the partitions that it names.
        qos_flags: The flags of its QOS; some put it above rules of partitions.
    """
    name, account, qos = partition.name, job.account or "none", job.qos
    if not partition.starts_jobs:
        return f"partition {name} starts no jobs now"
    if (job.time_limit_s or 0.0) > partition.longest_s and "PartitionTimeLimit" not in qos_flags:
        asked, most = span(job.time_limit_s or 0.0), span(partition.longest_s)
        return f"MaxTime of partition {name} is {most}: it asks for {asked}, so it never starts"
    if nodes > partition.max_nodes and "PartitionMaxNodes" not in qos_flags:
        most = plural(int(partition.max_nodes), "node")
        return f"MaxNodes of partition {name} is {most}: it asks for {nodes}, so it never starts"
    if account in partition.denied_accounts:
        return f"partition {name} is not for account {account} (DenyAccounts)"
    if partition.accounts is not None and account not in partition.accounts:
        return f"partition {name} is not for account {account} (AllowAccounts)"
    if qos and qos in partition.denied_qos:
        return f"partition {name} is not for QOS {qos} (DenyQos)"
    if qos and partition.allowed_qos is not None and qos not in partition.allowed_qos:
        return f"partition {name} is not for QOS {qos} (AllowQos)"
    return ""
