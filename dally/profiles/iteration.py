"""Predicts how long one training iteration of a gang takes, from its profile and its shape."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from dally.cluster.topology import Shape
from dally.profiles.allreduce import curve_time_s, rings_time_s
from dally.profiles.event_iteration import replay_events
from dally.profiles.event_replay import Transfer, replay_s
from dally.profiles.gpu_types import same_type
from dally.profiles.local_batch import Pass, compute_pass
from dally.profiles.measured_points import (
    Blend,
    blend_points,
    carried_over_s,
    difference_note,
    same_link,
    same_spread,
    tier_of,
)
from dally.profiles.parallel.rank_placement import RankPlacement
from dally.profiles.schema import TIERS, Bucket, Compute, Point, Profile

Method = Literal["measured", "replay", "window", "compute", "plan"]
AllReduce = Callable[[float], float]
"""Seconds that an all-reduce of so many bytes takes."""

_OVERLAP = 3
"""Exponent that joins compute and communication where their overlap was not measured: 1 adds them up, more
hides more. Chosen among 1, 1.5, 2, 3 and 4 on two of Pollux's tables (docs/predictor.md)."""

_NO_COMMUNICATION = "nothing known of its communication, none counted"
_MOST_CONTENTION = 0.1
"""What GPUs of one machine cost each other is taken as contention up to this share of compute."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The time of one iteration.

    Attributes:
        iteration_s: The whole iteration, seconds.
        exposed_s: Part of it in which communication keeps the GPUs waiting, seconds.
        comm_s: Part of it in which it communicates, hidden by compute or not, seconds; 0 where nobody knows.
            By a plan, or by events, only what leaves machines counts.
        reduced_bytes: Data all-reduced in it, bytes; None if unknown.
        method: A measurement of just this shape, the replay of buckets or events, the window formula, compute
            alone, or the job's parallel plan.
        extrapolated: Whether it lies outside of what was measured.
        note: What was outside, in words; empty if nothing.
        sent_bytes: By a plan, or by events, the bytes out of one machine, one rack, ... by the cluster's
            levels: out of the one that sends most, and what links are kept from carrying meanwhile; None: a
            ring sends.
    """

    iteration_s: float
    exposed_s: float
    comm_s: float
    reduced_bytes: int | None
    method: Method
    extrapolated: bool
    note: str
    sent_bytes: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Draft:
    """An iteration time with notes, before it becomes a prediction."""

    iteration_s: float
    comm_s: float
    method: Method
    notes: tuple[str, ...] = ()


def predict(
    profile: Profile,
    shape: Shape,
    stretch: float = 1.0,
    batch: float = 1.0,
    ranks: RankPlacement | None = None,
) -> Prediction:
    """Predict the iteration time of a gang.

    In this order: a measurement of just this shape under this link; the replay of events, where the profile
    has them; the all-reduce curves of the tier crossed; full iterations measured in that tier; a ring over
    the shape's links; measurements of another tier; compute alone. What lies outside of the measurements is
    said in the note. Never fails for want of data. With another batch, compute changes and the communication
    of gradients stays; how much of it compute hides is calculated anew.

    Args:
        profile: The model on its GPU type.
        shape: Where the gang runs; its rings carry the present bandwidths of the links.
        stretch: How many times as long its communication takes because others share its links; 1 alone.
        batch: Local batch over that of the profile.
        ranks: Where the ranks are, for a profile with events; None: machine by machine, the fullest first.
    """
    work = compute_pass(profile, batch)
    sent_bytes = None
    if shape.gpus == 1:
        draft = _Draft(work.compute.total_s, 0.0, "compute")
    elif profile.events:
        draft, sent_bytes = _from_events(profile, shape, stretch, work, batch, ranks)
    else:
        draft = (
            _from_exact(profile, shape, stretch, work)
            or _from_curves(profile, shape, stretch, work)
            or _from_iterations(profile, shape, tier_of(shape), stretch, work)
            or _from_rings(profile, shape, stretch, work)
            or _from_other_tiers(profile, shape, stretch, work)
            or _Draft(work.compute.total_s, 0.0, "compute", (_NO_COMMUNICATION,))
        )
    notes = [note for note in draft.notes if note]
    gpu_type, types = profile.env.gpu_type, [name for name in shape.gpu_types if name]
    if gpu_type and types and not any(same_type(gpu_type, name) for name in types):
        notes.insert(0, f"measured on GPU type {gpu_type}, not {', '.join(types)}")
    iteration_s = work.before_s + draft.iteration_s
    return Prediction(
        iteration_s=iteration_s,
        exposed_s=max(0.0, iteration_s - work.total_s),
        comm_s=min(draft.comm_s, iteration_s),
        reduced_bytes=sum(_reduced(profile)) or None,
        method=draft.method,
        extrapolated=bool(notes),
        note="; ".join(notes),
        sent_bytes=sent_bytes,
    )


