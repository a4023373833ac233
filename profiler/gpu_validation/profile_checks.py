"""Judges profiles that were measured on a GPU, from their JSON: what must be in them, and what it must be."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from dally.words import plural
from profiler.gpu_validation.commands import StepError

Profile = Mapping[str, Any]

_PARTS = ("fwd_s", "bwd_s", "step_s")
_HEADERS = 1.3
"""So many times what the ring formula says an all-reduce over a shaped link may take, and no less than it."""

_MOST_OF_PROFILE = 1.25
"""So many times what its profile says a step of a job may take: samples are drawn, and the loss is read."""


def read_profiles(folder: Path) -> dict[str, Profile]:
    """The profiles of a folder by model.

    Raises:
        StepError: There are none.
    """
    profiles = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if not profiles:
        raise StepError(f"{folder} has no profiles")
    return {profile["model"]["name"]: profile for profile in profiles}


def judge_compute(profiles: Mapping[str, Profile], models: Iterable[str]) -> str:
    """Every model is there in bf16, measured on a GPU, with its memory.

    Raises:
        StepError: One is not, or says something else.
    """
    missing = [model for model in models if model not in profiles]
    if missing:
        raise StepError(f"not measured: {', '.join(missing)}")
    for name, profile in profiles.items():
        model, env = profile["model"], profile["env"]
        _require(name, "mode", profile["provenance"]["mode"], "nccl")
        _require(name, "precision", model.get("precision"), "bf16")
        _require(name, "dtype", model.get("dtype"), "float32")
        for key in ("device_name", "driver", "cuda"):
            if not env.get(key):
                raise StepError(f"{name}: env.{key} is not known")
        if not model["peak_memory_bytes"]:
            raise StepError(f"{name}: peak_memory_bytes is not known")
    fixed = sum(bool(profile["compute"].get("fixed_s")) for profile in profiles.values())
    times = ", ".join(f"{name} {_computed_s(profile) * 1e3:.1f} ms" for name, profile in profiles.items())
    models = plural(len(profiles), "model")
    return f"{models} in bf16 on {env['device_name']}, {fixed} with a fixed part: {times}"


def judge_counters(profiles: Mapping[str, Profile]) -> str:
    """Utilisation and memory were read for each model; PCIe too, unless NVML itself says it cannot.

    Raises:
        StepError: A counter was not read.
    """
    found: dict[str, list[float]] = {}
    refused: dict[str, str] = {}
    for name, profile in profiles.items():
        points = [point for points in profile["tiers"].values() for point in points]
        telemetry = next((point["telemetry"] for point in points if point.get("telemetry")), None)
        if telemetry is None:
            raise StepError(f"{name}: no counter was read")
        for counter in ("gpu_utilisation", "memory_used_bytes", "pcie_bps"):
            value, reason = telemetry[counter], telemetry["reasons"].get(counter, "no reason")
            if value is not None:
                found.setdefault(counter, []).append(value)
            elif counter == "pcie_bps" and "Not Supported" in reason:
                refused[counter] = reason
            else:
                raise StepError(f"{name}: {counter} was not read: {reason}")
    if not max(found["gpu_utilisation"]):
        raise StepError("gpu_utilisation is 0 for every model")
    said = [f"{counter} {min(values):.3g} to {max(values):.3g}" for counter, values in found.items()]
    return "; ".join([*said, *(f"{counter}: {reason}" for counter, reason in refused.items())])


def judge_link(profile: Profile, rate_bps: float) -> str:
    """The largest all-reduce between two ranks took as long as the shaped link makes it take.

    Two ranks send as many bytes as they reduce, each way (a ring: 2 (n - 1) / n).

    Raises:
        StepError: There is none, or it did not go over the link.
    """
    _require(profile["model"]["name"], "mode", profile["provenance"]["mode"], "nccl")
    points = profile["tiers"].get("network", [])
    curve = points[0]["allreduce_curve"] if points else []
    if not curve:
        raise StepError("no all-reduce between the two hosts was measured")
    largest = curve[-1]
    ratio = largest["median_s"] / (largest["bytes"] * 8 / rate_bps)
    said = f"{largest['bytes'] / 1e6:.1f} MB in {largest['median_s']:.3f} s, {ratio:.2f} of the link's time"
    if not 1.0 <= ratio <= _HEADERS:
        raise StepError(f"{said}: it did not go over the link alone, 1 to {_HEADERS:g} is valid")
    return f"{said}; NCCL {profile['env'].get('nccl')}"


def judge_step_time(steps: Path, profile: Profile) -> str:
    """A job's steps took as long as its profile says, by which schedulers and the simulator predict it.

    Args:
        steps: Its steps, as `dally-train --log-file` writes them.
        profile: Of its model, with the same batch on one GPU.

    Raises:
        StepError: They took longer.
    """
    lines = [json.loads(line) for line in steps.read_text().splitlines()]
    step_s = median(line["seconds"] for line in lines if "step" in line)
    ratio = step_s / _computed_s(profile)
    said = f"steps of {step_s * 1e3:.1f} ms, {ratio:.2f} of their profile's"
    if ratio > _MOST_OF_PROFILE:
        raise StepError(f"{said}; {_MOST_OF_PROFILE:g} or less is valid")
    return said


def _computed_s(profile: Profile) -> float:
    """A step on one GPU."""
    return sum(profile["compute"][part] or 0.0 for part in _PARTS)


def _require(model: str, what: str, found: object, wanted: str) -> None:
    if found != wanted:
        raise StepError(f"{model}: {what} is {found}, must be {wanted}")
