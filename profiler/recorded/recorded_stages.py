"""What a recorded step of a pipeline communicates: each stage on the clock of its own compute."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from dally.cluster.topology import Shape
from dally.jobs.parallelism import Axis
from dally.profiles.collectives import CollectiveKind
from dally.profiles.event_iteration import PricedEvent, as_transfer, measured_curves, price_events
from dally.profiles.events import Event
from dally.profiles.local_batch import scaled_events
from dally.profiles.parallel.rank_placement import RankPlacement
from dally.profiles.schema import StageCompute
from dally.profiles.stage_replay import replay_stages_s
from profiler.recorded.plan_recognition import MESSAGES, AxisTraffic, step_bytes
from profiler.recorded.record import SETTLING_STEPS, RankRecord
from profiler.recorded.recorded_events import (
    FORWARD,
    NEVER,
    RecordedCall,
    RecordedStep,
    compute_that_takes,
    computed_until,
    launched_in_one_go,
    recorded_calls,
    timed_events,
)

_LATER = 0.1
"""Of a step: a stage that ends its step later than the first one by no more than this ends the same one."""

_ARRIVING = -1
"""Carries what a stage waits for, whose end is known: nothing follows on it."""

_Call = tuple[int, int]
"""A call by its stage and its number."""


@dataclass(frozen=True, slots=True)
class _StageRank:
    """The rank of a stage that sends most.

    Attributes:
        record: What it recorded.
        calls: Its calls, what it asks for among them.
        peers: The stage at the other end of each message; -1 of collectives.
        priced: Each call as an event between the stages.
    """

    record: RankRecord
    calls: Sequence[RecordedCall]
    peers: Sequence[int]
    priced: Sequence[Event]

    @property
    def noted_waits(self) -> bool:
        """Whether it is known when the rank waited for what it asked for."""
        asked = [call.call for call in self.calls if call.call.kind is CollectiveKind.RECEIVE]
        return all(call.waited_s for call in asked)

    def computed_s(self, at_s: float) -> float:
        """Compute until a moment of the step: without what it waited for messages until then."""
        waited_s, last_s = 0.0, 0.0
        for began_s, ended_s in sorted(call.call.waited_s for call in self.calls if call.call.waited_s):
            began_s, ended_s = max(began_s, last_s), min(ended_s, at_s)
            if ended_s > began_s:
                waited_s, last_s = waited_s + ended_s - began_s, ended_s
        return at_s - waited_s


def recorded_stages(
    records: Sequence[RankRecord], traffic: Sequence[AxisTraffic], shape: Shape, ranks: RankPlacement
) -> RecordedStep | None:
    """The steps of the ranks that send most, one of each stage of a pipeline.

    Args:
        records: Of all ranks.
        traffic: As their plan was recognised by.
        shape: Of the place where they ran; its rings have the links.
        ranks: Where they ran.

    Returns:
        None if there is no pipeline, its stages are not every so many ranks, or its messages are not known
        from both sides, as of old records under gloo.
    """
    pipeline = next((each.ranks for each in traffic if each.axis is Axis.PIPELINE), ())
    world = records[0].world
    if not pipeline or not _is_regular(pipeline, world):
        return None
    stages = [
        _stage(number, (len(pipeline), pipeline[1] - pipeline[0]), records) for number in range(len(pipeline))
    ]
    sent = _sent_for(stages)
    if not sent:
        return None
    timed = [
        (event, call.lasted_s)
        for stage in stages
        for call, event in zip(stage.calls, stage.priced, strict=True)
        if call.lasted_s and call.call.kind not in MESSAGES  # in which waiting for the other end is
    ]
    curves = measured_curves([(event, seconds) for event, seconds in timed if seconds], shape, ranks)
    by_gloo = not stages[0].record.launched
    prices = [price_events(stage.priced, curves, shape, ranks, by_gloo=by_gloo) for stage in stages]
    if not by_gloo:
        at_s = [_launched_stage(stage, number, len(stages)) for number, stage in enumerate(stages)]
        totals_s = [stage.record.step_s for stage in stages]
    elif all(stage.noted_waits for stage in stages):
        at_s, totals_s = _waiting_stages(stages, prices)
    else:
        at_s, totals_s = _called_stages(stages, sent, prices)
    timed_calls = _timed(stages, sent, at_s)

    def replayed_s(pace: float, times: float) -> float:
        """A step whose compute takes `pace` times as long, and what is sent so many times."""
        transfers = []
        for (stage, place), event in timed_calls:
            price = prices[stage][place]
            transfers.append(as_transfer(event, price, price.seconds * times, pace))
        return replay_stages_s(transfers, _computes(at_s, totals_s, pace), by_gloo)

    # Clocks and medians are not exact: compute is made as long as has the replay take the recorded step.
    longest_s = max(totals_s)
    total_s = compute_that_takes(stages[0].record.step_s, lambda total: replayed_s(total / longest_s, 1.0))
    pace = total_s / longest_s
    events = scaled_events((event for _, event in timed_calls), pace)
    return RecordedStep(
        events=tuple(sorted(events, key=lambda event: event.ready_s)),
        curves=curves,
        backward_s=replayed_s(pace, 0.0),
        optimizer_s=0.0,
        stages=tuple(StageCompute(*each) for each in _computes(at_s, totals_s, pace)),
    )


def _is_regular(pipeline: Sequence[int], world: int) -> bool:
    stride = pipeline[1] - pipeline[0]
    even = range(pipeline[0], pipeline[0] + len(pipeline) * stride, stride)
    return tuple(pipeline) == tuple(even) and world % (len(pipeline) * stride) == 0


def _stage(number: int, pipeline: tuple[int, int], records: Sequence[RankRecord]) -> _StageRank:
    """A stage of a pipeline of so many stages, every so many ranks."""
    size, stride = pipeline
    record = max((each for each in records if each.rank // stride % size == number), key=step_bytes)
    calls = recorded_calls(record, records, asked_for=True)
    peers, priced = [], []
    for call in calls:
        if call.call.kind in MESSAGES:
            ranks = record.groups[call.call.group].ranks
            peers.append(ranks[call.call.peer] // stride % size if call.call.peer < len(ranks) else number)
            event = replace(call.event, size=size, stride=stride, needed_s=call.event.ready_s)
            priced.append(event if peers[-1] == number else replace(event, stage=number, to=peers[-1]))
        else:
            peers.append(-1)
            priced.append(call.event)
    return _StageRank(record, calls, peers, priced)


def _sent_for(stages: Sequence[_StageRank]) -> Mapping[_Call, _Call]:
    """Which message is sent for each that is asked for; none if they do not match."""
    sent: dict[_Call, list[_Call]] = defaultdict(list)  # by the stages that it goes from and to
    asked: dict[_Call, list[_Call]] = defaultdict(list)
    for number, stage in enumerate(stages):
        for place, (call, peer) in enumerate(zip(stage.calls, stage.peers, strict=True)):
            if call.call.kind is CollectiveKind.SEND:
                sent[number, peer].append((number, place))
            elif call.call.kind is CollectiveKind.RECEIVE:
                asked[peer, number].append((number, place))
    between = sent.keys() | asked.keys()
    if any(len(sent[pair]) != len(asked[pair]) or pair[0] == pair[1] for pair in between):
        return {}
    return {there: here for pair in between for here, there in zip(sent[pair], asked[pair], strict=True)}


def _called_stages(
    stages: Sequence[_StageRank], sent: Mapping[_Call, _Call], prices: Sequence[Sequence[PricedEvent]]
) -> tuple[list[list[float]], list[float]]:
    """When calls are on the clock of each stage, and all compute of each, where the computing thread waits.

    A message is there once both ends called and the links have carried it, by the clocks of their hosts.
    """
    began_s = [_ends_after(stages[0].record, stage.record) for stage in stages]
    at_s, totals_s = [], []
    for number, stage in enumerate(stages):
        waits = list(prices[number])
        for place, call in enumerate(stage.calls):
            if call.call.kind is CollectiveKind.RECEIVE:
                there, other = sent[number, place]
                handed_s = began_s[there] + stages[there].calls[other].event.ready_s - began_s[number]
                late_s = max(0.0, handed_s - call.event.ready_s)
                links = _ARRIVING - place  # nothing follows it there
                waits[place] = replace(waits[place], seconds=late_s + waits[place].seconds, links=links)
        own_s, total_s = computed_until(stage.calls, waits, stage.record.step_s)
        at_s.append(own_s)
        totals_s.append(total_s)
    return at_s, totals_s


def _waiting_stages(
    stages: Sequence[_StageRank], prices: Sequence[Sequence[PricedEvent]]
) -> tuple[list[list[float]], list[float]]:
    """The same where ranks noted when they waited for messages: what is left has collectives to wait for."""
    at_s, totals_s = [], []
    for stage, priced in zip(stages, prices, strict=True):
        calls, waits = [], []
        for place, (call, price) in enumerate(zip(stage.calls, priced, strict=True)):
            event = replace(call.event, ready_s=stage.computed_s(call.event.ready_s))
            is_message = call.call.kind in MESSAGES
            calls.append(replace(call, event=event, needed=NEVER if is_message else call.needed))
            waits.append(replace(price, seconds=0.0, links=_ARRIVING - place) if is_message else price)
        own_s, total_s = computed_until(calls, waits, stage.computed_s(stage.record.step_s))
        at_s.append(own_s)
        totals_s.append(total_s)
    return at_s, totals_s


def _launched_stage(stage: _StageRank, number: int, stages: int) -> list[float]:
    """When a stage's calls are on a clock of compute as long as its step, where the GPU is not waited for.

    See `recorded_events.computed_before`. What is launched in one go lies where the microbatches that are
    sent and asked for are computed: forward before they are sent on, backward before the gradients are sent
    back. What sends nothing is shared out: forward with the loss among what is sent back, backward of the
    first layers among the gradients that are asked for, once these are there.

    Args:
        stage: The stage. It may be several parts of the model, interleaved: the last stage then sends to the
            first, where there are three or more.
        number: Of it.
        stages: How many there are.
    """
    launched_s, step_s = [call.event.ready_s for call in stage.calls], stage.record.step_s
    before, after = number - 1, number + 1
    if stages > 2:  # of two, nothing tells what goes round from what goes back
        before, after = before % stages, after % stages
    messages = {
        place: (call.call.kind, peer)
        for place, (call, peer) in enumerate(zip(stage.calls, stage.peers, strict=True))
        if peer >= 0
    }
    peers = {peer for _, peer in messages.values()}
    if not launched_in_one_go(stage.calls, step_s) or not peers <= {before, after}:
        return launched_s
    on, back = (CollectiveKind.SEND, after), (CollectiveKind.SEND, before)
    answer = (CollectiveKind.RECEIVE, after)
    many = Counter(messages.values())
    passes = max(many[CollectiveKind.RECEIVE, before], many[answer])
    passed = {
        on: FORWARD,
        back: 1 - FORWARD + FORWARD * (passes - many[on]) / max(1, many[back]),
    }
    begun = {answer: (1 - FORWARD) * (passes - many[back]) / max(1, many[answer])}
    done = due = 0.0  # passes before a call, and those that its answer lets begin
    known = {-1: 0.0}
    for place, message in messages.items():
        done += due + passed.get(message, 0.0)
        due = begun.get(message, 0.0)
        known[place] = done
    known[len(stage.calls)] = all_s = done + due
    if not all_s:  # it trains nothing
        return launched_s
    shares = np.interp(range(len(stage.calls)), [*known], [*known.values()]) / all_s
    return [float(share) * step_s for share in shares]


def _sent_s(stage: _StageRank, place: int, at_s: Sequence[float]) -> float | None:
    """When a stage waits until a message is sent, on its own clock; None: it does not."""
    waited_s = stage.calls[place].call.waited_s
    if waited_s is None or stage.record.launched:
        return None
    after = max(place, bisect_right(stage.calls, waited_s[0], key=lambda call: call.event.ready_s) - 1)
    since_s = stage.computed_s(waited_s[0]) - stage.computed_s(stage.calls[after].event.ready_s)
    return max(at_s[place], min([at_s[after] + since_s, *at_s[after + 1 : after + 2]]))


def _ends_after(first: RankRecord, other: RankRecord) -> float:
    """How much later than the first stage another one ends its steps, seconds; mostly less than 0."""
    found = []
    for at_s in first.stepped_s[SETTLING_STEPS:] or first.stepped_s:
        place = bisect_right(other.stepped_s, at_s + _LATER * first.step_s)
        if place:
            found.append(other.stepped_s[place - 1] - at_s)
    return median(found) if found else 0.0


def _computes(
    at_s: Sequence[Sequence[float]], totals_s: Sequence[float], pace: float
) -> list[tuple[float, float]]:
    """Compute of each stage until its last call, and after that, if it takes `pace` times as long."""
    return [
        (own_s[-1] * pace, (total_s - own_s[-1]) * pace)
        for own_s, total_s in zip(at_s, totals_s, strict=True)
    ]


def _timed(
    stages: Sequence[_StageRank], sent: Mapping[_Call, _Call], at_s: Sequence[Sequence[float]]
) -> list[tuple[_Call, Event]]:
    """The events of all stages; a message is one, of the stage that sends it."""
    asked = {here: there for there, here in sent.items()}
    found = []
    for number, stage in enumerate(stages):
        for place, event in timed_events(stage.calls, at_s[number], stage.record.launched):
            kind = stage.calls[place].call.kind
            if kind is CollectiveKind.SEND:
                to, other = asked[number, place]
                event = replace(
                    stage.priced[place],
                    ready_s=event.ready_s,
                    needed_s=at_s[to][other],
                    sent_s=_sent_s(stage, place, at_s[number]),
                )
            elif kind is not CollectiveKind.RECEIVE:
                event = replace(event, stage=number)
            else:
                continue
            found.append(((number, place), event))
    return found
