"""Profiles as a GPU would give them, written by the schema itself: the judge must read what is written."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dally.profiles.files import write_profiles
from dally.profiles.schema import (
    Bucket,
    Compute,
    Env,
    Model,
    Point,
    PointLink,
    PointShape,
    Profile,
    ProfileMode,
    Provenance,
    Reduced,
    Telemetry,
    Timing,
)
from profiler.gpu_validation.commands import StepError
from profiler.gpu_validation.profile_checks import (
    judge_compute,
    judge_counters,
    judge_link,
    judge_step_time,
    read_profiles,
)

TELEMETRY = Telemetry(0.9, 1 << 30, 1e9, None, 8, {"nvlink_bps": "Not Supported"})
ALONE = Point(PointShape(1, 1, "blocked", 1), None, (), Timing(0.1, None, None, 9), None, 1.0, 0, TELEMETRY)
PROFILE = Profile(
    schema=1,
    provenance=Provenance(ProfileMode.NCCL, "here", "own", "srsf-delay", "2026-11-23T00:00:00Z"),
    env=Env(gpu_type="local", device_name="NVIDIA H200", driver="580", cuda="13.0", nccl="2.28.9"),
    model=Model("resnet18", 10, "float32", 40, 8, "sgd", (Bucket(40, 0.1),), 1 << 30, "bf16"),
    compute=Compute(0.03, 0.06, 0.01, 0.05, None, 0.004),
    tiers={"machine": (ALONE,)},
)


def with_telemetry(telemetry: Telemetry | None) -> Profile:
    return replace(PROFILE, tiers={"machine": (replace(ALONE, telemetry=telemetry),)})


def over_link(seconds: float) -> Profile:
    curve = (Reduced(1 << 20, 0.01, None, None, 9), Reduced(1 << 24, seconds, None, None, 9))
    far = Point(PointShape(2, 1, "blocked", 2), PointLink(1e9, None), curve, None, None, None)
    return replace(PROFILE, tiers={"network": (far,)})


def test_a_model_in_bf16_is_told_with_its_time(tmp_path: Path) -> None:
    write_profiles([PROFILE], tmp_path)
    said = judge_compute(read_profiles(tmp_path), ["resnet18"])
    assert said == "1 model in bf16 on NVIDIA H200, 1 with a fixed part: resnet18 100.0 ms"


def test_a_model_that_is_missing_is_named(tmp_path: Path) -> None:
    write_profiles([PROFILE], tmp_path)
    with pytest.raises(StepError, match="not measured: vgg16"):
        judge_compute(read_profiles(tmp_path), ["resnet18", "vgg16"])


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        (replace(PROFILE, model=replace(PROFILE.model, precision="fp32")), "precision is fp32, must be bf16"),
        (replace(PROFILE, model=replace(PROFILE.model, precision=None)), "precision is None, must be bf16"),
        (replace(PROFILE, env=replace(PROFILE.env, device_name=None)), "env.device_name is not known"),
        (replace(PROFILE, provenance=replace(PROFILE.provenance, mode=ProfileMode.GLOO)), "mode is gloo"),
        (replace(PROFILE, model=replace(PROFILE.model, peak_memory_bytes=None)), "peak_memory_bytes"),
    ],
)
def test_what_a_profile_of_a_gpu_lacks_is_told(tmp_path: Path, profile: Profile, message: str) -> None:
    write_profiles([profile], tmp_path)
    with pytest.raises(StepError, match=f"^resnet18: .*{message}"):
        judge_compute(read_profiles(tmp_path), ["resnet18"])


def test_counters_are_told_with_their_ranges(tmp_path: Path) -> None:
    write_profiles([PROFILE], tmp_path)
    said = judge_counters(read_profiles(tmp_path))
    assert said.startswith("gpu_utilisation 0.9 to 0.9; memory_used_bytes 1.07e+09 to")


def test_pcie_may_be_missing_where_nvml_says_it_cannot(tmp_path: Path) -> None:
    write_profiles(
        [with_telemetry(replace(TELEMETRY, pcie_bps=None, reasons={"pcie_bps": "Not Supported"}))], tmp_path
    )
    assert judge_counters(read_profiles(tmp_path)).endswith("pcie_bps: Not Supported")


@pytest.mark.parametrize(
    ("telemetry", "message"),
    [
        (None, "no counter was read"),
        (replace(TELEMETRY, gpu_utilisation=None, reasons={"gpu_utilisation": "Unknown"}), "Unknown"),
        (replace(TELEMETRY, pcie_bps=None, reasons={}), "pcie_bps was not read: no reason"),
        (replace(TELEMETRY, gpu_utilisation=0.0), "gpu_utilisation is 0 for every model"),
    ],
)
def test_counters_that_were_not_read_are_told(
    tmp_path: Path, telemetry: Telemetry | None, message: str
) -> None:
    write_profiles([with_telemetry(telemetry)], tmp_path)
    with pytest.raises(StepError, match=message):
        judge_counters(read_profiles(tmp_path))


def test_an_all_reduce_as_long_as_the_link_makes_it_has_gone_over_it(tmp_path: Path) -> None:
    write_profiles([over_link((1 << 24) * 8 / 1e9 * 1.05)], tmp_path)
    assert "1.05 of the link's time; NCCL 2.28.9" in judge_link(read_profiles(tmp_path)["resnet18"], 1e9)


@pytest.mark.parametrize("factor", [0.2, 3.0])
def test_one_that_is_faster_or_far_slower_has_not(tmp_path: Path, factor: float) -> None:
    write_profiles([over_link((1 << 24) * 8 / 1e9 * factor)], tmp_path)
    with pytest.raises(StepError, match="did not go over the link alone"):
        judge_link(read_profiles(tmp_path)["resnet18"], 1e9)


def test_without_profiles_the_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="has no profiles"):
        read_profiles(tmp_path)


def judged_step_time(folder: Path, *seconds: float) -> str:
    write_profiles([PROFILE], folder)
    steps = [{"step": step, "seconds": each} for step, each in enumerate(seconds, 1)]
    lines = [{"begins": 0}, *steps]
    (folder / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return judge_step_time(folder / "steps.jsonl", read_profiles(folder)["resnet18"])


def test_steps_as_long_as_their_profile_says_are_told(tmp_path: Path) -> None:
    assert judged_step_time(tmp_path, 3.0, 0.105, 0.11) == "steps of 110.0 ms, 1.10 of their profile's"


def test_steps_that_are_slower_than_their_profile_says_are_told(tmp_path: Path) -> None:
    with pytest.raises(
        StepError, match=r"steps of 130\.0 ms, 1\.30 of their profile's; 1\.25 or less is valid"
    ):
        judged_step_time(tmp_path, 0.1, 0.13, 0.14)
