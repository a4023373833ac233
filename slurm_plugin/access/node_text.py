"""Reads what `scontrol --oneliner` shows of nodes and reservations; all versions write it alike."""

import re

from slurm_plugin.access.job_json import count_gpus, node_names
from slurm_plugin.access.slurm import Reservation, SlurmNode

_WORD = re.compile(r"(?:^|(?<= ))([A-Za-z]+)=(\S*)")
_USABLE = {"IDLE", "MIXED", "ALLOCATED"}
_BAD = re.compile(
    r"BLOCKED|DOWN|DRAIN|DRAINED|DRAINING|FAIL|FAILING|INVAL|INVALID_REG|MAINT.*|NOT_RESPONDING|POWERING_DOWN|REBOOT.*"
)
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
        _seconds(record.get("StartTime", "")),
        _seconds(record.get("EndTime", "")),
    )


def _seconds(text: str) -> float:
    return float(text) if re.fullmatch("[0-9]{1,12}", text, re.ASCII) else 0.0
