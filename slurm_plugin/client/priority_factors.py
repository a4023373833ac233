"""Reads what Slurm's multifactor priority is made of, as scontrol, sshare and sacctmgr show it."""

import re
from collections.abc import Mapping
from math import inf

from slurm_plugin.client.node_text import number, read_records, read_rows, read_time_s
from slurm_plugin.client.slurm import PriorityFactors

SHARE_COLUMNS = "Account,User,FairShare"
QOS_PRIORITY_COLUMNS = "Name,Priority"

_MULTIFACTOR = "priority/multifactor"
_FACTOR = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,12})?", re.ASCII)


def read_weights(settings: Mapping[str, str]) -> PriorityFactors | None:
    """The weights in Slurm's settings; None where priorities have no factors."""
    if settings.get("PriorityType") != _MULTIFACTOR:
        return None
    least = PriorityFactors()

    def span_s(name: str, default_s: float) -> float:
        found_s = read_time_s(settings.get(name, ""))
        return found_s if 0 < found_s < inf else default_s

    return PriorityFactors(
        weight_age=number(settings.get("PriorityWeightAge", "")),
        weight_fair_share=number(settings.get("PriorityWeightFairShare", "")),
        weight_job_size=number(settings.get("PriorityWeightJobSize", "")),
        weight_partition=number(settings.get("PriorityWeightPartition", "")),
        weight_qos=number(settings.get("PriorityWeightQOS", "")),
        max_age_s=span_s("PriorityMaxAge", least.max_age_s),
        favors_small=settings.get("PriorityFavorSmall") == "Yes",
        period_s=span_s("PriorityCalcPeriod", least.period_s),
    )


def booked_every_s(settings: Mapping[str, str]) -> float:
    """How often Slurm books what running jobs have had, seconds; inf where it never does."""
    found = read_weights(settings)
    return inf if found is None else found.period_s


def read_partition_factors(text: str) -> dict[str, float]:
    """Factors in what `scontrol --oneliner show partition` printed: PriorityJobFactor over the greatest."""
    records = read_records(text, "PartitionName")
    return _normalized({name: number(each.get("PriorityJobFactor", "")) for name, each in records.items()})


def read_qos_factors(text: str) -> dict[str, float]:
    """Factors in what `sacctmgr show qos` printed of the columns above: Priority over the greatest."""
    rows = read_rows(text, QOS_PRIORITY_COLUMNS)
    return _normalized({row["Name"]: number(row["Priority"]) for row in rows})


def read_fair_shares(text: str) -> dict[tuple[str, str], float]:
    """Factors in what `sshare` printed of the columns above, by account and user."""
    return {
        (row["Account"].strip(), row["User"]): float(row["FairShare"])
        for row in read_rows(text, SHARE_COLUMNS)
        if row["User"] and _FACTOR.fullmatch(row["FairShare"])
    }


def _normalized(priorities: Mapping[str, float]) -> dict[str, float]:
    most = max(priorities.values(), default=0.0)
    return {name: priority / most if most else 0.0 for name, priority in priorities.items()}
