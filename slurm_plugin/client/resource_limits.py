"""Reads the limits that sacctmgr shows, of QOS and of associations, as far as they are on GPUs and jobs."""

import re
from collections.abc import Iterator, Mapping

from slurm_plugin.client.slurm import ResourceLimit

QOS_COLUMNS = (
    "Name,GrpTRES,GrpJobs,MaxTRESPerUser,MaxJobsPerUser,MaxTRESPerAccount,MaxJobsPerAccount,MaxTRESPerJob"
)
ASSOCIATION_COLUMNS = "Account,User,Partition,ParentName,GrpTRES,GrpJobs,MaxJobs,MaxTRESPerJob"

_GPUS = re.compile(r"(?:^|,)gres/gpu=([0-9]{1,9})(?=,|$)", re.ASCII)
_ENFORCED = re.compile(r"^AccountingStorageEnforce\s*=.*\b(?:limits|safe)\b", re.MULTILINE)
_CLUSTER = re.compile(r"^ClusterName\s*=\s*(\S+)", re.MULTILINE)


def enforced_for(config: str) -> str:
    """The name of the cluster if it enforces limits, by `scontrol show config`; empty if it does not."""
    name = _CLUSTER.search(config)
    return name[1] if name and _ENFORCED.search(config) else ""


def read_limits(qos: str, associations: str) -> tuple[ResourceLimit, ...]:
    """The limits in what `sacctmgr --parsable2 --noheader` showed of the columns above.

    Of a kind of limit that a QOS has, Slurm looks at no association's (Slurm's page on resource limits, its
    hierarchy). Limits on one type of GPU, and of
    associations with one partition, are left out.
    """
    of_qos = [limit for row in _rows(qos, QOS_COLUMNS) for limit in _of_qos(row)]
    rows = [row for row in _rows(associations, ASSOCIATION_COLUMNS) if not row["Partition"]]
    parents = {row["Account"]: row["ParentName"] for row in rows if not row["User"]}
    of_all = [limit for row in rows for limit in _of_association(row, parents, of_qos)]
    return (*of_qos, *of_all)


def _rows(text: str, columns: str) -> Iterator[Mapping[str, str]]:
    names = columns.split(",")
    for line in text.splitlines():
        values = line.split("|")
        if len(values) == len(names):
            yield dict(zip(names, values, strict=True))


def _of_qos(row: Mapping[str, str]) -> Iterator[ResourceLimit]:
    qos = row["Name"]
    for each, tres, jobs in (
        ("", "GrpTRES", "GrpJobs"),
        ("user", "MaxTRESPerUser", "MaxJobsPerUser"),
        ("account", "MaxTRESPerAccount", "MaxJobsPerAccount"),
    ):
        if (gpus := _gpus(row[tres])) is not None:
            yield ResourceLimit(f"{tres} of QOS {qos}", qos, each=each, gpus=gpus)
        if (most := _whole(row[jobs])) is not None:
            yield ResourceLimit(f"{jobs} of QOS {qos}", qos, each=each, jobs=most)
    if (gpus := _gpus(row["MaxTRESPerJob"])) is not None:
        yield ResourceLimit(f"MaxTRESPerJob of QOS {qos}", qos, job_gpus=gpus)


def _of_association(
    row: Mapping[str, str], parents: Mapping[str, str], of_qos: list[ResourceLimit]
) -> Iterator[ResourceLimit]:
    account, user = row["Account"], row["User"]
    owner = f"user {user} in account {account}" if user else f"account {account}"
    accounts = frozenset(
        [account] if user else [each for each in parents if account in _above(each, parents)]
    )

    def limit(
        kind: str,
        *qos_kinds: str,
        gpus: int | None = None,
        jobs: int | None = None,
        job_gpus: int | None = None,
    ) -> Iterator[ResourceLimit]:
        if (gpus, jobs, job_gpus) != (None, None, None):
            own = frozenset(each.qos for each in of_qos if each.name.startswith(qos_kinds))
            name = f"{kind} of {owner}"
            yield ResourceLimit(name, "", accounts, user, "", gpus, jobs, job_gpus, own)

    yield from limit("GrpTRES", "GrpTRES ", gpus=_gpus(row["GrpTRES"]))
    yield from limit("GrpJobs", "GrpJobs ", jobs=_whole(row["GrpJobs"]))
    if user:  # an account's holds for each of its users, who show it as theirs
        yield from limit("MaxJobs", "MaxJobsPerUser ", "MaxJobsPerAccount ", jobs=_whole(row["MaxJobs"]))
        yield from limit("MaxTRESPerJob", "MaxTRESPerJob ", job_gpus=_gpus(row["MaxTRESPerJob"]))


def _above(account: str, parents: Mapping[str, str]) -> list[str]:
    """An account, and those that it is below."""
    found: list[str] = []
    while account in parents and account not in found:
        found.append(account)
        account = parents[account]
    return found


def _gpus(tres: str) -> int | None:
    found = _GPUS.search(tres)
    return int(found[1]) if found else None


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,9}", text, re.ASCII) else None
