"""What partitions demand of jobs, whatever is free there: times, sizes, accounts and QOS."""

import grp
import os
import pwd
from functools import lru_cache

from dally.words import plural, span
from slurm_plugin.client.accounting_limits import AccountingLimits
from slurm_plugin.client.slurm import Partition, SlurmJob


def partition_refusal(job: SlurmJob, nodes: int, partition: Partition, accounting: AccountingLimits) -> str:
    """Why a partition starts no job like this one, in words; empty if it does.

    Whether the lists of accounts hold for those below, too, differs by Slurm's version: there Slurm decides.

    Args:
        job: The job as it was submitted.
        nodes: Fewest nodes that it asks for.
        partition: One of the partitions that it names.
        accounting: Accounts, and the flags of QOS, some of which put it above rules of partitions.
    """
    name, account, qos = partition.name, job.account or "none", job.qos
    qos_flags = accounting.qos_flags.get(qos, ())
    if not partition.starts_jobs:
        return f"partition {name} starts no jobs now"
    if (job.time_limit_s or 0.0) > partition.longest_s and "PartitionTimeLimit" not in qos_flags:
        asked, most = span(job.time_limit_s or 0.0), span(partition.longest_s)
        return f"MaxTime of partition {name} is {most}: it asks for {asked}, so it never starts"
    if nodes > partition.max_nodes and "PartitionMaxNodes" not in qos_flags:
        most = plural(int(partition.max_nodes), "node")
        return f"MaxNodes of partition {name} is {most}: it asks for {nodes}, so it never starts"
    if partition.groups is not None and job.user != "root":
        groups = groups_of(job.user)
        if groups is not None and partition.groups.isdisjoint(groups):
            return f"partition {name} is not for the groups of user {job.user} (AllowGroups)"
    if account in partition.denied_accounts:
        return f"partition {name} is not for account {account} (DenyAccounts)"
    if partition.accounts is not None:
        above = accounting.accounts_above(account)
        is_known = bool(above) or not job.account
        if is_known and partition.accounts.isdisjoint({account, *above}):
            return f"partition {name} is not for account {account} (AllowAccounts)"
    if qos and qos in partition.denied_qos:
        return f"partition {name} is not for QOS {qos} (DenyQos)"
    if qos and partition.allowed_qos is not None and qos not in partition.allowed_qos:
        return f"partition {name} is not for QOS {qos} (AllowQos)"
    return ""


@lru_cache(maxsize=4096)
def groups_of(user: str) -> frozenset[str] | None:
    """The names of a user's Unix groups, as this machine knows them; None if it does not know the user.

    What was found is kept until `groups_of.cache_clear`: a directory in the network takes its time.
    """
    try:
        numbers = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
    except (KeyError, OSError):
        return None
    found = set[str]()
    for number in numbers:
        try:
            found.add(grp.getgrgid(number).gr_name)
        except KeyError:
            return None
    return frozenset(found)
