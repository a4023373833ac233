"""Reads the limits that sacctmgr shows, of QOS and of associations, on what Dally counts of a job."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from slurm_plugin.client.accounting_limits import AccountingLimits, Counted, ResourceLimit
from slurm_plugin.client.job_json import read_tres
from slurm_plugin.client.node_text import read_rows, read_time_s

_OF_QOS = {
    "GrpTRES": "",
    "GrpJobs": "",
    "MaxTRESPerUser": "user",
    "MaxJobsPerUser": "user",
    "MaxTRESPerAccount": "account",
    "MaxJobsPerAccount": "account",
    "MaxTRESPerJob": "",
    "MaxWall": "",
    "MinTRESPerJob": "",
    "MaxTRESPerNode": "",
    "MaxTRESMinsPerJob": "",
    "GrpTRESRunMins": "",
    "GrpTRESMins": "",
    "GrpWall": "",
}
"""The limits of a QOS by their columns, each with whose jobs it counts apart."""

_SINCE_24_05 = {"MaxTRESRunMinsPerUser": "user", "MaxTRESRunMinsPerAccount": "account"}
"""Limits that older versions know and do not enforce (the changelog of 24.05.0rc1)."""

_OF_ASSOCIATION = {
    "GrpTRES": ("GrpTRES",),
    "GrpJobs": ("GrpJobs",),
    "MaxJobs": ("MaxJobsPerUser", "MaxJobsPerAccount"),
    "MaxTRESPerJob": ("MaxTRESPerJob",),
    "MaxWall": ("MaxWall",),
    "MaxTRESPerNode": ("MaxTRESPerNode",),
    "MaxTRESMinsPerJob": ("MaxTRESMinsPerJob",),
    "GrpTRESRunMins": ("GrpTRESRunMins",),
    "GrpTRESMins": ("GrpTRESMins",),
    "GrpWall": ("GrpWall",),
}
"""The limits of an association, each with those of a QOS that go before it."""

ASSOCIATION_COLUMNS = ",".join(("Account", "User", "Partition", "ParentName", *_OF_ASSOCIATION))

_ONE_JOB = ("MaxTRESPerJob", "MaxWall", "MinTRESPerJob", "MaxTRESPerNode", "MaxTRESMinsPerJob")
_COUNTED = {
    "MinTRESPerJob": Counted.LEAST,
    "MaxTRESPerNode": Counted.EACH_NODE,
    "MaxTRESMinsPerJob": Counted.MINUTES,
    "GrpTRESRunMins": Counted.MINUTES,
    "MaxTRESRunMinsPerUser": Counted.MINUTES,
    "MaxTRESRunMinsPerAccount": Counted.MINUTES,
    "GrpTRESMins": Counted.SPENT,
    "GrpWall": Counted.SPENT,
}
_FACTOR = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
_FIELD = re.compile(r"\b(\w+)=(\S*)")
_USED = re.compile(r"(?:^|,)(?:([^=,()]+)=)?[^=,()]*\(([0-9]+(?:\.[0-9]+)?)\)", re.ASCII)
_ID = re.compile(r"\([0-9]+\)$")

_Row = Mapping[str, str]


def enforced_for(settings: Mapping[str, str]) -> str:
    """The name of the cluster if it enforces limits, by Slurm's settings; empty if it does not."""
    enforced = settings.get("AccountingStorageEnforce", "").split(",")
    return settings.get("ClusterName", "") if {"limits", "safe"} & {*enforced} else ""


def is_safe(settings: Mapping[str, str]) -> bool:
    """Whether only jobs start that can run to their end under limits on minutes, likewise."""
    return "safe" in settings.get("AccountingStorageEnforce", "").split(",")


def qos_columns(version: tuple[int, int]) -> str:
    """The columns of QOS with the limits that a version of Slurm enforces, like (22, 5)."""
    return ",".join(("Name", "Flags", "UsageFactor", "LimitFactor", *_of_qos(version)))


def _of_qos(version: tuple[int, int]) -> Mapping[str, str]:
    return {**_OF_QOS, **_SINCE_24_05} if version >= (24, 5) else _OF_QOS


