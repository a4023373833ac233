"""Which parallel plan a recorded job runs, told from its groups of ranks and from what they send."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from dally.errors import InputError
from dally.jobs.parallelism import USUAL_ORDER, Axis, Parallelism
from dally.profiles.collectives import CollectiveKind
from profiler.recorded.record import Collective, RankRecord

SMALL = 256
"""Collectives of fewer elements are flags, losses and norms."""

_GATHERED_TWICE = 1.5
"""FSDP gathers a parameter before forward and again before backward, and reduces its gradient once; ZeRO-1
and 2 gather it once. So elements gathered are twice or once those reduced."""

_LEAST_GATHERED = 0.05
"""ZeRO gathers at least this part of what it reduces; the buffers that DDP sends to all ranks are fewer."""

_SAME = 0.01
"""Tensors are gradients if their elements differ by no more from those that the optimizer trains."""

_NAMED = 8
"""So many ranks are named that left no record."""

MESSAGES = (CollectiveKind.SEND, CollectiveKind.RECEIVE)

REDUCING = (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE)
"""Gloo reduces and scatters by an all-reduce; some ZeRO reduces each gradient to the rank that owns it."""

_WORDS = {
    Axis.TENSOR: {"tp", "tensor"},
    Axis.PIPELINE: {"pp", "pipeline"},
    Axis.CONTEXT: {"cp", "context"},
    Axis.EXPERT: {"ep", "expert"},
    Axis.DATA: {"dp", "data", "shard", "replicate", "fsdp"},
}
"""What programs call the groups of an axis: DeviceMesh its dimensions, Megatron-LM its groups."""


@dataclass(frozen=True, slots=True)
class AxisTraffic:
    """What one group of an axis sends in a step.

    Attributes:
        axis: The axis.
        ranks: The ranks of the group, in the job.
        calls: Its collectives, or messages.
        sent_bytes: Bytes that each rank sends.
        lasted_s: How long they took on the GPU, all together, seconds; None where that is not known of each.
        group: The program's name of the group; empty of a pipeline's stages.
    """

    axis: Axis
    ranks: tuple[int, ...]
    calls: int
    sent_bytes: float
    lasted_s: float | None = None
    group: str = ""


@dataclass(frozen=True, slots=True)
class RecognisedPlan:
    """A plan, and how sure it is.

    Attributes:
        plan: The plan.
        traffic: What its groups send in a step, of the rank that sends most.
        doubts: What does not fit, or may be something else; empty if all fits.
    """

    plan: Parallelism
    traffic: tuple[AxisTraffic, ...]
    doubts: tuple[str, ...]


def recognise(records: Sequence[RankRecord]) -> RecognisedPlan:
    """The plan of a job.

    Args:
        records: Of its ranks. Each tells of its own groups; pipelines need the records of all their stages.

    Raises:
        InputError: What was found is no plan: the sizes of the axes do not fit the number of ranks.
    """
    record = max(records, key=step_bytes)
    traffic, told = group_traffic(record)
    doubts = [*told]
    pipeline = _pipeline(records, record)
    if pipeline:
        traffic.append(pipeline)
    if len(records) < record.world:
        there = {each.rank for each in records}
        missing = [str(rank) for rank in range(record.world) if rank not in there]
        named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
        doubts.append(f"{len(records)} of {record.world} ranks left a record, not {named}")
    return RecognisedPlan(_plan(record, traffic, doubts), tuple(traffic), tuple(doubts))


def step_bytes(record: RankRecord) -> float:
    """Bytes that a rank sends in a step."""
    return sum(
        each.sent_bytes(len(record.groups[each.group].ranks))
        for each in record.step
        if each.group in record.groups
    )


def group_traffic(record: RankRecord) -> tuple[list[AxisTraffic], list[str]]:
    """The groups of a rank that send something in each step, messages apart; and what does not fit."""
    doubts: list[str] = []
    by_group: dict[str, list[Collective]] = defaultdict(list)
    for each in record.step:
        if each.kind not in MESSAGES and each.elements >= SMALL:
            by_group[each.group].append(each)
    found = []
    for name, calls in by_group.items():
        group = record.groups.get(name)
        if group is None:
            doubts.append(f"group {name} sends, and its ranks are not known")
        elif len(group.ranks) > 1:
            axis = _axis(calls, group.description, record.parameters, doubts)
            sent_bytes = sum(each.sent_bytes(len(group.ranks)) for each in calls)
            lasted_s = [each.lasted_s for each in calls if each.lasted_s is not None]
            known_s = sum(lasted_s) if len(lasted_s) == len(calls) else None
            found.append(AxisTraffic(axis, group.ranks, len(calls), sent_bytes, known_s, name))
    return found, doubts


def _axis(calls: Sequence[Collective], description: str, parameters: int, doubts: list[str]) -> Axis:
    """What a group of ranks shares: its program's own word, or what it sends.

    Gradients are mostly reduced in flat buckets. A program that reduces each as it is, reduces just as many
    elements as its optimizer trains.
    """
    shaped = sum(each.elements for each in calls if not each.is_flat)
    flat = sum(each.elements for each in calls if each.is_flat)
    reduced = sum(each.elements for each in calls if each.kind in REDUCING)
    if any(each.kind is CollectiveKind.ALL_TO_ALL for each in calls):
        seen = Axis.EXPERT
    elif shaped <= flat or (parameters and abs(reduced - parameters) <= _SAME * parameters):
        seen = Axis.DATA
    else:
        seen = Axis.TENSOR
    words = set(re.findall("[a-z]+", description.lower()))
    named = [axis for axis, known in _WORDS.items() if words & known]
    if seen in named or not named:
        return seen
    if named[0] is not Axis.CONTEXT or seen is Axis.DATA:  # ring or Ulysses, it sends activations
        doubts.append(f"group {description} sends what {seen} sends, and its name says {named[0]}")
    return named[0]


def _pipeline(records: Sequence[RankRecord], record: RankRecord) -> AxisTraffic | None:
    """The stages of a rank: the ranks that messages of a step lead to, one after the other."""
    peers: dict[int, set[int]] = defaultdict(set)
    for each in records:
        for message in _messages(each):
            to = each.groups[message.group].ranks[message.peer]
            peers[each.rank].add(to)
            peers[to].add(each.rank)
    stages, new = {record.rank}, {record.rank}
    while new:
        new = set().union(*(peers[rank] for rank in new)) - stages
        stages |= new
    if len(stages) == 1:
        return None
    sent = [message.elements * message.element_bytes for message in _messages(record)]
    return AxisTraffic(Axis.PIPELINE, tuple(sorted(stages)), len(sent), float(sum(sent)))


def _messages(record: RankRecord) -> Iterable[Collective]:
    for each in record.step:
        group = record.groups.get(each.group)
        sent = each.kind is CollectiveKind.SEND and each.elements * each.element_bytes >= SMALL
        if sent and group and 0 <= each.peer < len(group.ranks):
            yield each


def _plan(record: RankRecord, traffic: Sequence[AxisTraffic], doubts: list[str]) -> Parallelism:
    sizes = {axis: _size([each.ranks for each in traffic if each.axis is axis]) for axis in Axis}
    others = prod(sizes[axis] for axis in USUAL_ORDER if axis is not Axis.DATA)
    if record.world % others:
        raise InputError(
            f"{record.world} ranks are not a multiple of {_shown(sizes)}; this is no plan that is known"
        )
    replicas = record.world // others
    if sizes[Axis.DATA] == 1 < replicas:
        doubts.append(f"{replicas} replicas were seen to send each other nothing")
    elif sizes[Axis.DATA] not in (replicas, replicas * sizes[Axis.CONTEXT]):  # both share the weights
        doubts.append(
            f"{_shown(sizes)} make {others * sizes[Axis.DATA]} ranks, and the job has {record.world}"
        )
    sizes[Axis.DATA] = replicas
    return Parallelism(
        dp=replicas,
        tp=sizes[Axis.TENSOR],
        pp=sizes[Axis.PIPELINE],
        cp=sizes[Axis.CONTEXT],
        ep=sizes[Axis.EXPERT],
        zero=_zero_stage(record, [each.ranks for each in traffic if each.axis is Axis.DATA]),
        order=_order(traffic),
    )


def _size(groups: Sequence[tuple[int, ...]]) -> int:
    """Ranks of an axis: those of its group, or of several that cross (HSDP's shards and replicas)."""
    largest = sorted(set(groups), key=len, reverse=True)
    crossing = [group for group in largest[1:] if len(set(group) & set(largest[0])) == 1]
    return len(largest[0]) * len(crossing[0]) if crossing else len(largest[0]) if largest else 1


def _zero_stage(record: RankRecord, groups: Sequence[tuple[int, ...]]) -> int:
    """ZeRO stage of the data groups; 1 stands for 1 and 2, which send the same."""
    gathered: Counter[str] = Counter()
    reduced: Counter[str] = Counter()
    for each in record.step:
        group = record.groups.get(each.group)
        if group is None or group.ranks not in groups or each.elements < SMALL:
            continue
        if each.kind is CollectiveKind.ALL_GATHER and each.is_flat:
            gathered[each.group] += each.elements * len(group.ranks)
        elif each.kind is CollectiveKind.BROADCAST:  # by each owner in turn
            gathered[each.group] += each.elements
        elif each.kind in REDUCING:
            reduced[each.group] += each.elements
    if not gathered:
        return 0
    shard, elements = gathered.most_common(1)[0]
    if elements < _LEAST_GATHERED * reduced[shard]:
        return 0
    return 3 if elements > _GATHERED_TWICE * reduced[shard] else 1


def _order(traffic: Sequence[AxisTraffic]) -> tuple[Axis, ...]:
    """The axes from neighbouring ranks outwards; those that send nothing keep their usual place behind."""
    strides = {each.axis: each.ranks[1] - each.ranks[0] for each in reversed(traffic)}
    known = sorted((axis for axis in USUAL_ORDER if axis in strides), key=lambda axis: strides[axis])
    rest = iter(known)
    return tuple(next(rest) if axis in strides else axis for axis in USUAL_ORDER)


def _shown(sizes: dict[Axis, int]) -> str:
    return " x ".join(f"{axis}={size}" for axis, size in sizes.items() if size > 1) or "1"
