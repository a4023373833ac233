"""Makes profiles out of raw runs: one for each model and GPU type."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import groupby
from math import inf

from dally import __version__
from dally.errors import InputError
from dally.profiles.checks import add_trust
from dally.profiles.schema import (
    SCHEMA,
    TIERS,
    Compute,
    Env,
    Point,
    Profile,
    ProfileMode,
    Provenance,
    Quality,
    Reduced,
)
from profiler.messages import Trained
from profiler.report.contention import contention_parameters
from profiler.report.raw import RawRun
from profiler.spec import MeasurementRun, MeasurementSpec
from workloads.settings import Backend

_ALIKE = ("torch", "backend", "emulated_flops")
"""What runs of one profile have in common."""

_MODEL_ALIKE = ("params", "grad_bytes", "local_batch", "optimizer", "precision")
"""What all measurements of one model have in common."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What all runs at one place found for one model.

    Attributes:
        run: One of the runs.
        curve: All-reduces by bytes; of repeated ones the least disturbed, which is the fastest.
        trained: The fastest of the model's measurements; None if it was not trained here.
    """

    run: MeasurementRun
    curve: tuple[Reduced, ...]
    trained: Trained | None

    @property
    def is_ordinary(self) -> bool:
        """Whether it was measured as gangs run."""
        return self.run.shape.rank_order in (None, "blocked") and not self.run.spec.background_flows


def assemble(raws: Iterable[RawRun], utc_time: str) -> tuple[Profile, ...]:
    """Make a profile of each model and GPU type from what runs found, with its errors.

    Compute times, bytes and buckets come from the model's fastest run: one GPU, if that was measured. How
    much communication stretches backward comes from the fastest run on several, so that all others are held
    out (`dally.profiles.checks`). Runs at the same place are taken together, and a run that did not train a
    model still gives it its all-reduce curve.

    Args:
        raws: In any order; runs whose ranks never met count for nothing.
        utc_time: When it was measured, ISO 8601.

    Returns:
        By GPU type and model.

    Raises:
        InputError: No model was measured; or runs do not belong together: another torch, backend, precision
            or emulated speed, or a model of another size.
    """
    met = sorted((raw for raw in raws if raw.env), key=_speed)
    profiles = []
    for gpu_type in sorted({_gpu_type(raw) for raw in met}):
        alike = [raw for raw in met if _gpu_type(raw) == gpu_type]
        _require_alike(alike)
        models = sorted({trained.model.name for raw in alike for trained in raw.trained})
        profiles += [_profile(model, alike, utc_time) for model in models]
    if not profiles:
        raise InputError("no run measured a model; see the lines that the runs printed")
    return tuple(profiles)


def _profile(model: str, raws: Sequence[RawRun], utc_time: str) -> Profile:
    """The profile of one model from runs that belong together, the fastest first."""
    runs = [(raw, trained) for raw in raws for trained in raw.trained if trained.model.name == model]
    _require_same_model(runs)
    places = [_merge(model, list(group)) for _, group in groupby(raws, key=_place)]
    measured = [place for place in places if place.trained]
    fastest = min(measured, key=lambda place: (place.run.spec.background_flows, place.run.shape.gpus > 1))
    assert fastest.trained is not None
    buckets = [place.trained.model.buckets for place in measured if place.trained]
    compute = replace(fastest.trained.compute, contention_factor=_contention_factor(measured))
    make_point = partial(_point, compute=compute, fastest_s=fastest.trained.iteration.median_s)
    profile = Profile(
        schema=SCHEMA,
        provenance=_provenance(runs[0][0].run.spec, [raw for raw, _ in runs], utc_time),
        env=_merge_envs([raw.env for raw in raws if raw.env]),
        model=replace(fastest.trained.model, buckets=next(filter(None, buckets), ())),
        compute=compute,
        tiers=_tiers(places, make_point),
        quality=_merge_qualities(runs, _missing(model, raws)),
    )
    return add_trust(profile, parameters=contention_parameters(profile))


def _merge(model: str, raws: Sequence[RawRun]) -> _Place:
    curve: dict[int, Reduced] = {}
    for item in (item for raw in raws for item in raw.reduced):
        curve[item.bytes] = min(curve.get(item.bytes, item), item, key=lambda each: each.median_s)
    trained = (trained for raw in raws for trained in raw.trained if trained.model.name == model)
    return _Place(
        run=raws[0].run,
        curve=tuple(curve[size] for size in sorted(curve)),
        trained=min(trained, key=lambda each: each.iteration.median_s, default=None),
    )


def _contention_factor(measured: Iterable[_Place]) -> float | None:
    """Of the first place on several GPUs, `dally.profiles.checks.calibration_point`."""
    several = (place for place in measured if place.run.shape.gpus > 1 and place.is_ordinary)
    first = next(several, None)
    return first.trained.compute.contention_factor if first and first.trained else None


def _tiers(places: Iterable[_Place], make_point: Callable[[_Place], Point]) -> dict[str, tuple[Point, ...]]:
    known = [place for place in places if place.curve or place.trained]
    tiers = {tier: tuple(make_point(place) for place in known if place.run.tier == tier) for tier in TIERS}
    return {tier: points for tier, points in tiers.items() if points}


def _point(place: _Place, compute: Compute, fastest_s: float) -> Point:
    iteration = place.trained.iteration if place.trained else None
    apart = place.run.shape.gpus > 1
    return Point(
        shape=place.run.shape,
        link=place.run.link,
        allreduce_curve=place.curve,
        iteration=iteration,
        exposed_s=max(0.0, iteration.median_s - compute.total_s) if iteration and apart else None,
        slowdown=iteration.median_s / fastest_s if iteration else None,
        background_flows=place.run.spec.background_flows,
        telemetry=place.trained.telemetry if place.trained else None,
    )


def _provenance(spec: MeasurementSpec, raws: Iterable[RawRun], utc_time: str) -> Provenance:
    mode = ProfileMode.NCCL if spec.backend is Backend.NCCL else ProfileMode.GLOO
    if spec.emulated_flops is not None:
        mode = ProfileMode.EMULATED
    source = f"profile-models, runs {', '.join(sorted({raw.run.name for raw in raws}))}"
    return Provenance(mode, source, "own measurement", f"dally {__version__}", utc_time)


def _merge_envs(envs: Sequence[Env]) -> Env:
    """Each field as the fastest run that knows it has it; the hosts of all."""
    merged = {
        name: next((value for value in values if value not in (None, (), {})), values[0])
        for name, values in ((item.name, [getattr(env, item.name) for env in envs]) for item in fields(Env))
    }
    return replace(Env(**merged), hosts=tuple(sorted({host for env in envs for host in env.hosts})))


def _missing(model: str, raws: Iterable[RawRun]) -> set[str]:
    """The runs in which a model could not be measured, and why."""
    failed = ((raw, item) for raw in raws for item in raw.failed if item.model == model)
    return {f"{raw.run.name}: not measured: {item.reason}" for raw, item in failed}


def _merge_qualities(runs: Iterable[tuple[RawRun, Trained]], missing: set[str]) -> Quality:
    """The worst shares, and all flags with the runs they are from."""
    runs = list(runs)
    foreign = [trained.quality.foreign_cpu_fraction for _, trained in runs]
    steal = [trained.quality.steal for _, trained in runs]
    flags = {f"{raw.run.name}: {flag}" for raw, trained in runs for flag in trained.quality.flags}
    flags |= {f"{raw.run.name}: partial, the run did not finish" for raw, _ in runs if not raw.finished}
    flags |= missing
    return Quality(
        foreign_cpu_fraction=max((share for share in foreign if share is not None), default=None),
        steal=max((share for share in steal if share is not None), default=None),
        flags=tuple(sorted(flags)),
    )


def _gpu_type(raw: RawRun) -> str:
    return (raw.env.gpu_type if raw.env else None) or ""


def _speed(raw: RawRun) -> tuple[object, ...]:
    """Sorts runs: nearer tiers, then faster links, then fewer GPUs; those at one place side by side."""
    return (*_place(raw), raw.run.name)


def _place(raw: RawRun) -> tuple[object, ...]:
    """All that tells the place of one measurement from another's, the fastest first."""
    shape, link = raw.run.shape, raw.run.link
    ranks = shape.rank_order or "blocked"
    return (
        TIERS.index(raw.run.tier),
        -link.bandwidth_bps if link else -inf,
        (link.latency_s or 0.0) if link else 0.0,
        shape.gpus,
        shape.nodes,
        shape.racks or 0,
        (ranks != "blocked", ranks),
        raw.run.spec.background_flows,
    )


def _require_alike(raws: Sequence[RawRun]) -> None:
    """Refuse runs whose numbers do not belong into one profile."""
    first, *others = raws
    for other in others:
        for name, value, theirs in zip(_ALIKE, _traits(first), _traits(other), strict=True):
            if value != theirs:
                raise InputError(
                    f"runs {first.run.name} and {other.run.name} do not mix: {name} {value} and {theirs}; "
                    "keep the raw files of one measurement in one folder"
                )


def _traits(raw: RawRun) -> tuple[object, ...]:
    assert raw.env is not None
    spec = raw.run.spec
    return raw.env.torch, spec.backend, spec.emulated_flops


def _require_same_model(runs: Sequence[tuple[RawRun, Trained]]) -> None:
    (first, trained), *others = runs
    for other, again in others:
        for name in _MODEL_ALIKE:
            value, theirs = getattr(trained.model, name), getattr(again.model, name)
            if value != theirs:
                raise InputError(
                    f"model {trained.model.name}: runs {first.run.name} and {other.run.name} do not mix: "
                    f"{name} {value} and {theirs}"
                )