def read_limits(qos: str, associations: str, version: tuple[int, int] = (0, 0)) -> AccountingLimits:
    """The limits in what `sacctmgr --parsable2 --noheader` showed, of the columns above and of that version.

    Of a kind of limit that a QOS has, Slurm looks at no association's (Slurm's page on resource limits, its
    hierarchy). An association with one partition takes the place of its user's other one there.
    """
    all_qos = list(read_rows(qos, qos_columns(version)))
    flags = {row["Name"]: frozenset(filter(None, row["Flags"].split(","))) for row in all_qos}
    usage_factors, limit_factors = (
        {row["Name"]: float(row[column]) for row in all_qos if _FACTOR.fullmatch(row[column])}
        for column in ("UsageFactor", "LimitFactor")
    )
    of_qos: dict[tuple[str, str], list[ResourceLimit]] = {}
    for row in all_qos:
        for column, each in _of_qos(version).items():
            name = f"{column} of QOS {row['Name']}"
            for limit in _limits(row, column, ResourceLimit(name, 0, qos=row["Name"], each=each)):
                of_qos.setdefault((column, limit.of), []).append(limit)
    rows = list(read_rows(associations, ASSOCIATION_COLUMNS))
    parents = {row["Account"]: row["ParentName"] for row in rows if not row["User"]}
    accounting = AccountingLimits(
        (), flags, parents, usage_factors=usage_factors, limit_factors=limit_factors
    )
    limits = [
        replace(limit, qos_with_it=frozenset(other.qos for other in alike))
        for alike in of_qos.values()
        for limit in alike
    ]
    below: dict[str, list[str]] = {}
    for account in parents:
        for above in accounting.accounts_above(account):
            below.setdefault(above, []).append(account)
    partitions: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        partitions.setdefault((row["Account"], row["User"]), set()).add(row["Partition"])
    for row in rows:
        others = partitions[row["Account"], row["User"]]
        for limit, kinds in _of_association(row, below.get(row["Account"], ()), others):
            before = (other for kind in kinds for other in of_qos.get((kind, limit.of), ()))
            limits.append(replace(limit, qos_with_it=frozenset(other.qos for other in before)))
    return replace(accounting, limits=tuple(limits))


def _limits(row: _Row, column: str, plain: ResourceLimit) -> Iterator[ResourceLimit]:
    """The limits in one column, as many as it names resources; `plain` says whose they are."""
    text, one_job, counted = row[column], column in _ONE_JOB, _COUNTED.get(column, Counted.HELD)
    found: Mapping[str, float]
    if "TRES" in column:
        found = read_tres(text)
    elif column == "MaxWall":
        found = {"time": read_time_s(text)} if text else {}
    elif column == "GrpWall":
        found = {"time": read_time_s(text) / 60} if text else {}
    else:
        found = {"job": float(text)} if re.fullmatch("[0-9]{1,9}", text, re.ASCII) else {}
    for of, most in found.items():
        yield replace(plain, most=most, of=of, one_job=one_job, counted=counted)


def with_spent(accounting: AccountingLimits, shown: str) -> AccountingLimits:
    """The limits with what `scontrol --oneliner show assoc_mgr` showed to be spent of them.

    Of an owner that is told twice nothing counts: a line may be written into somebody's name.
    """
    told: dict[str, list[dict[str, str]]] = {}
    for line in shown.split("\n"):
        record = dict(_FIELD.findall(line))
        if qos := record.get("QOS"):
            owner = f"QOS {_ID.sub('', qos)}"
        elif account := record.get("Account"):
            owner = _owner(account, _ID.sub("", record.get("UserName", "")), record.get("Partition", ""))
        else:
            continue
        told.setdefault(owner, []).append(record)
    used: dict[tuple[str, str], float] = {}
    for owner, records in told.items():
        for column in ("GrpTRESMins", "GrpTRESRunMins", "GrpWall") if len(records) == 1 else ():
            for of, amount in _USED.findall(records[0].get(column, "")):
                used[f"{column} of {owner}", of or "time"] = float(amount)

    def filled(limit: ResourceLimit) -> ResourceLimit:
        running = limit.name.replace("GrpTRESMins", "GrpTRESRunMins", 1)
        is_on_tres = running != limit.name
        return replace(
            limit,
            spent=used.get((limit.name, limit.of), 0.0),
            running=used.get((running, limit.of), 0.0) if is_on_tres else 0.0,
        )

    spent = (filled(each) if each.counted is Counted.SPENT else each for each in accounting.limits)
    return replace(accounting, limits=tuple(spent))


def _owner(account: str, user: str, partition: str) -> str:
    """An association in words."""
    owner = f"user {user} in account {account}" if user else f"account {account}"
    return f"{owner} and partition {partition}" if partition else owner


def _of_association(
    row: _Row, below: Collection[str], others: Collection[str]
) -> Iterator[tuple[ResourceLimit, Sequence[str]]]:
    """The limits of one association, each with the kinds that go before it if a QOS has them.

    Args:
        row: The association.
        below: Its account and those below.
        others: The partitions of all associations of its account and user.
    """
    account, user, partition = row["Account"], row["User"], row["Partition"]
    owner = _owner(account, user, partition)
    whose = ResourceLimit(
        owner,
        0,
        accounts=frozenset([account] if user else below),
        user=user,
        partitions=frozenset([partition] if partition else ()),
        not_partitions=frozenset(filter(None, () if partition else others)),
    )
    for column, kinds in _OF_ASSOCIATION.items():
        if user or column.startswith("Grp"):  # the rest holds for each user, who shows it as theirs
            named = replace(whose, name=f"{column} of {owner}")
            yield from ((limit, kinds) for limit in _limits(row, column, named))
