"""What a recorded step communicates, event by event, on the clock of its compute."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import fmean

import numpy as np

from dally.cluster.topology import Shape
from dally.jobs.parallelism import Axis
from dally.profiles.collectives import CollectiveKind, sent_share
from dally.profiles.event_iteration import PricedEvent, as_transfer, measured_curves, price_events
from dally.profiles.event_replay import replay_s
from dally.profiles.events import CollectiveCurve, Event
from dally.profiles.parallel.rank_placement import RankPlacement
from dally.profiles.schema import StageCompute
from profiler.recorded.plan_recognition import MESSAGES, REDUCING, SMALL, group_traffic, step_bytes
from profiler.recorded.record import Collective, RankRecord

_LEAST_COMPUTE = 0.01
"""Of a step so much is compute at least, however slow the links are said to be."""

_HALVINGS = 50

FORWARD = 1 / 3
"""Of compute, about: backward multiplies twice, by weights and by activations, where forward does once."""

_WAITED = 0.5
"""A CPU that launches nothing for this part of a step waited for the GPU meanwhile."""

_REDUCED_AGAIN = 1.5
"""A step that reduces so many gradients for each parameter reduces those of each microbatch."""

_UNEVEN = 0.01
"""Loads of experts that differ by no more than this are alike."""

NEVER = -1
"""No call waits for what the rank that receives it waits for."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step as a profile has it.

    Attributes:
        events: In the order of their calls; times are on the clock of compute.
        curves: How long they took, where that was recorded.
        backward_s: Compute until the last call, after which the optimizer steps, seconds.
        optimizer_s: Compute after that.
        stages: Compute of each stage of a pipeline; the two above are then those of all, and what stages wait
            for one another is in them. Empty if all ranks are taken to do the same.
    """

    events: tuple[Event, ...]
    curves: tuple[CollectiveCurve, ...]
    backward_s: float
    optimizer_s: float
    stages: tuple[StageCompute, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A collective or a message as it was called.

    Attributes:
        event: What it is; its times are those of the call. A message is a send where it is asked for, too.
        needed: The call at which compute waits for it; None: at the end of backward.
        lasted_s: How long it took on the GPU; None if unknown.
        call: What was recorded of it.
    """

    event: Event
    needed: int | None
    lasted_s: float | None
    call: Collective


def recorded_step(records: Sequence[RankRecord], shape: Shape, ranks: RankPlacement) -> RecordedStep:
    """The step of the rank that sends most.

    Args:
        records: Of all ranks.
        shape: Of the place where they ran; its rings have the links.
        ranks: Where they ran.
    """
    record = max(records, key=step_bytes)
    calls = recorded_calls(record, records)
    timed = [(call.event, call.lasted_s) for call in calls if call.lasted_s]
    curves = measured_curves([(event, seconds) for event, seconds in timed if seconds], shape, ranks)
    prices = price_events([call.event for call in calls], curves, shape, ranks, by_gloo=not record.launched)
    if record.launched:
        at_s, total_s = _launched(calls, prices, record)
    else:
        at_s, total_s = computed_until(calls, prices, record.step_s)
    events = tuple(event for _, event in timed_events(calls, at_s, record.launched))
    backward_s = at_s[-1] or total_s if calls else total_s
    return RecordedStep(events, curves, backward_s, total_s - backward_s)


