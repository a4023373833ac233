"""How much of a link a job keeps beside foreign flows, from points measured with and without them."""

from dataclasses import dataclass, replace
from statistics import mean

from dally.profiles.allreduce import curve_time_s
from dally.profiles.checks import PredictionCheck, shape_of
from dally.profiles.iteration import Prediction, predict
from dally.profiles.schema import TIERS, Point, Profile


@dataclass(frozen=True, slots=True)
class Contention:
    """The fit of `bandwidth / (1 + weight * flows)`.

    Attributes:
        weight: What one foreign flow each way takes, beside the job's own share of 1.
        curve_errors: Stretched over measured time of the model's all-reduces, minus 1, of each pair.
        checks: Iterations measured under flows, and predicted from the stretched all-reduces.
    """

    weight: float
    curve_errors: tuple[float, ...]
    checks: tuple[PredictionCheck, ...]


def fit_contention(profile: Profile) -> Contention | None:
    """Fit the weight to all-reduces by least squares; to iterations under background flows it is not fitted.

    Fair sharing among TCP flows gives n flows beside the job's one 1/(1 + n) of a link each, a weight of 1.

    Returns:
        None without all-reduces measured both with and without background flows.
    """
    pairs = []  # a point measured under flows, and the one at the same place without
    for tier in TIERS:
        points = profile.tiers.get(tier, ())
        free = {(point.shape, point.link): point for point in points if not point.background_flows}
        for point in points:
            alone = free.get((point.shape, point.link))
            if point.background_flows and point.allreduce_curve and alone and alone.allreduce_curve:
                pairs.append((tier, point, alone))
    if not pairs:
        return None
    stretches = [
        (jammed.background_flows, _reducing_s(profile, jammed) / _reducing_s(profile, free))
        for _, jammed, free in pairs
    ]
    slope = sum(flows * (stretch - 1) for flows, stretch in stretches)
    weight = max(0.0, slope / sum(flows**2 for flows, _ in stretches))
    return Contention(
        weight=weight,
        curve_errors=tuple((1 + weight * flows) / stretch - 1 for flows, stretch in stretches),
        checks=tuple(
            PredictionCheck(tier, jammed, _predict(profile, tier, free, 1 + weight * flows), held_out=False)
            for (tier, jammed, free), (flows, _) in zip(pairs, stretches, strict=True)
            if jammed.iteration
        ),
    )


def contention_parameters(profile: Profile) -> dict[str, float]:
    """The weight and its largest and mean errors, as a fit's parameters; empty if it cannot be fitted."""
    contention = fit_contention(profile)
    if contention is None:
        return {}
    parameters = {
        "background_weight": contention.weight,
        "background_curve_max": max(map(abs, contention.curve_errors)),
    }
    errors = [abs(check.error) for check in contention.checks]
    if errors:
        parameters |= {"background_mape": mean(errors), "background_max": max(errors)}
    return parameters


def _reducing_s(profile: Profile, point: Point) -> float:
    """Time of one iteration's all-reduces, one after another; of the largest measured if none is known."""
    total = profile.model.grad_bytes or point.allreduce_curve[-1].bytes
    sizes = [bucket.bytes for bucket in profile.model.buckets] or [total]
    return sum(curve_time_s(point.allreduce_curve, size) for size in sizes)


def _predict(profile: Profile, tier: str, free: Point, stretch: float) -> Prediction:
    """The iteration from the curve without flows, stretched so many times."""
    curve = tuple(
        replace(item, median_s=item.median_s * stretch, p10_s=None, p90_s=None)
        for item in free.allreduce_curve
    )
    tiers = {tier: (replace(free, allreduce_curve=curve, iteration=None),)}
    return predict(replace(profile, tiers=tiers), shape_of(tier, free, profile.env.gpu_type))
