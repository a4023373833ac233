"""Predicts how long one training iteration of a gang takes, from its profile and its shape."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dally.profiles.allreduce import curve_time_s, rings_time_s
from dally.profiles.measured_points import (
    Blend,
    blend_points,
    carried_over_s,
    difference_note,
    same_link,
    same_spread,
    tier_of,
)
from dally.profiles.schema import TIERS, Bucket, Compute, Point, Profile
from dally.topology import Shape

Method = Literal["measured", "replay", "window", "compute"]
AllReduce = Callable[[float], float]
"""Seconds that an all-reduce of so many bytes takes."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The time of one iteration.

    Attributes:
        iteration_s: The whole iteration, seconds.
        exposed_s: Part of it in which communication keeps the GPUs waiting, seconds.
        comm_s: Part of it in which it communicates, hidden by compute or not, seconds; 0 where nobody knows.
        reduced_bytes: Data all-reduced in it, bytes; None if unknown.
        method: A measurement of just this shape, the replay of the buckets, the window formula, or compute
            alone.
        extrapolated: Whether it lies outside of what was measured.
        note: What was outside, in words; empty if nothing.
    """

    iteration_s: float
    exposed_s: float
    comm_s: float
    reduced_bytes: int | None
    method: Method
    extrapolated: bool
    note: str


@dataclass(frozen=True, slots=True)
class _Draft:
    """An iteration time with notes, before it becomes a prediction."""

    iteration_s: float
    comm_s: float
    method: Method
    notes: tuple[str, ...] = ()


def predict(profile: Profile, shape: Shape, stretch: float = 1.0) -> Prediction:
    """Predict the iteration time of a gang.

    In this order: a measurement of just this shape under this link; the all-reduce curves of the tier
    crossed; full iterations measured in that tier; a ring over the shape's links; measurements of another
    tier; compute alone. What lies outside of the measurements is said in the note. Never fails for want of
    data.

    Args:
        profile: The model on its GPU type.
        shape: Where the gang runs; its rings carry the present bandwidths of the links.
        stretch: How many times as long its communication takes because others share its links; 1 alone.
    """
    if shape.gpus == 1:
        draft = _compute_alone(profile)
    else:
        draft = (
            _from_exact(profile, shape, stretch)
            or _from_curves(profile, shape, stretch)
            or _from_iterations(profile, shape, tier_of(shape), stretch)
            or _from_rings(profile, shape, stretch)
            or _from_other_tiers(profile, shape, stretch)
            or _compute_alone(profile, "nothing known of its communication, none counted")
        )
    notes = [note for note in (_gpu_type_note(profile, shape), *draft.notes) if note]
    exposed_s = max(0.0, draft.iteration_s - profile.compute.total_s)
    reduced = sum(_reduced(profile)) or None
    comm_s = min(draft.comm_s, draft.iteration_s)
    return Prediction(
        draft.iteration_s, exposed_s, comm_s, reduced, draft.method, bool(notes), "; ".join(notes)
    )


def replay_s(compute: Compute, buckets: Sequence[Bucket], allreduce_s: AllReduce) -> float:
    """Iteration time when each bucket is reduced after the one before it, as it becomes ready, seconds.

    A bucket starts at max(ready, end of the previous one); the optimizer steps when backward and the last
    bucket are done. Communication stretches backward by the contention factor.

    Args:
        compute: Times without communication.
        buckets: In the order of their ready times.
        allreduce_s: Time of one all-reduce by its bytes.
    """
    factor = compute.contention_factor or 1.0
    fwd_s = compute.fwd_s or 0.0
    done_s = 0.0
    for bucket in buckets:
        ready_s = fwd_s + (bucket.ready_s - fwd_s) * factor if bucket.ready_s > fwd_s else bucket.ready_s
        done_s = max(ready_s, done_s) + allreduce_s(bucket.bytes)
    return max(fwd_s + compute.bwd_s * factor, done_s) + (compute.step_s or 0.0)


def window_s(compute: Compute, comm_s: float) -> float:
    """Iteration time when a constant window of backward hides communication, seconds.

    Exposed is what the window, stretched by the contention factor as backward is, does not hide.
    """
    factor = compute.contention_factor or 1.0
    exposed_s = max(0.0, comm_s - (compute.window_s or 0.0) * factor)
    return compute.total_s + compute.bwd_s * (factor - 1.0) + exposed_s


def _compute_alone(profile: Profile, *notes: str) -> _Draft:
    return _Draft(profile.compute.total_s, 0.0, "compute", notes)


def _from_exact(profile: Profile, shape: Shape, stretch: float) -> _Draft | None:
    """The measured iteration of just this shape, in the rank order gangs are started in.

    What it gains by stretched communication is that of the prediction without it.
    """
    for point in _points(profile, tier_of(shape)):
        blocked = point.shape.rank_order in (None, "blocked")
        if point.iteration and blocked and same_spread(point, shape) and same_link(point.link, shape):
            alone, beside = (_modelled(profile, shape, factor) for factor in (1.0, stretch))
            gained_s = max(0.0, beside.iteration_s - alone.iteration_s)
            return _Draft(point.iteration.median_s + gained_s, beside.comm_s, "measured")
    return None


def _modelled(profile: Profile, shape: Shape, stretch: float) -> _Draft:
    """The prediction of a shape of whose tier an iteration was measured, as if it were another's."""
    draft = _from_curves(profile, shape, stretch)
    draft = draft or _from_iterations(profile, shape, tier_of(shape), stretch)
    assert draft is not None, "an iteration of this tier was measured"
    return draft


