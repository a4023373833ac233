"""What a recorded step communicates, event by event, on the clock of its compute."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from dally.cluster.topology import Shape
from dally.jobs.parallelism import Axis
from dally.profiles.collectives import CollectiveKind, sent_share
from dally.profiles.event_iteration import PricedEvent, measured_curves, price_events
from dally.profiles.event_replay import Transfer, replay_s
from dally.profiles.events import CollectiveCurve, Event
from dally.profiles.parallel.rank_placement import RankPlacement
from profiler.recorded.plan_recognition import REDUCING, SMALL, RecognisedPlan, step_bytes
from profiler.recorded.record import Collective, RankRecord

_LEAST_COMPUTE = 0.01
"""Of a step so much is compute at least, however slow the links are said to be."""

_HALVINGS = 50


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step as a profile has it.

    Attributes:
        events: In the order of their calls; times are on the clock of compute.
        curves: How long they took, where that was recorded.
        backward_s: Compute until the last call, after which the optimizer steps, seconds.
        optimizer_s: Compute after that.
    """

    events: tuple[Event, ...]
    curves: tuple[CollectiveCurve, ...]
    backward_s: float
    optimizer_s: float


@dataclass(frozen=True, slots=True)
class _Call:
    """A collective as it was called.

    Attributes:
        event: What it is; its times are those of the call.
        needed: The call at which compute waits for it; None: at the end of backward.
        lasted_s: How long it took on the GPU; None if unknown.
    """

    event: Event
    needed: int | None
    lasted_s: float | None


def recorded_step(
    records: Sequence[RankRecord], recognised: RecognisedPlan, shape: Shape, ranks: RankPlacement
) -> RecordedStep:
    """The step of the rank that sends most.

    Args:
        records: Of all ranks.
        recognised: Their plan.
        shape: Of the place where they ran; its rings have the links.
        ranks: Where they ran.
    """
    record = max(records, key=step_bytes)
    calls = _calls(record, records, recognised)
    timed = [(call.event, call.lasted_s) for call in calls if call.lasted_s]
    curves = measured_curves([(event, seconds) for event, seconds in timed if seconds], shape, ranks)
    prices = price_events([call.event for call in calls], curves, shape, ranks)
    if record.launched:
        ready = _ahead(calls)
        at_s, total_s = _launched(calls, ready, prices, record.step_s)
    else:
        ready = [*range(len(calls))]
        at_s, total_s = _called(calls, prices, record.step_s)
    events = tuple(
        replace(
            calls[number].event,
            ready_s=at_s[ready[number]],
            needed_s=None if (needed := calls[number].needed) is None else at_s[needed],
        )
        for number in _in_order(ready)
    )
    backward_s = at_s[-1] or total_s if calls else total_s
    return RecordedStep(events, curves, backward_s, total_s - backward_s)


def _calls(record: RankRecord, records: Sequence[RankRecord], recognised: RecognisedPlan) -> list[_Call]:
    """The calls of a rank that send something, in their order, and when each is needed."""
    axes = {each.ranks: each.axis for each in recognised.traffic}
    kept = []
    for number, (each, called_s) in enumerate(zip(record.step, record.called_s, strict=True)):
        group = record.groups.get(each.group)
        if group is not None and len(group.ranks) > 1 and each.elements and sent_share(each.kind, 2):
            axis = Axis.PIPELINE if each.kind is CollectiveKind.SEND else axes.get(group.ranks, Axis.DATA)
            size, stride = _lie(group.ranks, record.world)
            whole_bytes = each.whole_bytes(len(group.ranks))
            event = Event(each.kind, whole_bytes, axis, size, stride, max(0.0, called_s))
            kept.append((each, event, _lasted_s(number, each, group.ranks, records)))
    after: dict[str, tuple[int, Collective]] = {}  # the next call of each group
    found = []
    for number in reversed(range(len(kept))):
        each, event, lasted_s = kept[number]
        found.append(_Call(event, _needed_at(number, each, event.axis, after.get(each.group)), lasted_s))
        after[each.group] = number, each
    return found[::-1]


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


def _called(
    calls: Sequence[_Call], prices: Sequence[PricedEvent], step_s: float
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


def _ahead(calls: Sequence[_Call]) -> list[int]:
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


def _in_order(ready: Sequence[int]) -> list[int]:
    return sorted(range(len(ready)), key=lambda number: (ready[number], number))


def _launched(
    calls: Sequence[_Call], ready: Sequence[int], prices: Sequence[PricedEvent], step_s: float
) -> tuple[list[float], float]:
    """When calls are on the clock of compute, and all compute of the step, where the GPU is not waited for.

    The calls are launched while the GPU still works on what was launched before. So their times are taken to
    spread over compute as they do over the step, and compute to be as long as makes the replay take a step.
    """

    def shared(total_s: float) -> list[float]:
        return [call.event.ready_s * total_s / step_s for call in calls]

    def replayed_s(total_s: float) -> float:
        at_s = shared(total_s)
        transfers = [
            Transfer(
                at_s[ready[number]],
                inf if (needed := calls[number].needed) is None else at_s[needed],
                prices[number].seconds,
                prices[number].links,
            )
            for number in _in_order(ready)
        ]
        end_s = at_s[-1] if at_s else total_s
        return replay_s(transfers, end_s) + total_s - end_s

    low_s, high_s = _LEAST_COMPUTE * step_s, step_s
    for _ in range(_HALVINGS):
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if replayed_s(middle_s) > step_s else (middle_s, high_s)
    return shared(low_s), low_s
