"""Reads nodes, reservations and partitions as `scontrol --oneliner` shows them, in all versions alike."""

import re
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
    records = (_words(line) for line in text.splitlines())
    return tuple(_node(record) for record in records if record.get("NodeName"))


def _words(line: str) -> dict[str, str]:
    """The first value of each key: remarks, in which administrators write what they like, come last."""
    words: dict[str, str] = {}
    for key, value in _WORD.findall(line):
        words.setdefault(key, "" if value in _NONE else value)
    return words


def _node(record: dict[str, str]) -> SlurmNode:
    state = record.get("State", "")
    return SlurmNode(
        name=record["NodeName"],
        available=is_available(state),
        state_name=state.lower(),
        gpus=count_gpus(record.get("Gres", "")),
        gpus_used=count_gpus(record.get("GresUsed", "")),
        partitions=tuple(name for name in record.get("Partitions", "").split(",") if name),
        memory_mb=_number(record.get("RealMemory", "")),
    )


def is_available(state: str) -> bool:
    """Whether a node's state lets jobs start; `*` is how short forms say that a node does not respond."""
    base, *flags = state.split("+")
    return base in _USABLE and not any(_BAD.fullmatch(flag) for flag in flags)


def read_reservations(text: str) -> tuple[Reservation, ...]:
    """The reservations in what `scontrol --oneliner show reservation` printed, with times as `%s`."""
    records = (_words(line) for line in text.splitlines())
    return tuple(_reservation(record) for record in records if record.get("ReservationName"))


def _reservation(record: dict[str, str]) -> Reservation:
    return Reservation(
        record["ReservationName"],
        node_names(record.get("Nodes")),
        _number(record.get("StartTime", "")),
        _number(record.get("EndTime", "")),
    )


def read_partitions(text: str) -> tuple[Partition, ...]:
    """The partitions in what `scontrol --oneliner show partition` printed."""
    records = (_words(line) for line in text.splitlines())
    return tuple(
        Partition(record["PartitionName"], _limit_s(record.get("MaxTime", "")))
        for record in records
        if record.get("PartitionName")
    )


def _limit_s(text: str) -> float:
    """A time limit like 2-12:00:00; UNLIMITED is none."""
    found = _LIMIT.fullmatch(text)
    if not found:
        return inf
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * 86_400.0 + hours * 3600 + minutes * 60 + seconds


def _number(text: str) -> float:
    return float(text) if re.fullmatch("[0-9]{1,12}", text, re.ASCII) else 0.0