def buckets_s(compute: Compute, buckets: Iterable[Bucket], allreduce_s: AllReduce) -> float:
    """Iteration time when gradient buckets are reduced as they become ready, seconds.

    The optimizer steps when backward and the last bucket are done. Communication stretches backward by the
    contention factor.

    Args:
        compute: Times without communication.
        buckets: In the order of their ready times.
        allreduce_s: Time of one all-reduce by its bytes.
    """
    factor, fwd_s = compute.contention_factor or 1.0, compute.fwd_s or 0.0
    transfers = (
        Transfer(
            fwd_s + (each.ready_s - fwd_s) * factor if each.ready_s > fwd_s else each.ready_s,
            math.inf,
            allreduce_s(each.bytes),
        )
        for each in buckets
    )
    return replay_s(transfers, fwd_s + compute.bwd_s * factor) + (compute.step_s or 0.0)


def window_s(compute: Compute, comm_s: float) -> float:
    """Iteration time when a constant window of backward hides communication, seconds.

    Exposed is what the window, stretched by the contention factor as backward is, does not hide.
    """
    factor = compute.contention_factor or 1.0
    exposed_s = max(0.0, comm_s - (compute.window_s or 0.0) * factor)
    return compute.total_s + compute.bwd_s * (factor - 1.0) + exposed_s


def _from_exact(profile: Profile, shape: Shape, stretch: float, work: Pass) -> _Draft | None:
    """The measured iteration of just this shape, in the rank order gangs are started in.

    What stretched communication and another batch change is the change of the prediction without it.
    """
    measured_s = _measured_s(profile, shape)
    if measured_s is None:
        return None
    asked = _modelled(profile, shape, stretch, work)
    if stretch == work.pace == 1.0:
        return _Draft(measured_s, asked.comm_s, "measured")
    alone = _modelled(profile, shape, 1.0, compute_pass(profile))
    iteration_s = measured_s + (asked.iteration_s - alone.iteration_s)
    return _Draft(max(iteration_s, work.compute.total_s), asked.comm_s, "measured")


def _measured_s(profile: Profile, shape: Shape) -> float | None:
    """The measured iteration of just this shape, in the rank order gangs are started in; None if none was."""
    for point in _points(profile, tier_of(shape)):
        blocked = point.shape.rank_order in (None, "blocked")
        if point.iteration and blocked and same_spread(point, shape) and same_link(point.link, shape):
            return point.iteration.median_s
    return None


def _from_events(
    profile: Profile, shape: Shape, stretch: float, work: Pass, batch: float, ranks: RankPlacement | None
) -> tuple[_Draft, tuple[float, ...]]:
    """The replay of events, as far as it differs from that of a measured place; and what is sent."""
    asked = replay_events(profile, shape, ranks, work, batch, stretch)
    measured_s = _measured_s(profile, shape)
    if measured_s is None:
        return _Draft(asked.iteration_s, asked.comm_s, "replay", asked.notes), asked.sent_bytes
    alone = replay_events(profile, shape, ranks, compute_pass(profile), 1.0, 1.0)
    iteration_s = max(measured_s + (asked.iteration_s - alone.iteration_s), work.compute.total_s)
    return _Draft(iteration_s, asked.comm_s, "measured"), asked.sent_bytes


