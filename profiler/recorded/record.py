"""What one rank of a recorded job wrote: its process groups, its collectives and the times of its steps."""

import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from dally.errors import InputError

SETTLING_STEPS = 3
"""The first steps of a job compile, allocate and connect; they are left out where there are others."""

_BYTES = {
    "Double": 8,
    "Long": 8,
    "ComplexFloat": 8,
    "Float": 4,
    "Int": 4,
    "Half": 2,
    "BFloat16": 2,
    "Short": 2,
}
"""Of an element, by PyTorch's name of the type; all others have one byte."""

_NAME = re.compile(r"(?:\w+:)?_?(.+?)(?:_base)?(?:_coalesced)?(?: .*)?")
_PEERS = re.compile(r"->(\d+)")
_BYTES_OF_A_RECORD = 2**28


class CollectiveKind(StrEnum):
    """What ranks do together."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    SEND = "send"
    OTHER = "other"


_KINDS = {
    "allreduce": CollectiveKind.ALL_REDUCE,
    "allgather": CollectiveKind.ALL_GATHER,
    "allgatherintotensor": CollectiveKind.ALL_GATHER,
    "reducescatter": CollectiveKind.REDUCE_SCATTER,
    "reducescattertensor": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
    "broadcast": CollectiveKind.BROADCAST,
    "send": CollectiveKind.SEND,
}


@dataclass(frozen=True, slots=True)
class Collective:
    """One call.

    Attributes:
        group: Name of its process group.
        kind: What it does.
        elements: Elements that go in on this rank.
        element_bytes: Bytes of each.
        is_flat: Whether they are a bucket of one dimension, as parameters and gradients are; activations keep
            their shape.
        at_s: When it was called, seconds since 1970.
        peer: The rank of the group that a message goes to; -1 if it is for all.
    """

    group: str
    kind: CollectiveKind
    elements: int
    element_bytes: int
    is_flat: bool
    at_s: float
    peer: int = -1

    def sent_bytes(self, ranks: int) -> float:
        """Bytes that a rank sends, of a group of so many, where they form a ring.

        Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
        """
        size = self.elements * self.element_bytes
        match self.kind:
            case CollectiveKind.ALL_REDUCE:
                return 2 * (ranks - 1) / ranks * size
            case CollectiveKind.ALL_GATHER:
                return (ranks - 1) * size
            case CollectiveKind.REDUCE_SCATTER | CollectiveKind.ALL_TO_ALL | CollectiveKind.BROADCAST:
                return (ranks - 1) / ranks * size
            case _:
                return size if self.kind is CollectiveKind.SEND else 0.0


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """A process group: its ranks in the job, and what the program calls it."""

    ranks: tuple[int, ...]
    description: str


@dataclass(frozen=True, slots=True)
class RankRecord:
    """One rank.

    Attributes:
        rank: Its number.
        world: Ranks of the job.
        host: Where it ran.
        groups: The process groups that it knows, by name.
        step: The collectives of its typical step, in the order of their calls.
        step_s: Median time of a step, seconds.
        steps: Steps that were seen.
    """

    rank: int
    world: int
    host: str
    groups: Mapping[str, RecordedGroup]
    step: tuple[Collective, ...]
    step_s: float
    steps: int


def read_records(folder: Path) -> list[RankRecord]:
    """The records of a job, by rank.

    Raises:
        InputError: There are none, they are of several jobs, or one cannot be read.
    """
    paths = sorted(folder.glob("rank-*.json.gz"))
    if not paths:
        jobs = sorted(path.name for path in folder.glob("*") if any(path.glob("rank-*.json.gz")))
        hint = f"; it has records of jobs {', '.join(jobs)}" if jobs else ""
        raise InputError(f"{folder} has no files rank-*.json.gz{hint}")
    records = [read_record(path) for path in paths]
    worlds = {record.world for record in records}
    if len(worlds) > 1:
        raise InputError(
            f"{folder} has records of jobs of {' and '.join(map(str, sorted(worlds)))} ranks; one is read"
        )
    return records


def read_record(path: Path) -> RankRecord:
    """One rank's record.

    Raises:
        InputError: It cannot be read, or has no steps.
    """
    try:
        with gzip.open(path, "rb") as file:
            about, trace = (
                json.loads(file.readline(_BYTES_OF_A_RECORD)),
                json.loads(file.read(_BYTES_OF_A_RECORD)),
            )
        return _record(path, about, trace)
    except (
        OSError,
        EOFError,
        zlib.error,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        RecursionError,
    ) as error:
        raise InputError(f"{path}: not a record of a rank: {error!r}") from error


def _record(path: Path, about: Mapping[str, Any], trace: Mapping[str, Any]) -> RankRecord:
    entries = [_collective(entry) for entry in trace.get("entries", ())]
    if not any(each.kind is CollectiveKind.SEND for each in entries):
        entries += [
            Collective(group, CollectiveKind.SEND, size, 1, False, at_ns / 1e9, peer)
            for group, size, at_ns, peer in about["sent"]
        ]
    entries.sort(key=lambda each: each.at_s)
    steps_s = [at_ns / 1e9 for at_ns in about["steps_ns"]]
    typical, step_s = _typical_step(entries, steps_s)
    if not step_s:
        raise InputError(f"{path}: saw no two steps of an optimizer of torch.optim; let the job run longer")
    return RankRecord(
        rank=int(about["rank"]),
        world=int(about["world"]),
        host=str(about["host"]),
        groups={
            str(name): RecordedGroup(tuple(map(int, group["ranks"])), str(group["description"]))
            for name, group in about["groups"].items()
            if group["ranks"]
        },
        step=typical,
        step_s=step_s,
        steps=len(steps_s),
    )


def _collective(entry: Mapping[str, Any]) -> Collective:
    match = _NAME.fullmatch(entry["profiling_name"])
    name = match[1].replace("_", "") if match else ""
    sizes, peers = entry["input_sizes"], _PEERS.search(entry["profiling_name"])
    return Collective(
        group=str(entry["process_group"][0]),
        kind=_KINDS.get(name, CollectiveKind.OTHER),
        elements=sum(prod(size) for size in sizes),
        element_bytes=_BYTES.get(entry["input_dtypes"][0] if entry["input_dtypes"] else "", 1),
        is_flat=all(len(size) <= 1 for size in sizes),
        at_s=entry["time_created_ns"] / 1e9,
        peer=int(peers[1]) if peers else -1,
    )


def _typical_step(
    entries: Sequence[Collective], steps_s: Sequence[float]
) -> tuple[tuple[Collective, ...], float]:
    """The collectives of the step that sends a median number of elements, and the median time of a step.

    Flight Recorder keeps the last calls only: a step counts if it begins after the first that is kept.
    """
    if len(steps_s) < 2:
        return (), 0.0
    settled = steps_s[SETTLING_STEPS:] if len(steps_s) > SETTLING_STEPS + 1 else steps_s
    step_s = median(after - before for before, after in pairwise(settled))
    first_s = entries[0].at_s if entries else 0.0
    whole = [(before, after) for before, after in pairwise(settled) if before >= first_s]
    if not whole:
        return (), step_s
    steps = [tuple(each for each in entries if before < each.at_s <= after) for before, after in whole[-20:]]
    steps.sort(key=lambda step: sum(each.elements for each in step))
    return steps[len(steps) // 2], step_s
