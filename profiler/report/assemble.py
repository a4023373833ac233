"""Makes profiles out of raw runs: one for each model and GPU type."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
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
from profiler.spec import MeasurementRun
from workloads.settings import Backend

_SAME_MODEL = ("params", "grad_bytes", "local_batch", "optimizer", "precision")
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
    met: dict[str, list[RawRun]] = {}
    for raw in sorted(raws, key=lambda raw: (*_place_of(raw.run), raw.run.name)):
        if raw.env:
            met.setdefault(raw.env.gpu_type or "", []).append(raw)
    profiles = []
    for _, alike in sorted(met.items()):
        for other in alike[1:]:
            names = f"runs {alike[0].run.name} and {other.run.name}"
            hint = "; keep the raw files of one measurement in one folder"
            _require_alike(names, _traits_of(alike[0]), _traits_of(other), hint)
        models = sorted({trained.model.name for raw in alike for trained in raw.trained})
        profiles += [_profile(model, alike, utc_time) for model in models]
    if not profiles:
        raise InputError("no run measured a model; see the lines that the runs printed")
    return tuple(profiles)


def _place_of(run: MeasurementRun) -> tuple[object, ...]:
    """What tells the place of one measurement from another's: nearer tiers, then faster links, come first."""
    shape, link = run.shape, run.link
    rank_order = shape.rank_order or "blocked"
    return (
        TIERS.index(run.tier),
        -link.bandwidth_bps if link else -inf,
        (link.latency_s or 0.0) if link else 0.0,
        shape.gpus,
        shape.nodes,
        shape.racks or 0,
        (rank_order != "blocked", rank_order),
        run.spec.background_flows,
    )


def _traits_of(raw: RawRun) -> Mapping[str, object]:
    """What runs of one profile have in common."""
    spec = raw.run.spec
    return {
        "torch": raw.env and raw.env.torch,
        "backend": spec.backend,
        "emulated_flops": spec.emulated_flops,
    }


def _require_alike(
    names: str, ours: Mapping[str, object], theirs: Mapping[str, object], hint: str = ""
) -> None:
    """Refuse runs whose numbers do not belong into one profile."""
    for name, value in ours.items():
        if theirs[name] != value:
            raise InputError(f"{names} do not mix: {name} {value} and {theirs[name]}{hint}")


def _profile(model: str, raws: Sequence[RawRun], utc_time: str) -> Profile:
    """The profile of one model from runs that belong together, the fastest first."""
    runs = [(raw, trained) for raw in raws for trained in raw.trained if trained.model.name == model]
    (first, first_trained), *others = runs
    for other, trained in others:
        ours, theirs = (
            {name: getattr(each.model, name) for name in _SAME_MODEL} for each in (first_trained, trained)
        )
        _require_alike(f"model {model}: runs {first.run.name} and {other.run.name}", ours, theirs)

    places = []
    for _, group in groupby(raws, key=lambda raw: _place_of(raw.run)):
        at_place = list(group)
        curve: dict[int, Reduced] = {}
        for item in (item for raw in at_place for item in raw.reduced):
            curve[item.bytes] = min(curve.get(item.bytes, item), item, key=lambda each: each.median_s)
        here = [trained for raw in at_place for trained in raw.trained if trained.model.name == model]
        fastest_here = min(here, key=lambda each: each.iteration.median_s, default=None)
        by_size = tuple(curve[size] for size in sorted(curve))
        places.append(_Place(at_place[0].run, by_size, fastest_here))

    measured = [(place.run, place.trained) for place in places if place.trained]
    _, fastest = min(measured, key=lambda each: (each[0].spec.background_flows, each[0].shape.gpus > 1))
    # As gangs run, on several GPUs: `dally.profiles.checks.calibration_point`.
    factor = next(
        (
            trained.compute.contention_factor
            for run, trained in measured
            if run.shape.gpus > 1
            and run.shape.rank_order in (None, "blocked")
            and not run.spec.background_flows
        ),
        None,
    )
    compute = replace(fastest.compute, contention_factor=factor)
    buckets = next((trained.model.buckets for _, trained in measured if trained.model.buckets), ())
    points = [
        (place.run.tier, _point(place, compute, fastest)) for place in places if place.curve or place.trained
    ]
    tiers = {tier: tuple(point for where, point in points if where == tier) for tier in TIERS}

    spec = first.run.spec
    mode = ProfileMode.NCCL if spec.backend is Backend.NCCL else ProfileMode.GLOO
    if spec.emulated_flops is not None:
        mode = ProfileMode.EMULATED
    source = f"profile-models, runs {', '.join(sorted({raw.run.name for raw, _ in runs}))}"
    envs = [raw.env for raw in raws if raw.env]
    # Each field as the fastest run that knows it has it; the hosts of all.
    facts = {item.name: [getattr(env, item.name) for env in envs] for item in fields(Env)}
    env = Env(
        **{
            name: next((value for value in values if value not in (None, (), {})), values[0])
            for name, values in facts.items()
        }
    )
    profile = Profile(
        schema=SCHEMA,
        provenance=Provenance(mode, source, "own measurement", f"dally {__version__}", utc_time),
        env=replace(env, hosts=tuple(sorted({host for env in envs for host in env.hosts}))),
        model=replace(fastest.model, buckets=buckets),
        compute=compute,
        tiers={tier: points_there for tier, points_there in tiers.items() if points_there},
        quality=_quality(model, raws, runs),
    )
    return add_trust(profile, parameters=contention_parameters(profile))


def _point(place: _Place, compute: Compute, fastest: Trained) -> Point:
    iteration = place.trained.iteration if place.trained else None
    apart = place.run.shape.gpus > 1
    return Point(
        shape=place.run.shape,
        link=place.run.link,
        allreduce_curve=place.curve,
        iteration=iteration,
        exposed_s=max(0.0, iteration.median_s - compute.total_s) if iteration and apart else None,
        slowdown=iteration.median_s / fastest.iteration.median_s if iteration else None,
        background_flows=place.run.spec.background_flows,
        telemetry=place.trained.telemetry if place.trained else None,
    )


def _quality(model: str, raws: Sequence[RawRun], runs: Sequence[tuple[RawRun, Trained]]) -> Quality:
    """The worst shares, all flags with the runs they are from, and where the model could not be measured."""
    foreign = [trained.quality.foreign_cpu_fraction for _, trained in runs]
    steal = [trained.quality.steal for _, trained in runs]
    flags = {f"{raw.run.name}: {flag}" for raw, trained in runs for flag in trained.quality.flags}
    flags |= {f"{raw.run.name}: partial, the run did not finish" for raw, _ in runs if not raw.finished}
    failed = ((raw, item) for raw in raws for item in raw.failed if item.model == model)
    flags |= {f"{raw.run.name}: not measured: {item.reason}" for raw, item in failed}
    return Quality(
        foreign_cpu_fraction=max((share for share in foreign if share is not None), default=None),
        steal=max((share for share in steal if share is not None), default=None),
        flags=tuple(sorted(flags)),
    )
