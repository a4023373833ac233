"""Reads nodes, reservations and partitions as `scontrol --oneliner` shows them, in all versions alike."""

import re
from collections.abc import Iterator
from math import inf

from slurm_plugin.client.job_json import count_gpus, node_names
from slurm_plugin.client.slurm import Partition, Reservation, SlurmNode

_WORD = re.compile(r"(?:^|(?<= ))([A-Za-z]+)=(\S*)")
_USABLE = {"IDLE", "MIXED", "ALLOCATED"}
_BAD = re.compile(
    r"BLOCKED|DOWN|DRAIN|DRAINED|DRAINING|FAIL|FAILING|INVAL|INVALID_REG|MAINT.*|NOT_RESPONDING|POWERING_DOWN|REBOOT.*"
)
_LIMIT = re.compile(r"(?:(\d{1,6})-)?(\d{1,6}):(\d{2}):(\d{2})", re.ASCII)
_NONE = ("(null)", "N/A", "None")


def read_nodes(text: str) -> tuple[SlurmNode, ...]:
    """The nodes in what `scontrol --oneliner --details show node` printed."""
    return tuple(
        SlurmNode(
            name=record["NodeName"],
            available=is_available(record.get("State", "")),
            state_name=record.get("State", "").lower(),
            gpus=count_gpus(record.get("Gres", "")),
            gpus_used=count_gpus(record.get("GresUsed", "")),
            partitions=tuple(name for name in record.get("Partitions", "").split(",") if name),
            memory_mb=_number(record.get("RealMemory", "")),
        )
        for record in _records(text, "NodeName")
    )


def _records(text: str, name: str) -> Iterator[dict[str, str]]:
    """The words of each line that has a name; of several values of a key the first.

    Remarks, in which administrators write what they like, come last.
    """
    for line in text.splitlines():
        record: dict[str, str] = {}
        for key, value in _WORD.findall(line):
            record.setdefault(key, "" if value in _NONE else value)
        if record.get(name):
            yield record


def is_available(state: str) -> bool:
    """Whether a node's state lets jobs start; `*` is how short forms say that a node does not respond."""
    base, *flags = state.split("+")
    return base in _USABLE and not any(_BAD.fullmatch(flag) for flag in flags)


def read_reservations(text: str) -> tuple[Reservation, ...]:
    """The reservations in what `scontrol --oneliner show reservation` printed, with times as `%s`."""
    return tuple(
        Reservation(
            record["ReservationName"],
            node_names(record.get("Nodes")),
            _number(record.get("StartTime", "")),
            _number(record.get("EndTime", "")),
        )
        for record in _records(text, "ReservationName")
    )


def read_partitions(text: str) -> tuple[Partition, ...]:
    """The partitions in what `scontrol --oneliner show partition` printed."""
    found = []
    for record in _records(text, "PartitionName"):
        limit = _LIMIT.fullmatch(record.get("MaxTime", ""))  # like 2-12:00:00; UNLIMITED is none
        days, hours, minutes, seconds = (int(part or 0) for part in limit.groups()) if limit else (inf,) * 4
        longest_s = days * 86_400.0 + hours * 3600 + minutes * 60 + seconds
        found.append(Partition(record["PartitionName"], longest_s))
    return tuple(found)


def _number(text: str) -> float:
    return float(text) if re.fullmatch("[0-9]{1,12}", text, re.ASCII) else 0.0
