"""How far predictions are from the measured iterations of a profile that they do not know.

Two questions, two checks of each iteration: is it right when the all-reduces of its place are known
(`check_points`), and is it right when nothing of its place is (`check_held_out`)?
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from dally.cluster.topology import Link, Ring, Shape
from dally.profiles.iteration import Prediction, predict
from dally.profiles.schema import TIERS, Point, Profile

_Tiers = dict[str, tuple[Point, ...]]
_Without = Callable[[Profile, str, Point], _Tiers]
"""What is left of a profile's tiers when a point of one of them is to be predicted."""


@dataclass(frozen=True, slots=True)
class PredictionCheck:
    """One measured iteration and its prediction.

    Attributes:
        tier: The tier of the point.
        point: What was measured.
        prediction: From the profile without this iteration.
        held_out: Whether the prediction rests on nothing that was measured at this place, curves included.
    """

    tier: str
    point: Point
    prediction: Prediction
    held_out: bool

    @property
    def error(self) -> float:
        """Predicted over measured iteration time, minus 1."""
        assert self.point.iteration is not None
        return self.prediction.iteration_s / self.point.iteration.median_s - 1


def check_points(profile: Profile) -> tuple[PredictionCheck, ...]:
    """Predict each iteration measured on two or more GPUs from the profile without that iteration.

    All-reduce curves stay, the point's own too: nothing here is held out. Of other points only those in the
    same rank order speak for it. Left out are points under background flows, and those of whose tier the
    profile then knows nothing.
    """
    return _check(profile, _without_iteration, held_out=False)


def check_held_out(profile: Profile) -> tuple[PredictionCheck, ...]:
    """Predict each iteration measured on two or more GPUs from the profile without anything of its place.

    A place is a spread of GPUs in a tier: its curves and iterations go, under whatever link, rank order or
    flows they were measured. The place that gave the profile its contention factor is left out
    (`calibration_point`), besides what `check_points` leaves out.
    """
    source = calibration_point(profile) if profile.compute.contention_factor is not None else None
    checks = _check(profile, _without_place, held_out=True)
    return tuple(check for check in checks if source is None or not _same_place(check.point, source))


def measured_points(profile: Profile) -> tuple[tuple[str, Point], ...]:
    """(tier, point) of all full iterations measured on two or more GPUs, the fastest tier first."""
    return tuple(
        (tier, point)
        for tier in TIERS
        for point in profile.tiers.get(tier, ())
        if point.iteration and point.shape.gpus > 1
    )


def calibration_point(profile: Profile) -> Point | None:
    """The first point measured as gangs run, the one that says how much communication stretches backward."""
    return next((point for _, point in measured_points(profile) if is_ordinary(point)), None)


def is_ordinary(point: Point) -> bool:
    """Whether it was measured as gangs run: in blocked rank order, without background flows."""
    return _rank_order(point) == "blocked" and not point.background_flows


def shape_of(tier: str, point: Point, gpu_type: str | None) -> Shape:
    """The shape of a measured gang; its only ring is that of the slowest link, if that is known."""
    nodes, per_node = point.shape.nodes, point.shape.gpus_per_node
    racks = point.shape.racks or (2 if tier == "network" else 1)
    rings: tuple[Ring, ...] = ()
    if point.link:
        link = Link(point.link.bandwidth_bps, point.link.latency_s or 0.0)
        rings = (Ring(nodes, link, 2) if nodes > 1 else Ring(per_node, link, 1),)
    return Shape(
        level=TIERS.index(tier),
        machines=(per_node,) * nodes,
        racks=tuple(nodes // racks + (rack < nodes % racks) for rack in range(racks)) if nodes > 1 else (),
        rings=rings,
        gpu_types=(gpu_type,) if gpu_type else (),
    )


def _check(profile: Profile, without: _Without, held_out: bool) -> tuple[PredictionCheck, ...]:
    """Predict each iteration on several GPUs, without flows, from what is left of the profile."""
    predicted = (
        (tier, point, _predict(profile, without(profile, tier, point), tier, point))
        for tier, point in measured_points(profile)
        if not point.background_flows
    )
    return tuple(
        PredictionCheck(tier, point, prediction, held_out)
        for tier, point, prediction in predicted
        if prediction
    )


def _without_iteration(profile: Profile, tier: str, point: Point) -> _Tiers:
    """All points in the rank order of this one, without its iteration."""
    return {
        name: tuple(
            replace(other, iteration=None) if other is point else other
            for other in points
            if _rank_order(other) == _rank_order(point)
        )
        for name, points in profile.tiers.items()
    }


def _without_place(profile: Profile, tier: str, point: Point) -> _Tiers:
    """All points of other places."""
    return {
        name: tuple(other for other in points if name != tier or not _same_place(other, point))
        for name, points in profile.tiers.items()
    }


def _predict(profile: Profile, left: _Tiers, tier: str, point: Point) -> Prediction | None:
    """Predict a point's iteration from the points that are left; None if they say nothing of its tier."""
    known = any(other.allreduce_curve or other.iteration for other in left[tier] if other.shape.gpus > 1)
    if not known and point.link is None:
        return None
    return predict(replace(profile, tiers=left), shape_of(tier, point, profile.env.gpu_type))


def _same_place(one: Point, other: Point) -> bool:
    """Whether two points of a tier are spread alike."""
    return replace(one.shape, rank_order=None) == replace(other.shape, rank_order=None)


def _rank_order(point: Point) -> str:
    return point.shape.rank_order or "blocked"
