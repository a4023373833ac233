"""The iteration of a profile with events, from where its ranks are: what each event takes, and the replay."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, isclose
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dally.cluster.topology import Link, Shape, slowest
from dally.jobs.parallelism import Axis, Parallelism
from dally.profiles.allreduce import HEADERS, curve_time_s
from dally.profiles.collectives import CollectiveKind, ring_steps, sent_share
from dally.profiles.event_replay import CrossedLinks, Transfer, replay_s
from dally.profiles.events import CollectiveCurve, CollectiveTime, Event
from dally.profiles.gloo_exchange import MOST_MESSAGES, exchange_time
from dally.profiles.local_batch import Pass
from dally.profiles.parallel.rank_placement import RankPlacement, Tier
from dally.profiles.schema import TIERS, Profile, ProfileMode
from dally.profiles.stage_replay import replay_stages_s
from dally.words import plural

_Ints = NDArray[np.int64]

_SAME = 0.01
"""Two links are the same if their bandwidths differ by no more than this fraction."""

SEND_BUFFER_BYTES = 4 * 2**20 * 2 / 3
"""What Linux holds of a connection's messages for its sender, who waits only for the rest.

Source: tcp_wmem, 4 MB at most by default, of which a third is free when a writer is woken
(sk_stream_min_wspace); while the congestion window is small it is less.
"""

NCCL_BUFFER_BYTES = 4 * 2**20
"""What NCCL holds of a message for its sender, whose next one may then begin.

