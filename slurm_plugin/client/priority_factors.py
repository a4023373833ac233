"""Reads what Slurm's multifactor priority is made of, as scontrol, sshare and sacctmgr show it."""

import re
from collections.abc import Iterator, Mapping
from math import inf

from slurm_plugin.client.node_text import number, read_records
from slurm_plugin.client.slurm import PriorityFactors

SHARE_COLUMNS = "Account,User,FairShare"
QOS_PRIORITY_COLUMNS = "Name,Priority"

_MULTIFACTOR = "priority/multifactor"
_SETTING = re.compile(r"^(Priority\w+) *= *(.*?) *$", re.MULTILINE)
_SPAN = re.compile(r"(?:(\d{1,6})-)?(\d{1,6}):(\d{2}):(\d{2})", re.ASCII)
_FACTOR = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,12})?", re.ASCII)


def read_weights(config: str) -> PriorityFactors | None:
    """The settings in what `scontrol show config` printed; None where priorities have no factors."""
    found = dict(_SETTING.findall(config))
    if found.get("PriorityType") != _MULTIFACTOR:
        return None
    least = PriorityFactors()
    return PriorityFactors(
        weight_age=number(found.get("PriorityWeightAge", "")),
        weight_fair_share=number(found.get("PriorityWeightFairShare", "")),
        weight_job_size=number(found.get("PriorityWeightJobSize", "")),
        weight_partition=number(found.get("PriorityWeightPartition", "")),
        weight_qos=number(found.get("PriorityWeightQOS", "")),
        max_age_s=_span_s(found.get("PriorityMaxAge", "")) or least.max_age_s,
        favors_small=found.get("PriorityFavorSmall") == "Yes",
        period_s=_span_s(found.get("PriorityCalcPeriod", "")) or least.period_s,
    )


def booked_every_s(config: str) -> float:
    """How often Slurm books what running jobs have had, seconds, likewise; inf where it never does."""
    found = read_weights(config)
    return inf if found is None else found.period_s


def _span_s(text: str) -> float:
    found = _SPAN.fullmatch(text)
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()) if found else (0,) * 4
    return days * 86_400.0 + hours * 3600 + minutes * 60 + seconds


def read_partition_factors(text: str) -> dict[str, float]:
    """Factors in what `scontrol --oneliner show partition` printed: PriorityJobFactor over the greatest."""
    records = read_records(text, "PartitionName")
    return _normalized({name: number(each.get("PriorityJobFactor", "")) for name, each in records.items()})


def read_qos_factors(text: str) -> dict[str, float]:
    """Factors in what `sacctmgr show qos` printed of the columns above: Priority over the greatest."""
    return _normalized({name: number(priority) for name, priority in _rows(text, QOS_PRIORITY_COLUMNS)})


def read_fair_shares(text: str) -> dict[tuple[str, str], float]:
    """Factors in what `sshare` printed of the columns above, by account and user."""
    return {
        (account.strip(), user): float(factor)
        for account, user, factor in _rows(text, SHARE_COLUMNS)
        if user and _FACTOR.fullmatch(factor)
    }


def _rows(text: str, columns: str) -> Iterator[list[str]]:
    rows = (line.split("|") for line in text.splitlines())
    return (row for row in rows if len(row) == columns.count(",") + 1)


def _normalized(priorities: Mapping[str, float]) -> dict[str, float]:
    most = max(priorities.values(), default=0.0)
    return {name: priority / most if most else 0.0 for name, priority in priorities.items()}
