"""Profiles of which nothing but whole steps is known: seconds by the stopwatch on GPUs that lie so and so."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dally import __version__
from dally.errors import InputError
from dally.profiles.checks import add_trust
from dally.profiles.schema import (
    SCHEMA,
    TIERS,
    Compute,
    Env,
    Model,
    Point,
    PointLink,
    PointShape,
    Profile,
    ProfileMode,
    Provenance,
    Quality,
    Timing,
)

_NAME = re.compile(r"[\w:+][\w.:+-]{0,63}", re.ASCII)
"""What a job's `model` may be, apart from those that look like options and hidden files."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """How long a step takes with the job's GPUs spread so.

    Attributes:
        tier: machine, rack or network.
        shape: The spread.
        step: A whole step, forward to optimizer.
        link: The slowest link crossed; None if unknown.
    """

    tier: str
    shape: PointShape
    step: Timing
    link: PointLink | None = None


def check_name(name: str) -> str:
    """A model's name as jobs may say it.

    Raises:
        InputError: They may not.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"model is {name!r}, must be letters, digits and . : _ + - (at most 64), the first no . or -"
        )
    return name


def given_profile(
    name: str,
    times: Sequence[StepTime],
    source: str,
    utc_time: str,
    gpu_type: str | None = None,
    mode: ProfileMode = ProfileMode.GIVEN,
) -> Profile:
    """A profile of step times alone.

    A step on one GPU is compute; where none is known, the shortest step is taken for it, so that nothing is
    predicted to be faster than what was seen. What a step takes longer than that is communication.

    Args:
        name: What jobs call the model.
        times: At least one.
        source: How they came about.
        utc_time: When they were measured or told, ISO 8601.
        gpu_type: Slurm's name of the GPUs; None for any.
        mode: Given, or gloo where the steps were run on CPUs.

    Raises:
        InputError: The name cannot be a model's, or two times are of the same place.
    """
    alone = [time for time in times if time.shape.gpus == 1]
    compute_s = min(time.step.median_s for time in alone or times)
    flags = () if alone else ("no step on one GPU is known: the shortest step is taken for compute",)
    points = step_points(times, compute_s)
    profile = Profile(
        schema=SCHEMA,
        provenance=Provenance(mode, source, "own measurement", f"dally {__version__}", utc_time),
        env=Env(gpu_type=gpu_type),
        model=Model(check_name(name), None, None, None, None, None, (), None),
        compute=Compute(None, compute_s, None, None, None),
        tiers=points,
        quality=Quality(flags=flags),
    )
    return add_trust(profile)


def step_points(times: Sequence[StepTime], compute_s: float) -> dict[str, tuple[Point, ...]]:
    """What step times tell of their places, by tier.

    Args:
        times: One for each place.
        compute_s: A step without communication.

    Raises:
        InputError: Two times are of the same place.
    """
    places = [(time.tier, time.shape.nodes, time.shape.gpus_per_node) for time in times]
    for place in places:
        if places.count(place) > 1:
            raise InputError("{} {}x{} has two step times, must have one".format(*place))
    return {
        tier: tuple(_point(time, compute_s) for time in times if time.tier == tier)
        for tier in TIERS
        if any(time.tier == tier for time in times)
    }


def _point(time: StepTime, compute_s: float) -> Point:
    step_s = time.step.median_s
    exposed_s = max(0.0, step_s - compute_s) if time.shape.gpus > 1 else None
    return Point(time.shape, time.link, (), time.step, exposed_s, step_s / compute_s)