Source: NCCL_BUFFSIZE in NCCL's documentation, 4 MiB by default.
"""

_REMEMBERED = 4096
_FREE = Link(1e300, 0.0)
"""What leads out of domains that have no links of their own."""

_INSIDE, _OUTSIDE = 0, 1
"""The links inside machines, and those that lead out: what passes over the ones passes beside the others."""


@dataclass(frozen=True, slots=True)
class EventIteration:
    """What a replay of events found.

    Attributes:
        iteration_s: The whole iteration, seconds.
        comm_s: All that leaves machines, one after another, hidden by compute or not, seconds; of a pipeline
            that of the stage that sends longest.
        sent_bytes: Out of one machine, one rack, ... by the cluster's levels, headers included: of each event
            out of the one that sends most.
        notes: What is not as it was recorded, in words; some may be empty.
    """

    iteration_s: float
    comm_s: float
    sent_bytes: tuple[float, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Spread:
    """How the groups of an event lie over domains.

    Attributes:
        machines: On which the widest-spread group lies.
        level: At which each group meets; 0: all lie inside machines.
        leaving: By level, how many times what one rank sends leaves a domain: the one that most leaves.
        lasting: By level, how many times as long as for that the links of a domain are busy; the longest.
        most: How many times what one rank sends the one sends, or gets, that has the greatest load.
    """

    machines: int
    level: int
    leaving: tuple[float, ...]
    lasting: tuple[float, ...]
    most: float


class _Groups(NamedTuple):
    """Between which ranks an event is, as in `Event`.

    `stages` are from where and to where a message goes; `in_turns` is for all to all by gloo, see
    `exchange_time`.
    """

    collective: CollectiveKind
    size: int
    stride: int
    stages: tuple[int, int] | None
    loads: tuple[float, ...]
    in_turns: bool = False


@dataclass(frozen=True, slots=True)
class PricedEvent:
    """What an event takes somewhere.

    Attributes:
        seconds: How long.
        links: Which links carry it, as in `Transfer`.
        sent_bytes: Out of one machine (or NVLink domain), one rack, ...: out of the one that sends most.
        measured: Whether its time was measured between ranks that lie so.
        share: Part of a machine's links that it takes meanwhile.
        held: Part of a message that the sender's kernel holds.
        crossed_links: Those of a message that messages of other stages may cross, too.
    """

    seconds: float
    links: int
    sent_bytes: tuple[float, ...]
    measured: bool
    share: float = 1.0
    held: float = 0.0
    crossed_links: tuple[CrossedLinks, ...] = ()


def replay_events(
    profile: Profile, shape: Shape, ranks: RankPlacement | None, work: Pass, batch: float, stretch: float
) -> EventIteration:
    """The iteration of a gang.

    Args:
        profile: One with events.
        shape: Of the gang, of two or more GPUs; its rings have the links.
        ranks: Where its ranks are; None: one machine after the other, the fullest first.
        work: What it computes.
        batch: Local batch over that of the profile, in proportion to which activations are sent.
        stretch: How many times as long what leaves machines takes because others share the links.
    """
    ranks = ranks or _filled(shape)
    events, resized = _on_gpus(profile, shape.gpus)
    by_gloo = profile.provenance.mode is ProfileMode.GLOO
    priced = price_events(events, profile.curves, shape, ranks, batch, by_gloo)
    transfers = []
    comm_s: dict[int, float] = defaultdict(float)  # by stage
    sent: dict[tuple[int, int], float] = defaultdict(float)  # by level and stage
    for event, price in zip(events, priced, strict=True):
        stage, seconds = event.stage or 0, price.seconds
        if price.links == _OUTSIDE:
            seconds *= stretch
            comm_s[stage] += seconds
            for level, size_bytes in enumerate(price.sent_bytes, ranks.lowest):
                sent[level, stage] += size_bytes * HEADERS
        transfers.append(as_transfer(event, price, seconds, work.pace))
    calculated = "" if all(price.measured for price in priced) else "collectives calculated from the links"
    optimizer_s = work.compute.step_s or 0.0
    if work.compute.stages:
        stages = [(each.bwd_s, each.step_s) for each in work.compute.stages]
        iteration_s = replay_stages_s(transfers, stages, by_gloo)
    else:
        iteration_s = replay_s(transfers, work.compute.total_s - optimizer_s) + optimizer_s
    levels = range(max((level for level, _ in sent), default=-1) + 1)
    return EventIteration(
        iteration_s=iteration_s,
        comm_s=max(comm_s.values(), default=0.0),
        sent_bytes=tuple(
            max((sent[key] for key in sent if key[0] == level), default=0.0) for level in levels
        ),
        notes=(resized, calculated),
    )


def as_transfer(event: Event, price: PricedEvent, seconds: float, pace: float = 1.0) -> Transfer:
    """What is replayed of an event that takes so many seconds; its compute takes `pace` times as long."""
    return Transfer(
        ready_s=event.ready_s * pace,
        needed_s=inf if event.needed_s is None else event.needed_s * pace,
        seconds=seconds,
        links=price.links,
        stage=event.stage or 0,
        to=-1 if event.to is None else event.to,
        sent_s=inf if event.sent_s is None else event.sent_s * pace,
        share=price.share,
        held=price.held,
        crossed_links=price.crossed_links,
    )


def price_events(
    events: Sequence[Event],
    curves: Sequence[CollectiveCurve],
    shape: Shape,
    ranks: RankPlacement,
    batch: float = 1.0,
    by_gloo: bool = False,
) -> list[PricedEvent]:
    """What each event takes: as measured between ranks that lie so, else as the links give it.

    Args:
        events: Of an iteration.
        curves: What was measured.
        shape: Of the gang; its rings have the links.
        ranks: Where its ranks are.
        batch: Local batch over that with which they were recorded.
        by_gloo: Whether gloo does them, and not NCCL.
    """
    links = _Links(shape, ranks)
    known: dict[tuple[float, _Groups], PricedEvent] = {}
    found = []
    for event in events:
        size = event.bytes * (1.0 if event.axis is Axis.DATA else batch)
        key = size, _groups(event, by_gloo)
        if key not in known:
            spread = _spread(ranks, key[1])
            curve = _curve(curves, event, spread, links)
            seconds = curve_time_s(curve.times, size) if curve else links.seconds(event, size, spread)
            where = _OUTSIDE if spread.level else _INSIDE
            # Bytes that leave one machine, one rack, ...: the one that sends most.
            sent = tuple(times * sent_share(event.collective, event.size) * size for times in spread.leaving)
            share = links.share(sent)
            held = min(1.0, (SEND_BUFFER_BYTES if by_gloo else NCCL_BUFFER_BYTES) / size)
            crossed = tuple(links.of_message(ranks, key[1], sent)) if key[1].stages else ()
            known[key] = PricedEvent(seconds, where, sent, curve is not None, share, held, crossed)
        found.append(known[key])
    return found


def measured_curves(
    timed: Iterable[tuple[Event, float]], shape: Shape, ranks: RankPlacement
) -> tuple[CollectiveCurve, ...]:
    """The curves of events whose time was measured in one place, of each the median.

    Args:
        timed: Events and seconds.
        shape: Of the place; its rings have the links.
        ranks: Where the ranks were.
    """
    links = _Links(shape, ranks)
    found: dict[CollectiveCurve, dict[int, list[float]]] = {}
    for event, seconds in timed:
        spread = _spread(ranks, _groups(event))
        crossed = links.crossed(spread)
        rate = crossed.bandwidth_bps if crossed else None
        one = (CollectiveTime(1, 1.0, 1),)
        curve = CollectiveCurve(event.collective, event.size, spread.machines, links.tier(spread), rate, one)
        found.setdefault(curve, {}).setdefault(event.bytes, []).append(seconds)
    return tuple(
        replace(
            curve,
            times=tuple(
                CollectiveTime(size, median(seconds), len(seconds)) for size, seconds in sorted(times.items())
            ),
        )
        for curve, times in found.items()
    )


@lru_cache(_REMEMBERED)
def _on_gpus(profile: Profile, gpus: int) -> tuple[tuple[Event, ...], str]:
    """The events of a gang of so many GPUs, and what is not as it was recorded, in words.

    More or fewer GPUs are more or fewer replicas: the outermost groups of data parallelism grow or shrink,
    and what is farther out than these is farther apart. Where that does not come out even, all communicate
    with all.
    """
    assert profile.plan is not None, "it has events"
    recorded = Parallelism.parse(profile.plan).gpus
    if gpus == recorded:
        return profile.events, ""
    note = f"recorded on {plural(recorded, 'GPU')}, not {gpus}"
    data = {(event.stride, event.size) for event in profile.events if event.axis is Axis.DATA}
    stride, size = max(data, default=(0, 0))
    if not data or size * gpus % recorded:
        return tuple(replace(event, size=gpus, stride=1) for event in profile.events), note
    found = []
    for event in profile.events:
        if event.axis is Axis.DATA and (event.stride, event.size) == (stride, size):
            found.append(replace(event, size=size * gpus // recorded) if size * gpus > recorded else None)
        elif event.stride > stride:
            found.append(replace(event, stride=event.stride * gpus // recorded))
        else:
            found.append(event)
    return tuple(event for event in found if event is not None), note


def _groups(event: Event, by_gloo: bool = False) -> _Groups:
    stages = None if event.stage is None or event.to is None else (event.stage, event.to)
    in_turns = by_gloo and event.collective is CollectiveKind.ALL_TO_ALL
    return _Groups(event.collective, event.size, event.stride, stages, event.loads, in_turns)


def _ranks_of(groups: _Groups, world: int) -> _Ints:
    """(groups, size) the ranks of each group: every `stride`-th one, or sender and receiver of a message."""
    found = np.arange(world).reshape(-1, groups.size, groups.stride).swapaxes(1, 2).reshape(-1, groups.size)
    if groups.stages is None:
        return found
    return found[:, [stage % groups.size for stage in groups.stages]]  # on fewer GPUs there are fewer stages


@lru_cache(_REMEMBERED)
def _spread(ranks: RankPlacement, among: _Groups) -> _Spread:
    """How groups of ranks lie."""
    groups = _ranks_of(among, sum(ranks.machines))
    loads = np.resize(among.loads, sum(ranks.machines))[groups] if among.loads else None
    machines, leaving, lasting = 1, [], []
    for level, tier in enumerate(ranks.links):
        domains = np.asarray(tier.domains if level else range(len(ranks.machines)))
        domain_of = np.repeat(domains, ranks.machines)[groups]
        count = int(domains.max()) + 1
        places = domain_of + count * np.arange(len(groups))[:, None]
        there = np.bincount(places.ravel(), minlength=count * len(groups))  # ranks of a group in a domain
        spans = int((there.reshape(-1, count) > 0).sum(axis=1).max())
        if spans == 1:
            break
        machines = machines if level else spans
        away = _away(among.collective, domain_of, there[places])
        sides = [np.bincount(domain_of.ravel(), away)]
        if loads is not None:
            sides = [np.bincount(domain_of.ravel(), each.ravel()) for each in _uneven(loads, places, count)]
        leaving.append(float(max(side.max() for side in sides)))
        lasting.append(leaving[-1])
        if among.in_turns and groups.size * (among.size - 1) <= MOST_MESSAGES:
            even = np.ones(groups.size) if loads is None else np.resize(among.loads, groups.size)
            homes = np.repeat(domains, ranks.machines)
            lasting[-1] = exchange_time(groups.tolist(), homes.tolist(), even.tolist())
    most = 1.0 if loads is None else _greatest(loads)
    return _Spread(machines, len(leaving), tuple(leaving), tuple(lasting), most)


def _away(collective: CollectiveKind, domain_of: _Ints, there: _Ints) -> NDArray[np.float64]:
    """Which part of what a rank sends leaves its domain.

    Args:
        collective: To all others, to the next one, or around a ring.
        domain_of: (groups, size) the domain of each rank.
        there: (groups, size) how many of its group are in it.
    """
    size = domain_of.shape[1]
    if collective is CollectiveKind.ALL_TO_ALL:
        found: NDArray[np.float64] = (size - there) / (size - 1)
        return found.ravel()
    away = np.asarray(domain_of != np.roll(domain_of, -1, axis=1), dtype=np.float64)
    if collective is CollectiveKind.SEND:
        away[:, -1] = 0.0
    return away.ravel()


def _uneven(
    loads: NDArray[np.float64], places: _Ints, count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What goes from each rank out of its domain, and to each from without, over what one of even load sends.

    Each rank of a group of n sends each other one its load's n-th part of all that it has.

    Args:
        loads: (groups, n) of each rank.
        places: (groups, n) its group and domain, as one number.
        count: Domains.
    """
    size = loads.shape[1]
    there = np.bincount(places.ravel(), loads.ravel(), minlength=count * len(loads))[places]
    ranks = np.bincount(places.ravel(), minlength=count * len(loads))[places]
    return (size - there) / (size - 1), loads * (size - ranks) / (size - 1)


