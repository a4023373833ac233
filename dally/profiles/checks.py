"""How far predictions are from the measured iterations of a profile that they do not know, so how good it is.

Two questions, two checks of each iteration: is it right when the all-reduces of its place are known
(`check_points`), and is it right when nothing of its place is (`check_held_out`)?
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import mean

from dally.cluster.topology import Link, Ring, Shape
from dally.profiles.iteration import Prediction, predict
from dally.profiles.schema import TIERS, Fit, Point, Profile, Quality
from dally.words import share

LARGE_ERROR = 0.10
"""An error above this is flagged, as a fraction."""

_NOTABLE = 0.05
"""A farther tier counts as faster from this fraction on; less may be noise."""

_Tiers = dict[str, tuple[Point, ...]]
_Without = Callable[[str, Point], _Tiers]
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

    def without_iteration(tier: str, point: Point) -> _Tiers:
        return {
            name: tuple(
                replace(other, iteration=None) if other is point else other
                for other in points
                if _rank_order(other) == _rank_order(point)
            )
            for name, points in profile.tiers.items()
        }

    return _check(profile, without_iteration, held_out=False)


def check_held_out(profile: Profile) -> tuple[PredictionCheck, ...]:
    """Predict each iteration measured on two or more GPUs from the profile without anything of its place.

    A place is a spread of GPUs in a tier: its curves and iterations go, under whatever link, rank order or
    flows they were measured. The place that gave the profile its contention factor is left out
    (`calibration_point`), besides what `check_points` leaves out.
    """

    def without_place(tier: str, point: Point) -> _Tiers:
        return {
            name: tuple(other for other in points if name != tier or not _same_place(other, point))
            for name, points in profile.tiers.items()
        }

    source = calibration_point(profile) if profile.compute.contention_factor is not None else None
    checks = _check(profile, without_place, held_out=True)
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
    """Predict each iteration on several GPUs, without flows, from what is left of the profile.

    An iteration is left out if the points that are left say nothing of its tier.
    """
    checks = []
    for tier, point in measured_points(profile):
        if point.background_flows:
            continue
        tiers = without(tier, point)
        known = any(other.allreduce_curve or other.iteration for other in tiers[tier] if other.shape.gpus > 1)
        if known or point.link is not None:
            shape = shape_of(tier, point, profile.env.gpu_type)
            prediction = predict(replace(profile, tiers=tiers), shape)
            checks.append(PredictionCheck(tier, point, prediction, held_out))
    return tuple(checks)


def _same_place(one: Point, other: Point) -> bool:
    """Whether two points of a tier are spread alike."""
    return replace(one.shape, rank_order=None) == replace(other.shape, rank_order=None)


def _rank_order(point: Point) -> str:
    return point.shape.rank_order or "blocked"


def add_trust(
    profile: Profile,
    held_out: Sequence[float] | None = None,
    parameters: Mapping[str, float] | None = None,
) -> Profile:
    """A profile with its fit and flags; without a fit if nothing of it can be checked.

    Args:
        profile: What was measured.
        held_out: Relative errors on places that the profile does not hold or that were taken out of it;
            None for those of its own (`dally.profiles.checks.check_held_out`).
        parameters: Constants that were fitted, and their errors.
    """
    checks = check_points(profile)
    if held_out is None:
        held_out = [check.error for check in check_held_out(profile)]
    sizes = [abs(error) for error in held_out]
    points = (point for points in profile.tiers.values() for point in points if is_ordinary(point))
    curves = [point.allreduce_curve for point in points if point.allreduce_curve]
    common = None  # the sizes that every curve spans
    if curves:
        common = (
            float(max(curve[0].bytes for curve in curves)),
            float(min(curve[-1].bytes for curve in curves)),
        )
    fit = Fit(
        form=" and ".join(sorted({check.prediction.method for check in checks})),
        parameters=dict(parameters or {}),
        residuals=tuple(abs(check.error) for check in checks),
        held_out_mape=mean(sizes) if sizes else None,
        held_out_max=max(sizes, default=None),
        valid_bytes=common,
    )
    flags = [*_flag_faster_apart(profile), *_flag_known(checks)]
    if sizes and max(sizes) > LARGE_ERROR:
        largest, average = max(sizes), mean(sizes)
        flags.append(
            f"held-out iterations are mispredicted by up to {share(largest, 1)}, "
            f"{share(average, 1)} on average"
        )
    quality = profile.quality or (Quality() if flags else None)
    if quality:
        quality = replace(quality, flags=(*quality.flags, *flags))
    return replace(profile, fit=fit if checks else None, quality=quality)


def _flag_known(checks: Sequence[PredictionCheck]) -> tuple[str, ...]:
    """Where the prediction is wrong although the all-reduces of just that place are known."""
    errors = [abs(check.error) for check in checks if check.point.allreduce_curve]
    if max(errors, default=0.0) <= LARGE_ERROR:
        return ()
    if len(checks) == 1:
        return (
            f"the only run on several GPUs is mispredicted by {share(errors[0], 1)}, "
            "from its own all-reduces",
        )
    return (
        f"iterations are mispredicted by up to {share(max(errors), 1)}, from all-reduces of the same place",
    )


def _flag_faster_apart(profile: Profile) -> tuple[str, ...]:
    """Where GPUs in a farther tier train faster than as many in a nearer one; that happens."""
    best: dict[tuple[int, str], float] = {}
    for tier, point in measured_points(profile):
        if is_ordinary(point) and point.iteration:
            key = point.shape.gpus, tier
            best[key] = min(best.get(key, inf), point.iteration.median_s)
    return tuple(
        f"{gpus} GPUs are {share(best[gpus, near] / far_s - 1)} faster in tier {far} than in tier {near}"
        for (gpus, far), far_s in best.items()
        for near in TIERS[: TIERS.index(far)]
        if best.get((gpus, near), 0.0) > far_s * (1 + _NOTABLE)
    )
