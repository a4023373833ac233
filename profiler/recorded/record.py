"""What one rank of a recorded job wrote: its process groups, its collectives and the times of its steps."""

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from pathlib import Path
from statistics import fmean, median
from typing import Any

import orjson

from dally.atomic_file import open_plain, read_within, user_name
from dally.errors import InputError
from dally.profiles.collectives import CollectiveKind, sent_share

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
_PEERS = re.compile(r"(?:->|<-)(\d{1,9})")
_BYTES_OF_A_RECORD = 2**25
"""Of each of its two lines; 20,000 collectives have some 10 MB."""

_MOST_RANKS, _MOST_DIMENSIONS = 100_000, 64
_FILES = "rank-*.json.gz"
_RUN_BELOW = re.compile("/run-[^/]*$")
_SCHEMAS = (1, 2, 3)
"""Version 1 tells no times of the record itself, version 2 not when messages were waited for."""

_NO_WHOLE_STEP = "one step has more collectives than PyTorch remembers; TORCH_FR_BUFFER_SIZE sets how many"
_NOW_AND_THEN = "its typical step sends nothing, and what its other steps send is not counted"
"""As where ranks average their weights every so many steps."""

_KINDS = {
    "allreduce": CollectiveKind.ALL_REDUCE,
    "allgather": CollectiveKind.ALL_GATHER,
    "allgatherintotensor": CollectiveKind.ALL_GATHER,
    "reducescatter": CollectiveKind.REDUCE_SCATTER,
    "reducescattertensor": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
    "broadcast": CollectiveKind.BROADCAST,
    "broadcastoop": CollectiveKind.BROADCAST,
    "reduce": CollectiveKind.REDUCE,
    "reduceoop": CollectiveKind.REDUCE,
    "scatter": CollectiveKind.SCATTER,
    "gather": CollectiveKind.GATHER,
    "send": CollectiveKind.SEND,
    "recv": CollectiveKind.RECEIVE,
}