def _modelled(profile: Profile, shape: Shape, stretch: float, work: Pass) -> _Draft:
    """The prediction of a shape of whose tier an iteration was measured, as if it were another's."""
    draft = _from_curves(profile, shape, stretch, work)
    draft = draft or _from_iterations(profile, shape, tier_of(shape), stretch, work)
    assert draft is not None, "an iteration of this tier was measured"
    return draft


def _from_curves(profile: Profile, shape: Shape, stretch: float, work: Pass) -> _Draft | None:
    points = [point for point in _points(profile, tier_of(shape)) if point.allreduce_curve]
    if not points:
        return None
    blend = blend_points(points, shape)

    def allreduce_s(size_bytes: float) -> float:
        return stretch * _blended_s(
            blend, shape, lambda point: curve_time_s(point.allreduce_curve, size_bytes)
        )

    low = max(point.allreduce_curve[0].bytes for _, point in blend)
    high = min(point.allreduce_curve[-1].bytes for _, point in blend)
    outside = [size for size in _reduced(profile) if not low <= size <= high]
    range_note = (
        f"all-reduce of {max(outside)} bytes outside of the measured {low} to {high}" if outside else ""
    )
    return _with_allreduce(profile, allreduce_s, (difference_note(blend, shape), range_note), work)


def _from_rings(profile: Profile, shape: Shape, stretch: float, work: Pass) -> _Draft | None:
    def allreduce_s(size_bytes: float) -> float:
        return stretch * rings_time_s(shape.rings, size_bytes)

    note = f"no all-reduce measured for tier {tier_of(shape)}, calculated from the links"
    return _with_allreduce(profile, allreduce_s, (note,), work)


def _with_allreduce(
    profile: Profile, allreduce_s: AllReduce, notes: tuple[str, ...], work: Pass
) -> _Draft | None:
    """Replay the buckets if they are known, else the window formula, else nothing."""
    model = profile.model
    comm_s = sum(map(allreduce_s, _reduced(profile)))
    if model.buckets:
        return _Draft(buckets_s(work.compute, work.buckets, allreduce_s), comm_s, "replay", notes)
    if model.grad_bytes is None:
        return None
    return _Draft(window_s(work.compute, comm_s), comm_s, "window", notes)


def _reduced(profile: Profile) -> list[int]:
    """The bytes of each all-reduce of an iteration; empty if unknown."""
    model = profile.model
    return [bucket.bytes for bucket in model.buckets] or ([model.grad_bytes] if model.grad_bytes else [])


def _from_iterations(profile: Profile, shape: Shape, tier: str, stretch: float, work: Pass) -> _Draft | None:
    """What full iterations imply of communication, carried over to a shape."""
    points = [point for point in _points(profile, tier) if point.iteration]
    if not points:
        return None
    blend = blend_points(points, shape)
    compute = profile.compute
    if compute.window_s is None:
        return _by_overlap(profile, shape, tier, blend, stretch, work)
    # The window formula: communication is the exposed time and the window that hides the rest.
    hidden_s, reductions = compute.window_s, max(1, len(profile.model.buckets))
    comm_s = stretch * _blended_s(
        blend, shape, lambda point: hidden_s + _exposed_s(point, compute), reductions
    )
    exposed_s = max(0.0, comm_s - (work.compute.window_s or 0.0))
    return _Draft(work.compute.total_s + exposed_s, comm_s, "window", (difference_note(blend, shape),))


