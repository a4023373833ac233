"""How far predictions are from the measured iterations of a profile that they do not know."""

from dataclasses import dataclass, replace

from dally.profiles.iteration import Prediction, predict
from dally.profiles.schema import TIERS, Point, Profile
from dally.topology import Link, Ring, Shape


@dataclass(frozen=True, slots=True)
class Check:
    """One measured iteration and its prediction.

    Attributes:
        tier: The tier of the point.
        point: What was measured.
        prediction: From the profile without this iteration.
        held_out: Whether nothing that the prediction rests on came from this iteration.
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


def check_points(profile: Profile) -> tuple[Check, ...]:
    """Predict each iteration measured on two or more GPUs from the profile without that iteration.

    All-reduce curves stay, the point's own too. Of other points only those in the same rank order speak for
    it. The point that gave the profile its contention factor is not held out (`calibration_point`). Left out
    are points under background flows, and those of whose tier the profile then knows nothing.
    """
    source = calibration_point(profile) if profile.compute.contention_factor is not None else None
    predicted = (
        (tier, point, _predict_without(profile, tier, point))
        for tier, point in measured_points(profile)
        if not point.background_flows
    )
    return tuple(
        Check(tier, point, prediction, held_out=point is not source)
        for tier, point, prediction in predicted
        if prediction
    )


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


def _predict_without(profile: Profile, tier: str, point: Point) -> Prediction | None:
    """Predict a point's iteration from the profile without it, of points in its rank order."""
    blinded = {
        name: tuple(
            replace(other, iteration=None) if other is point else other
            for other in points
            if _rank_order(other) == _rank_order(point)
        )
        for name, points in profile.tiers.items()
    }
    known = any(other.allreduce_curve or other.iteration for other in blinded[tier] if other.shape.gpus > 1)
    if not known and point.link is None:
        return None
    return predict(replace(profile, tiers=blinded), shape_of(tier, point, profile.env.gpu_type))


def _rank_order(point: Point) -> str:
    return point.shape.rank_order or "blocked"