def _from_curves(profile: Profile, shape: Shape, stretch: float) -> _Draft | None:
    points = [point for point in _points(profile, tier_of(shape)) if point.allreduce_curve]
    if not points:
        return None
    blend = blend_points(points, shape)

    def allreduce_s(size_bytes: float) -> float:
        return stretch * sum(
            weight * carried_over_s(point, shape, curve_time_s(point.allreduce_curve, size_bytes), 1)
            for weight, point in blend.parts
        )

    notes = (difference_note(blend, shape), _range_note(profile, blend))
    return _with_allreduce(profile, allreduce_s, notes)


def _from_rings(profile: Profile, shape: Shape, stretch: float) -> _Draft | None:
    def allreduce_s(size_bytes: float) -> float:
        return stretch * rings_time_s(shape.rings, size_bytes)

    note = f"no all-reduce measured for tier {tier_of(shape)}, calculated from the links"
    return _with_allreduce(profile, allreduce_s, (note,))


def _with_allreduce(profile: Profile, allreduce_s: AllReduce, notes: tuple[str, ...]) -> _Draft | None:
    """Replay the buckets if they are known, else the window formula, else nothing."""
    model = profile.model
    comm_s = sum(map(allreduce_s, _reduced(profile)))
    if model.buckets:
        return _Draft(replay_s(profile.compute, model.buckets, allreduce_s), comm_s, "replay", notes)
    if model.grad_bytes is None:
        return None
    return _Draft(window_s(profile.compute, comm_s), comm_s, "window", notes)


def _reduced(profile: Profile) -> list[int]:
    """The bytes of each all-reduce of an iteration; empty if unknown."""
    model = profile.model
    return [bucket.bytes for bucket in model.buckets] or ([model.grad_bytes] if model.grad_bytes else [])


def _from_iterations(profile: Profile, shape: Shape, tier: str, stretch: float) -> _Draft | None:
    """The window formula on the communication that full iterations imply: exposed time plus window."""
    points = [point for point in _points(profile, tier) if point.iteration]
    if not points:
        return None
    blend = blend_points(points, shape)
    compute = profile.compute
    hidden_s = compute.window_s or 0.0
    reductions = max(1, len(profile.model.buckets))
    comm_s = stretch * sum(
        weight * carried_over_s(point, shape, hidden_s + _exposed_s(point, compute), reductions)
        for weight, point in blend.parts
    )
    iteration_s = compute.total_s + max(0.0, comm_s - hidden_s)
    return _Draft(iteration_s, comm_s, "window", (difference_note(blend, shape),))


def _from_other_tiers(profile: Profile, shape: Shape, stretch: float) -> _Draft | None:
    """Measurements of the tier below, else of one above."""
    own = TIERS.index(tier_of(shape))
    for tier in (*reversed(TIERS[:own]), *TIERS[own + 1 :]):
        draft = _from_iterations(profile, shape, tier, stretch)
        if draft:
            note = f"tier {TIERS[own]} not measured, taken from tier {tier}"
            return replace(draft, notes=(note, *draft.notes))
    return None


def _points(profile: Profile, tier: str) -> list[Point]:
    """What was measured of communication in a tier, without foreign flows beside it."""
    points = profile.tiers.get(tier, ())
    return [point for point in points if point.shape.gpus > 1 and not point.background_flows]


def _exposed_s(point: Point, compute: Compute) -> float:
    assert point.iteration is not None
    return max(0.0, point.iteration.median_s - compute.total_s)


def _range_note(profile: Profile, blend: Blend) -> str:
    """Which all-reduces are smaller or larger than those measured, in words."""
    sizes = _reduced(profile)
    low = max(point.allreduce_curve[0].bytes for point in blend.points)
    high = min(point.allreduce_curve[-1].bytes for point in blend.points)
    outside = [size for size in sizes if not low <= size <= high]
    if not outside:
        return ""
    return f"all-reduce of {max(outside)} bytes outside of the measured {low} to {high}"


def _gpu_type_note(profile: Profile, shape: Shape) -> str:
    gpu_type = profile.env.gpu_type
    known = [name for name in shape.gpu_types if name]
    if not gpu_type or not known or gpu_type in known:
        return ""
    return f"measured on GPU type {gpu_type}, not {', '.join(known)}"
