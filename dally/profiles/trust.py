"""How far the predictions from a profile can be trusted: its fit, and flags in words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import mean

from dally.profiles.checks import PredictionCheck, check_held_out, check_points, is_ordinary, measured_points
from dally.profiles.schema import TIERS, Fit, Profile, Quality

LARGE_ERROR = 0.10
"""An error above this is flagged, as a fraction."""

_NOTABLE = 0.05
"""A farther tier counts as faster from this fraction on; less may be noise."""


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
    fit = Fit(
        form=" and ".join(sorted({check.prediction.method for check in checks})),
        parameters=dict(parameters or {}),
        residuals=tuple(abs(check.error) for check in checks),
        held_out_mape=mean(sizes) if sizes else None,
        held_out_max=max(sizes, default=None),
        valid_bytes=_valid_bytes(profile),
    )
    flags = (*_flag_faster_apart(profile), *_flag_known(checks), *_flag_held_out(fit))
    quality = profile.quality or (Quality() if flags else None)
    if quality:
        quality = replace(quality, flags=(*quality.flags, *flags))
    return replace(profile, fit=fit if checks else None, quality=quality)


def _valid_bytes(profile: Profile) -> tuple[float, float] | None:
    """The sizes that every curve spans."""
    points = (point for points in profile.tiers.values() for point in points if is_ordinary(point))
    curves = [point.allreduce_curve for point in points if point.allreduce_curve]
    if not curves:
        return None
    return float(max(curve[0].bytes for curve in curves)), float(min(curve[-1].bytes for curve in curves))


def _flag_known(checks: Sequence[PredictionCheck]) -> tuple[str, ...]:
    """Where the prediction is wrong although the all-reduces of just that place are known."""
    errors = [abs(check.error) for check in checks if check.point.allreduce_curve]
    if max(errors, default=0.0) <= LARGE_ERROR:
        return ()
    if len(checks) == 1:
        return (f"the only run on several GPUs is mispredicted by {errors[0]:.1%}, from its own all-reduces",)
    return (f"iterations are mispredicted by up to {max(errors):.1%}, from all-reduces of the same place",)


def _flag_held_out(fit: Fit) -> tuple[str, ...]:
    largest, average = fit.held_out_max, fit.held_out_mape
    if largest is None or average is None or largest <= LARGE_ERROR:
        return ()
    return (f"held-out iterations are mispredicted by up to {largest:.1%}, {average:.1%} on average",)


def _flag_faster_apart(profile: Profile) -> tuple[str, ...]:
    """Where GPUs in a farther tier train faster than as many in a nearer one; that happens."""
    best: dict[tuple[int, str], float] = {}
    for tier, point in measured_points(profile):
        if is_ordinary(point) and point.iteration:
            key = point.shape.gpus, tier
            best[key] = min(best.get(key, inf), point.iteration.median_s)
    return tuple(
        f"{gpus} GPUs are {best[gpus, near] / far_s - 1:.0%} faster in tier {far} than in tier {near}"
        for (gpus, far), far_s in best.items()
        for near in TIERS[: TIERS.index(far)]
        if best.get((gpus, near), 0.0) > far_s * (1 + _NOTABLE)
    )