def recorded_calls(
    record: RankRecord, records: Sequence[RankRecord], asked_for: bool = False
) -> list[RecordedCall]:
    """The calls of a rank that send something, in their order, and when each is needed.

    Args:
        record: Of the rank.
        records: Of all ranks.
        asked_for: Messages that it asks for are among them, and it waits for those, not for what it sends.
    """
    traffic, _ = group_traffic(record)
    by_name = {each.group: each.axis for each in traffic}
    by_ranks = {each.ranks: each.axis for each in traffic}  # of small calls
    kept = []
    for number, (each, called_s) in enumerate(zip(record.step, record.called_s, strict=True)):
        group = record.groups.get(each.group)
        silent = not sent_share(each.kind, 2) and not (asked_for and each.kind is CollectiveKind.RECEIVE)
        if group is None or len(group.ranks) < 2 or not each.elements or silent:
            continue
        axis, kind = by_name.get(each.group) or by_ranks.get(group.ranks, Axis.DATA), each.kind
        if kind in MESSAGES:
            axis, kind = Axis.PIPELINE, CollectiveKind.SEND
        size, stride = _lie(group.ranks, record.world)
        whole_bytes = each.whole_bytes(len(group.ranks))
        loads: tuple[float, ...] = ()
        if kind is CollectiveKind.ALL_TO_ALL and stride == group.ranks[1] - group.ranks[0]:
            whole_bytes, loads = _expert_loads(number, each, records, len(group.ranks), record.rank)
        event = Event(kind, whole_bytes, axis, size, stride, max(0.0, called_s), loads=loads)
        kept.append((each, event, _lasted_s(number, each, group.ranks, records)))
    after: dict[str, tuple[int, Collective]] = {}  # the next collective of each group
    found = []
    for number in reversed(range(len(kept))):
        each, event, lasted_s = kept[number]
        needed = _needed_at(number, each, event.axis, after.get(each.group))
        if asked_for and each.kind is CollectiveKind.SEND:
            needed = NEVER
        found.append(RecordedCall(event, needed, lasted_s, each))
        if each.kind not in MESSAGES:
            after[each.group] = number, each
    return found[::-1]


def _expert_loads(
    number: int, call: Collective, records: Sequence[RankRecord], size: int, rank: int
) -> tuple[int, tuple[float, ...]]:
    """What each rank of a group has in the mean, bytes, and the load of all ranks: see `Event`.

    Ranks that have equally much send unequal parts of it to experts, and get these back in equal ones.
    """
    found = []
    for record in sorted(records, key=lambda each: each.rank):
        other = record.step[number] if number < len(record.step) else None
        if other is None or other.kind is not call.kind or not other.received:
            return call.whole_bytes(size), ()
        found.append((other, record.groups[other.group].ranks))
    mean: dict[tuple[int, ...], float] = {
        ranks: fmean(other.elements for other, among in found if among == ranks) for _, ranks in found
    }
    loads = tuple(round(other.elements * other.received / mean[ranks] ** 2, 3) for other, ranks in found)
    whole = round(mean[found[rank][1]] * call.element_bytes)
    return whole, loads if max(loads) - min(loads) > _UNEVEN else ()


def _lie(ranks: Sequence[int], world: int) -> tuple[int, int]:
    """Size and stride of groups; those that are not every so many ranks are taken for neighbours."""
    size, stride = len(ranks), ranks[1] - ranks[0]
    if world % (size * stride) == 0:
        return size, stride
    return (size, 1) if world % size == 0 else (world, 1)


def _needed_at(number: int, call: Collective, axis: Axis, after: tuple[int, Collective] | None) -> int | None:
    """At which call compute waits for this one; None: at the end of backward.

    Gradients are waited for by the optimizer. FSDP gathers a layer's weights before its forward, and for
    backward while that of the layer after it computes: until that one's gradients are reduced. All else is
    activations, or too small to matter, and waited for at once.
    """
    if axis is not Axis.DATA or call.elements < SMALL:
        return number
    if call.kind in REDUCING and call.is_flat:
        return None
    if call.kind is CollectiveKind.ALL_GATHER and after is not None and after[1].kind in REDUCING:
        return after[0]
    return number


def _lasted_s(
    number: int, call: Collective, group: Sequence[int], records: Sequence[RankRecord]
) -> float | None:
    """How long a call took for the rank of its group that waited least for others; None if unknown."""
    if call.lasted_s is None:
        return None
    of = call.group, call.kind, call.elements
    seconds = [call.lasted_s]
    for record in records:
        if record.rank in group and number < len(record.step):
            other = record.step[number]
            if (other.group, other.kind, other.elements) == of and other.lasted_s is not None:
                seconds.append(other.lasted_s)
    return min(seconds) or None