def _by_overlap(
    profile: Profile, shape: Shape, tier: str, blend: Blend, stretch: float, work: Pass
) -> _Draft:
    """Compute and communication joined so that the longer hides most of the shorter (`_joined_s`).

    Where only iterations are known, nobody knows how much compute hides. What is communicated is what, joined
    with compute, makes the measured iteration; on several machines, what is joined with an iteration on as
    many GPUs of one machine as the fullest has.
    """

    def computing_s(gpus: int, each: Pass) -> float:
        if tier == TIERS[0]:
            return each.compute.total_s * (1 + _contention(profile, gpus))
        inside = None  # as on one GPU if nobody knows more
        if gpus > 1:
            inside = _from_iterations(profile, Shape(0, (gpus,), (), (), ()), TIERS[0], 1.0, each)
        return inside.iteration_s if inside else each.compute.total_s

    whole = compute_pass(profile)

    def communication_s(point: Point) -> float:
        assert point.iteration is not None
        return _difference_s(point.iteration.median_s, computing_s(point.shape.gpus_per_node, whole))

    comm_s = stretch * _blended_s(blend, shape, communication_s)
    iteration_s = _joined_s(computing_s(max(shape.machines), work), comm_s)
    return _Draft(iteration_s, comm_s, "window", (difference_note(blend, shape),))


def _contention(profile: Profile, gpus: int) -> float:
    """By which share of compute so many GPUs of one machine slow each other; 0 if unknown.

    What an iteration takes longer there is taken for that first, up to `_MOST_CONTENTION`: they share memory,
    PCIe and CPUs, and on the tables such small differences go with the batch, as communication does not.
    """
    points = [point for point in _points(profile, TIERS[0]) if point.iteration]
    if gpus == 1 or not points:
        return 0.0
    machine = Shape(0, (gpus,), (), (), ())
    blend = blend_points(points, machine)
    exposed_s = _blended_s(blend, machine, lambda point: _exposed_s(point, profile.compute))
    return min(_MOST_CONTENTION, exposed_s / profile.compute.total_s)


def _joined_s(compute_s: float, comm_s: float) -> float:
    """An iteration of compute and communication whose overlap is unknown, seconds.

    T^k = compute^k + communication^k as in Pollux (Qiao et al., OSDI 2021, section 3.2), here with the same k
    for all models.
    """
    return math.pow(compute_s**_OVERLAP + comm_s**_OVERLAP, 1 / _OVERLAP)


def _difference_s(iteration_s: float, compute_s: float) -> float:
    """The communication that `_joined_s` joins to such an iteration; 0 if compute alone takes that long."""
    return math.pow(max(0.0, iteration_s**_OVERLAP - compute_s**_OVERLAP), 1 / _OVERLAP)


def _from_other_tiers(profile: Profile, shape: Shape, stretch: float, work: Pass) -> _Draft | None:
    """Measurements of the tier below, else of one above."""
    own = TIERS.index(tier_of(shape))
    for tier in (*reversed(TIERS[:own]), *TIERS[own + 1 :]):
        draft = _from_iterations(profile, shape, tier, stretch, work)
        if draft:
            note = f"tier {TIERS[own]} not measured, taken from tier {tier}"
            return replace(draft, notes=(note, *draft.notes))
    return None


def _blended_s(
    blend: Blend, shape: Shape, measured_s: Callable[[Point], float], reductions: int = 1
) -> float:
    """Communication of a shape, from that of the points that speak for it, seconds."""
    parts = (weight * carried_over_s(point, shape, measured_s(point), reductions) for weight, point in blend)
    return max(0.0, sum(parts))


def _points(profile: Profile, tier: str) -> list[Point]:
    """What was measured of communication in a tier, without foreign flows beside it."""
    points = profile.tiers.get(tier, ())
    return [point for point in points if point.shape.gpus > 1 and not point.background_flows]


def _exposed_s(point: Point, compute: Compute) -> float:
    assert point.iteration is not None
    return max(0.0, point.iteration.median_s - compute.total_s)
