"""Profiles of pretended GPUs of other speeds, by calculation: what is slept scales, the rest stays."""

from collections.abc import Mapping
from dataclasses import replace

from dally.errors import InputError
from dally.profiles.files import ProfileSet
from dally.profiles.schema import Bucket, Profile, ProfileMode


def of_types(profiles: ProfileSet, speeds: Mapping[str, float]) -> ProfileSet:
    """Profiles of each model on each of some GPU types, out of emulated ones that name no type.

    Args:
        profiles: As measured, all on one speed.
        speeds: Of each type, relative to that.

    Raises:
        InputError: They are not emulated, or of GPU types already.
    """
    for profile in profiles.profiles:
        if profile.provenance.mode is not ProfileMode.EMULATED or profile.env.gpu_type:
            kind = f"{profile.provenance.mode}, of GPU type {profile.env.gpu_type or 'unknown'}"
            raise InputError(
                f"the profile of {profile.model.name} in {profiles.name} is {kind}; "
                "only an emulated one of no type can be taken for other types"
            )
    scaled = (
        scale(profile, gpu_type, speed)
        for profile in profiles.profiles
        for gpu_type, speed in sorted(speeds.items())
    )
    return ProfileSet(profiles.name, tuple(scaled))


def scale(profile: Profile, gpu_type: str, speed: float) -> Profile:
    """An emulated profile as of a GPU so many times as fast.

    The forward and backward passes are slept, so their times and the moments at which gradients are ready
    scale exactly; the optimizer's step and all-reduces are real and stay. Whole iterations were measured at
    one speed, so for another they are left out, and predicted.
    """
    source = f"{profile.provenance.source}; compute times divided by {speed:g}"
    compute = profile.compute
    tiers = {}
    for tier, points in profile.tiers.items():
        if speed != 1:  # only what rests on all-reduces alone holds at another speed
            curves = (point for point in points if point.allreduce_curve)
            points = tuple(replace(point, iteration=None, exposed_s=None, slowdown=None) for point in curves)
        tiers[tier] = points
    return replace(
        profile,
        provenance=replace(profile.provenance, source=source),
        env=replace(profile.env, gpu_type=gpu_type),
        model=replace(
            profile.model,
            buckets=tuple(Bucket(bucket.bytes, bucket.ready_s / speed) for bucket in profile.model.buckets),
        ),
        compute=replace(
            compute,
            fwd_s=None if compute.fwd_s is None else compute.fwd_s / speed,
            bwd_s=compute.bwd_s / speed,
            window_s=None if compute.window_s is None else compute.window_s / speed,
        ),
        tiers=tiers,
    )