def computed_until(
    calls: Sequence[RecordedCall], prices: Sequence[PricedEvent], step_s: float
) -> tuple[list[float], float]:
    """When calls are on the clock of compute, and all compute of the step: what was waited for taken off.

    The thread that computes waits, so that the times of calls tell of it: between two of them it waited for
    what is needed at the first, as long as that takes, and computed else.
    """
    waited_s = 0.0
    free_s: dict[int, float] = defaultdict(float)
    needed: dict[int | None, float] = defaultdict(float)
    at_s = []
    for number, (call, price) in enumerate(zip(calls, prices, strict=True)):
        now_s = call.event.ready_s
        after_s = calls[number + 1].event.ready_s if number + 1 < len(calls) else step_s
        at_s.append(now_s - waited_s)
        free_s[price.links] = max(now_s, free_s[price.links]) + price.seconds
        needed[call.needed] = max(needed[call.needed], free_s[price.links])
        done_s = max(needed[number], needed[None] if number + 1 == len(calls) else 0.0)
        waited_s += max(0.0, min(done_s, after_s) - now_s)
    return at_s, max(step_s - waited_s, _LEAST_COMPUTE * step_s)


def timed_events(
    calls: Sequence[RecordedCall], at_s: Sequence[float], launched: bool
) -> list[tuple[int, Event]]:
    """Events of calls, with the numbers of these, in the order in which they are ready.

    Args:
        calls: Of a rank.
        at_s: When each is on the clock of compute.
        launched: Whether the CPU runs ahead of the GPU.
    """
    ready = _ahead(calls) if launched else [*range(len(calls))]
    found = []
    for number in sorted(range(len(calls)), key=lambda each: (ready[each], each)):
        event, needed = calls[number].event, calls[number].needed
        needed_s = None if needed in (None, NEVER) else at_s[needed]
        found.append((number, replace(event, ready_s=at_s[ready[number]], needed_s=needed_s)))
    return found


def _ahead(calls: Sequence[RecordedCall]) -> list[int]:
    """At which call each begins: a gather that follows another of its groups begins with that one.

    It is launched while the layer before computes, as the CPU runs ahead.
    """
    gathers: dict[tuple[int, int], int] = {}  # the last call of groups, if it gathers
    found = []
    for number, call in enumerate(calls):
        event = call.event
        groups = event.size, event.stride
        if event.axis is Axis.DATA and event.collective is CollectiveKind.ALL_GATHER:
            found.append(gathers.get(groups, number))
            gathers[groups] = number
        else:
            found.append(number)
            gathers.pop(groups, None)
    return found


def _launched(
    calls: Sequence[RecordedCall], prices: Sequence[PricedEvent], record: RankRecord
) -> tuple[list[float], float]:
    """When calls are on the clock of compute, and all compute, where the GPU is not waited for."""
    before = computed_before(calls, record)

    def replayed_s(total_s: float) -> float:
        at_s = [share * total_s for share in before]
        end_s = at_s[-1] if at_s else total_s
        transfers = [
            as_transfer(event, prices[number], prices[number].seconds)
            for number, event in timed_events(calls, at_s, launched=True)
        ]
        return replay_s(transfers, end_s) + total_s - end_s

    total_s = compute_that_takes(record.step_s, replayed_s)
    return [share * total_s for share in before], total_s