def _greatest(loads: NDArray[np.float64]) -> float:
    size = loads.shape[1]
    return float(np.maximum(loads, (size - loads) / (size - 1)).max())


class _Links:
    """The links between the ranks of a gang."""

    def __init__(self, shape: Shape, ranks: RankPlacement) -> None:
        inner = [ring.link for ring in shape.rings if ring.hops == 1]
        outer = [ring.link for ring in shape.rings if ring.hops > 1]
        # Levels within an NVLink domain of several machines count as inside; see `RankPlacement.lowest`.
        self._inside = slowest([*inner, *outer[: ranks.lowest]] or [_FREE])
        self._outside = [
            outer[min(ranks.lowest + level, len(outer) - 1)] if tier.bytes_per_s < inf else _FREE
            for level, tier in enumerate(ranks.links)
        ]
        self._lowest = ranks.lowest

    def crossed(self, spread: _Spread) -> Link | None:
        """The least bandwidth and greatest latency of what leads out of machines; None if nothing does."""
        return slowest(self._outside[: spread.level]) if spread.level else None

    def tier(self, spread: _Spread) -> str:
        """The tier in which all groups lie."""
        level = spread.level and self._lowest + spread.level
        return TIERS[min(level, len(TIERS) - 1)]

    def share(self, sent: Sequence[float]) -> float:
        """Which part of a machine's links is in use while so many bytes leave machines, racks and so on."""
        sending_s = [each / link.bandwidth_bps for link, each in zip(self._outside, sent, strict=False)]
        return sending_s[0] / max(sending_s) if sending_s and sending_s[0] else 1.0

    def of_message(
        self, ranks: RankPlacement, message: _Groups, sent: Sequence[float]
    ) -> Iterator[CrossedLinks]:
        """The links out of machines, racks and so on that a message of the first pipeline crosses."""
        homes = np.repeat(np.arange(len(ranks.machines)), ranks.machines)
        sender, receiver = homes[_ranks_of(message, sum(ranks.machines))[0]].tolist()
        sending_s = [each / link.bandwidth_bps for link, each in zip(self._outside, sent, strict=False)]
        for level, tier in enumerate(ranks.links[: len(sending_s)]):
            domains = tier.domains if level else range(len(ranks.machines))
            if domains[sender] != domains[receiver]:
                use = sending_s[level] / sending_s[0]
                yield CrossedLinks(level, domains[sender], domains[receiver], use)

    def seconds(self, event: Event, size: float, spread: _Spread) -> float:
        """How long the links take for an event: the slowest decides, latencies add up."""
        each = sent_share(event.collective, event.size) * size
        sending_s = [spread.most * each * 8 / self._inside.bandwidth_bps]
        sending_s += [
            times * each * HEADERS * 8 / link.bandwidth_bps
            for link, times in zip(self._outside, spread.lasting, strict=False)
        ]
        crossed = self.crossed(spread)
        latency_s = 2 * crossed.latency_s if crossed else self._inside.latency_s
        return max(sending_s) + ring_steps(event.collective, event.size) * latency_s


def _curve(
    curves: Sequence[CollectiveCurve], event: Event, spread: _Spread, links: _Links
) -> CollectiveCurve | None:
    """What was measured of an event's collective between ranks that lie as its groups do."""
    link = links.crossed(spread)
    for curve in curves:
        alike = curve.collective is event.collective and curve.size == event.size
        if alike and curve.machines == spread.machines and curve.tier == links.tier(spread):
            if link is None or curve.bandwidth_bps is None:
                return curve
            if isclose(link.bandwidth_bps, curve.bandwidth_bps, rel_tol=_SAME):
                return curve
    return None


def _filled(shape: Shape) -> RankPlacement:
    """Ranks on machines one after the other, and these in racks one after the other."""
    machines = tuple(range(len(shape.machines)))
    racks = tuple(rack for rack, count in enumerate(shape.racks) for _ in range(count))
    links = tuple(Tier(racks if level else machines, 0.0) for level in range(shape.level))
    return RankPlacement(shape.machines, shape.gpu_types, inf, links, 0)