_DIFFERS = (CollectiveKind.ALL_TO_ALL,)
_GATHERING = (CollectiveKind.ALL_GATHER, CollectiveKind.GATHER)


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
        at_s: When it was called, seconds since 1970, or since the start of its step.
        peer: The rank of the group that a message goes to, or comes from; -1 if it is for all.
        lasted_s: How long it took on the GPU, waiting for the slowest rank included, seconds; None where
            NCCL was not asked for it (TORCH_NCCL_ENABLE_TIMING).
        received: Elements that come out on this rank; 0 if unknown.
        waited_s: From when until when the rank waited for a message, on the clock of `at_s`; None: unknown.
    """

    group: str
    kind: CollectiveKind
    elements: int
    element_bytes: int
    is_flat: bool
    at_s: float
    peer: int = -1
    lasted_s: float | None = None
    received: int = 0
    waited_s: tuple[float, float] | None = None

    def whole_bytes(self, ranks: int) -> int:
        """Bytes of the whole tensor, in a group of so many ranks: see `sent_share`."""
        parts = ranks if self.kind in _GATHERING else 1
        return self.elements * self.element_bytes * parts

    def sent_bytes(self, ranks: int) -> float:
        """Bytes that a rank sends, of a group of so many, where they form a ring.

        Of calls with a root it is a part of which all ranks together make up what is sent. Only the root of a
        scatter may have elements, which are then those of all.
        """
        return sent_share(self.kind, ranks) * self.whole_bytes(ranks)


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
        collectives: All that PyTorch still remembered, in the order of their calls.
        step: Those of its typical step, which begins when the optimizer has stepped.
        called_s: When each of these is called, seconds from the start of the step: the median of all steps
            that do the same.
        launched: Whether calls only launch what the GPU does later, as with NCCL.
        step_s: Median time of a step, seconds.
        steps: Steps that were seen.
        parameters: Elements that its optimizer trains; 0 if unknown, as in old records.
        backward_passes: Those of a step, one for each microbatch; 0 if unknown.
        stepped_s: When the optimizer stepped, seconds since 1970.
        begun_s: When its process group was there, seconds since 1970; of old records the first step.
        written_s: When the record was written; of old records the last step.
        lacks: Why it has no collectives; empty if it has.
    """

    rank: int
    world: int
    host: str
    groups: Mapping[str, RecordedGroup]
    collectives: tuple[Collective, ...]
    step: tuple[Collective, ...]
    called_s: tuple[float, ...]
    launched: bool
    step_s: float
    steps: int
    parameters: int
    backward_passes: int
    stepped_s: tuple[float, ...]
    begun_s: float
    written_s: float
    lacks: str


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run of a job's ranks.

    Attributes:
        folder: Where they lie.
        owner: Whose they are.
        records: Of its ranks, by rank; one or more.
        notes: What is missing of them, and which other runs there are.
    """

    folder: Path
    owner: str
    records: tuple[RankRecord, ...]
    notes: tuple[str, ...]


def read_run(folder: Path) -> RecordedRun:
    """The records of a job's last run that trained, or of the run whose folder it is.

    What cannot be read is left out, and told, as long as the record of one rank can. Read are records of the
    user who asks; root reads those of the folder's owner.

    Raises:
        InputError: There are none, they are of several jobs, or of another user.
    """
    owner = os.geteuid() or folder.stat().st_uid
    folders = [each for each in (folder, *sorted(folder.glob("run-*"))) if any(each.glob(_FILES))]
    if not folders:
        below = {str(path.parent.relative_to(folder)) for path in folder.rglob(_FILES)}  # through no links
        jobs = sorted({_RUN_BELOW.sub("", each) for each in below})
        hint = f"; it has records of jobs {', '.join(jobs)}" if jobs else ""
        raise InputError(f"{folder} has no files {_FILES}{hint}")
    problems: list[InputError] = []
    runs = []
    for each in folders:
        try:
            runs.append(_read_run(each, owner))
        except InputError as error:
            problems.append(error)
    if not runs:
        raise problems[0]
    last = max(runs, key=lambda run: run.records[0].begun_s)
    others = [each.name for each in folders if each != last.folder]
    if not others:
        return last
    named = f"this is {last.folder.name}, the last that trained; other runs: {', '.join(others)}"
    return replace(last, notes=(*last.notes, named))


def _read_run(folder: Path, owner: int) -> RecordedRun:
    """What a folder of ranks holds of the run that began last."""
    records, problems = [], []
    for path in sorted(folder.glob(_FILES)):
        try:
            records.append(read_record(path, owner))
        except InputError as error:
            problems.append(error)
    if not records:
        raise problems[0]
    begun_s = max(record.begun_s for record in records)
    earlier = [record for record in records if record.written_s < begun_s]
    notes = [str(error) for error in problems]
    if earlier:
        named = ", ".join(str(record.rank) for record in earlier)
        notes.append(f"ranks {named} left records of an earlier run, which are not read")
    records = [record for record in records if record not in earlier]
    worlds = {record.world for record in records}
    if len(worlds) > 1:
        raise InputError(
            f"{folder} has records of jobs of {' and '.join(map(str, sorted(worlds)))} ranks; one is read"
        )
    lacks = {record.lacks: record.rank for record in reversed(records) if record.lacks}
    notes += [f"rank {rank}: {lack}" for lack, rank in lacks.items()]
    return RecordedRun(folder, user_name(owner), tuple(records), tuple(notes))


def read_record(path: Path, owner: int) -> RankRecord:
    """One rank's record.

    Args:
        path: The file.
        owner: The number of the user to whom it must belong.

    Raises:
        InputError: It cannot be read, has no steps, or belongs to another user.
    """
    try:
        with open_plain(path, owner, follow=False) as stored, gzip.open(stored, "rb") as file:
            about = orjson.loads(file.readline(_BYTES_OF_A_RECORD))
            trace = orjson.loads(read_within(file, _BYTES_OF_A_RECORD))
        return _record(path, about, trace)
    except PermissionError as error:
        whose = f"only {user_name(owner)}'s records are read; copy others', and they are yours"
        raise InputError(f"{path}: {error.strerror}; {whose}") from error
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
    if about["schema"] not in _SCHEMAS:
        raise InputError(f"{path}: schema {about['schema']} is not known; update Dally")
    entries = [_collective(entry) for entry in trace.get("entries", ())]
    if not any(each.kind is CollectiveKind.SEND for each in entries):
        entries += _messages(about["sent"], CollectiveKind.SEND)
        entries += _messages(about.get("received", ()), CollectiveKind.RECEIVE)
    entries.sort(key=lambda each: each.at_s)
    steps_s = [at_ns / 1e9 for at_ns in about["steps_ns"]]
    typical, called_s, step_s, lack = _typical_step(entries, steps_s)
    if not step_s:
        raise InputError(f"{path}: saw no two steps of an optimizer of torch.optim; let the job run longer")
    rank, world = _whole(about["rank"]), _whole(about["world"])
    if not 0 <= rank < world <= _MOST_RANKS:
        raise InputError(f"{path}: rank {rank} of {world}; a job has 1 to {_MOST_RANKS:,}, counted from 0")
    return RankRecord(
        rank=rank,
        world=world,
        host=str(about["host"]),
        groups={
            str(name): RecordedGroup(tuple(map(_whole, group["ranks"])), str(group["description"]))
            for name, group in about["groups"].items()
            if group["ranks"]
        },
        collectives=tuple(entries),
        step=typical,
        called_s=called_s,
        launched=any("nccl" in entry["profiling_name"] for entry in trace.get("entries", ())),
        step_s=step_s,
        steps=len(steps_s),
        parameters=_whole(about.get("parameters", 0)),
        backward_passes=_whole(about.get("backward_passes", 0)),
        stepped_s=tuple(steps_s),
        begun_s=about.get("begun_ns", about["steps_ns"][0]) / 1e9,
        written_s=about.get("written_ns", about["steps_ns"][-1]) / 1e9,
        lacks=about.get("lacks", "") or (lack if entries else ""),
    )


def _messages(noted: Iterable[Sequence[Any]], kind: CollectiveKind) -> Iterator[Collective]:
    """Messages that Flight Recorder did not see."""
    for group, size, at_ns, peer, *waited_ns in noted:
        waited_s = (waited_ns[0] / 1e9, waited_ns[1] / 1e9) if all(waited_ns) and waited_ns else None
        yield Collective(
            str(group), kind, _whole(size), 1, False, at_ns / 1e9, _whole(peer), waited_s=waited_s
        )


def _collective(entry: Mapping[str, Any]) -> Collective:
    match = _NAME.fullmatch(entry["profiling_name"])
    name = match[1].replace("_", "") if match else ""
    sizes, peers = entry["input_sizes"], _PEERS.search(entry["profiling_name"])
    return Collective(
        group=str(entry["process_group"][0]),
        kind=_KINDS.get(name, CollectiveKind.OTHER),
        elements=_elements(sizes),
        element_bytes=_BYTES.get(entry["input_dtypes"][0] if entry["input_dtypes"] else "", 1),
        is_flat=all(len(size) <= 1 for size in sizes),
        at_s=entry["time_created_ns"] / 1e9,
        peer=int(peers[1]) if peers else -1,
        lasted_s=entry["duration_ms"] / 1e3 if "duration_ms" in entry else None,
        received=_elements(entry.get("output_sizes", ())),
    )


def _whole(number: object) -> int:
    """A whole number as JSON has it, which `orjson` reads in 64 bits."""
    if not isinstance(number, int):
        raise TypeError(f"{str(number)[:20]!r} is no whole number of 64 bits")
    return number


def _elements(sizes: Iterable[Sequence[int]]) -> int:
    elements = sum(prod(size[: _MOST_DIMENSIONS + 1]) for size in sizes)
    if not 0 <= elements < 2**63:
        raise ValueError("its tensors have more than 64 bits of elements")
    return elements


def _typical_step(
    entries: Sequence[Collective], steps_s: Sequence[float]
) -> tuple[tuple[Collective, ...], tuple[float, ...], float, str]:
    """The collectives of the step that sends a median number of elements, their times, and that of a step.

    If that step has none and others may, also why. Flight Recorder keeps the last calls only: a step counts
    if it begins after the first that is kept.
    """
    if len(steps_s) < 2:
        return (), (), 0.0, ""
    settled = steps_s[SETTLING_STEPS:] if len(steps_s) > SETTLING_STEPS + 1 else steps_s
    step_s = median(after - before for before, after in pairwise(settled))
    first_s = entries[0].at_s if entries else 0.0
    whole = [(before, after) for before, after in pairwise(settled) if before >= first_s][-20:]
    if not whole:
        return (), (), step_s, _NO_WHOLE_STEP
    steps = [
        tuple(_since(before, each) for each in entries if before < each.at_s <= after)
        for before, after in whole
    ]
    typical = sorted(steps, key=lambda step: sum(each.elements for each in step))[len(steps) // 2]
    alike = [step for step in steps if _calls(step) == _calls(typical)]
    same = [*zip(*alike, strict=True)]
    called_s = tuple(median(each.at_s for each in calls) for calls in same)
    lack = _NOW_AND_THEN if any(steps) and not typical else ""
    return tuple(map(_typical_call, typical, same)), called_s, step_s, lack


def _since(start_s: float, call: Collective) -> Collective:
    """A call on the clock of its step."""
    waited_s = call.waited_s and (call.waited_s[0] - start_s, call.waited_s[1] - start_s)
    return replace(call, at_s=call.at_s - start_s, waited_s=waited_s)


def _calls(step: Sequence[Collective]) -> list[tuple[str, CollectiveKind, int]]:
    """What tells steps apart; how many tokens go to an expert may differ from one to the next."""
    return [(each.group, each.kind, 0 if each.kind in _DIFFERS else each.elements) for each in step]


def _typical_call(call: Collective, same: Sequence[Collective]) -> Collective:
    """A call as several steps have it: the mean of what goes from all to all, the median of waits."""
    if call.kind in _DIFFERS:
        elements = round(fmean(each.elements for each in same))
        return replace(call, elements=elements, received=round(fmean(each.received for each in same)))
    waits_s = [each.waited_s for each in same if each.waited_s]
    if not waits_s:
        return call
    began_s, ended_s = (median(times) for times in zip(*waits_s, strict=True))
    return replace(call, waited_s=(began_s, ended_s))