def computed_before(calls: Sequence[RecordedCall], record: RankRecord) -> list[float]:
    """Which part of its compute the GPU has behind it at each call that the CPU launched.

    A CPU that never waits for the GPU is slowed down by it, as only so much may be launched: its calls spread
    over compute as over the step. One that reads the loss in each step waits there and launches all calls of
    a step in one go: then what they carry tells. Layers are taken to compute in proportion to their weights,
    backward twice as long as forward. Weights are gathered before the forward of their layer, or at the
    start of the backward of the layer after it; gradients are reduced after the backward of theirs. Where
    gradients are accumulated, all microbatches take as long, and their gradients are reduced in the last.

    Args:
        calls: In their order.
        record: Of the rank that made them.
    """
    # The optimizer waits for gradients alone.
    reducing = [
        number for number, each in enumerate(calls) if each.needed is None and each.call.kind in REDUCING
    ]
    if not reducing or not launched_in_one_go(calls, record.step_s):
        return [call.event.ready_s / record.step_s for call in calls]
    scattering = [number for number in reducing if calls[number].call.kind is CollectiveKind.REDUCE_SCATTER]
    layers = scattering or reducing  # HSDP reduces at once between replicas what it has scattered
    gathering = [number for number, call in enumerate(calls) if _gathers_weights(call)]
    reduced = sum(calls[number].call.elements for number in layers)
    accumulated = reduced < _REDUCED_AGAIN * record.parameters or len(gathering) > 2 * len(layers)
    passes = max(1, record.backward_passes) if accumulated else 1
    gathered = passes if len(gathering) > len(layers) else 1  # in each pass anew, or once
    known = {-1: 0.0}  # the start of the step
    for done in range(passes):
        begin, middle, end = done / passes, (done + FORWARD) / passes, (done + 1) / passes
        first, after = (len(gathering) * each // gathered for each in (done, done + 1))
        forward = [number for number in gathering[first:after][: len(layers)] if number < layers[0]]
        known |= _spread(calls, forward, begin, middle, after=False)
        if done + 1 < gathered:
            known |= _spread(calls, gathering[first + len(forward) : after], middle, end, after=False)
    known |= _spread(calls, layers, middle, end, after=True)
    for number in sorted({*gathering, *reducing} - known.keys()):
        known[number] = max([middle, *(share for other, share in known.items() if other < number)])
    return np.interp(range(len(calls)), sorted(known), sorted(known.values())).tolist()


def launched_in_one_go(calls: Sequence[RecordedCall], step_s: float) -> bool:
    """Whether the CPU launched nothing for much of a step, as it waited for the GPU."""
    at_s = [call.event.ready_s for call in calls]
    pauses_s = [
        later - earlier for earlier, later in pairwise([*at_s, *(step_s + first for first in at_s[:1])])
    ]
    return max(pauses_s, default=0.0) >= _WAITED * step_s


def _gathers_weights(call: RecordedCall) -> bool:
    is_gather = call.event.collective is CollectiveKind.ALL_GATHER
    return is_gather and call.event.axis is Axis.DATA and call.call.elements >= SMALL


def _spread(
    calls: Sequence[RecordedCall], numbers: Sequence[int], start: float, end: float, after: bool
) -> dict[int, float]:
    """Where on a part of compute calls are, before or after that of the layers whose bytes they carry."""
    sizes = [calls[number].event.bytes for number in numbers]
    done = [*accumulate(sizes, initial=0)]
    places = done[1:] if after else done[:-1]
    return {
        number: start + (end - start) * place / done[-1]
        for number, place in zip(numbers, places, strict=True)
    }


def compute_that_takes(step_s: float, replayed_s: Callable[[float], float]) -> float:
    """All compute of a step, seconds, where the GPU is not waited for.

    The calls are launched while the GPU still works on what was launched before, so that their times do not
    tell what it computed between them. Compute is taken to be as long as makes the replay take a step.

    Args:
        step_s: The step.
        replayed_s: How long the replay of so much compute takes.
    """
    low_s, high_s = _LEAST_COMPUTE * step_s, step_s
    for _ in range(_HALVINGS):
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if replayed_s(middle_s) > step_s else (middle_s, high_s)
    return low_s
