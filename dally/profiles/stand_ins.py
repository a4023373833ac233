"""What stands in for a profile that a set lacks: that of the nearest GPU type, scaled where that is known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import mean

from dally.profiles.checks import is_ordinary, shape_of
from dally.profiles.gpu_types import distance, same_type
from dally.profiles.iteration import predict
from dally.profiles.local_batch import scaled_buckets, scaled_compute, scaled_events
from dally.profiles.schema import Point, Profile

_NAMED = 4
"""So many models are named in a line; more are counted."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """Which GPU type's profiles are taken for a type of which a model has none.

    Attributes:
        model: The model.
        wanted: The GPU type without a profile; empty if the cluster names none.
        taken: The GPU type whose profiles are taken.
        speed: Speed of the wanted type over the taken one's; None if unknown, then nothing is scaled.
        shown_by: The models of the set that show this speed, on both types.
    """

    model: str
    wanted: str
    taken: str
    speed: float | None = None
    shown_by: tuple[str, ...] = ()


def choose_stand_in(profiles: Sequence[Profile], model: str, wanted: str) -> StandIn:
    """The GPU type nearest in speed to the wanted one, of those that a model has typed profiles of.

    Types whose speed nobody knows come last, by name.

    Args:
        profiles: All of a set, some of them of the model and of a stated type.
        model: The model.
        wanted: A GPU type of which it has none.
    """
    types = {profile.env.gpu_type or "" for profile in profiles if profile.model.name == model}
    taken = min(sorted(types), key=lambda gpu_type: distance(wanted, gpu_type))
    faster = _compute_by_work(profiles, wanted)
    ratios = {
        work[0]: compute_s / faster[work]
        for work, compute_s in _compute_by_work(profiles, taken).items()
        if work in faster
    }
    speed = exp(mean(map(log, ratios.values()))) if ratios else None
    return StandIn(model, wanted, taken, speed, tuple(sorted(ratios)))


def _compute_by_work(profiles: Sequence[Profile], gpu_type: str) -> dict[tuple[str, int | None], float]:
    """Seconds of compute on a GPU type, by model and local batch."""
    return {
        (profile.model.name, profile.model.local_batch): profile.compute.total_s
        for profile in profiles
        if same_type(profile.env.gpu_type, gpu_type)
    }


def at_speed(profile: Profile, speed: float) -> Profile:
    """A profile as of a GPU so many times as fast: compute scales, communication stays.

    Its environment stays that of the GPU it was measured on, so that predictions are marked as extrapolated.
    Whole iterations are predicted anew from the profile, or left to the replay of its events.
    """
    pace = 1 / speed
    in_proportion = replace(profile.compute, fixed_s=0.0, other_batches=())
    plain = replace(profile, compute=in_proportion, learning=None)
    return replace(
        profile,
        model=replace(profile.model, buckets=scaled_buckets(profile.model.buckets, pace)),
        compute=scaled_compute(profile.compute, pace),
        events=scaled_events(profile.events, pace),
        tiers={}
        if profile.events
        else {
            tier: tuple(_repredicted(plain, tier, point, pace) for point in points)
            for tier, points in profile.tiers.items()
        },
    )


def _repredicted(plain: Profile, tier: str, point: Point, pace: float) -> Point:
    """A point whose iteration is that of GPUs of another pace; left out where nothing tells it."""
    if point.iteration is None:
        return point
    iteration = None
    if is_ordinary(point):
        shape = shape_of(tier, point, plain.env.gpu_type)
        iteration_s = predict(plain, shape, batch=pace).iteration_s
        iteration = replace(point.iteration, median_s=iteration_s, p10_s=None, p90_s=None)
    return replace(point, iteration=iteration, exposed_s=None, slowdown=None)


def stand_in_lines(stand_ins: Iterable[StandIn]) -> tuple[str, ...]:
    """What stands in for what and how it was scaled: one line for each pair of GPU types."""
    models: dict[tuple[str, str], list[StandIn]] = {}
    for each in sorted(stand_ins, key=lambda item: (item.wanted, item.taken, item.model)):
        models.setdefault((each.wanted, each.taken), []).append(each)
    return tuple(_line(wanted, taken, group) for (wanted, taken), group in models.items())


def _line(wanted: str, taken: str, group: Sequence[StandIn]) -> str:
    names = _listed([each.model for each in group])
    if not wanted:
        return f"the cluster names no GPU type: profiles on {taken} are taken for {names}"
    first = group[0]
    scaled = "times not scaled, as no model was measured on both types"
    if first.speed is not None:
        times = (
            f"{first.speed:.3g} times as fast" if first.speed >= 1 else f"{1 / first.speed:.3g} times as slow"
        )
        scaled = f"its compute taken as {times}, as that of {_listed(first.shown_by)}"
    return f"no profile on GPU type {wanted} for {names}: that on {taken} stands in, {scaled}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
