import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dally.errors import InputError
from dally.profiles.files import (
    add_profile,
    format_profile,
    load_profiles,
    parse_profile,
    profile_path,
    remove_profile,
    shipped_sets,
    write_profile,
    write_profiles,
)
from dally.profiles.schema import Profile, ProfileMode

SAMPLE: dict[str, Any] = {
    "schema": 1,
    "provenance": {
        "mode": "gloo",
        "source": "a test",
        "licence": "Apache-2.0",
        "tool_version": "dally 0.1.0",
        "utc_time": "2026-01-01T00:00:00Z",
    },
    "env": {"gpu_type": "v100", "hosts": ["n1", "n2"], "nccl_env": {"NCCL_ALGO": "Ring"}},
    "model": {
        "name": "resnet50",
        "params": 100,
        "dtype": "float32",
        "grad_bytes": 400,
        "local_batch": 32,
        "optimizer": "sgd",
        "buckets": [{"bytes": 100, "ready_s": 1.5}, {"bytes": 300, "ready_s": 2.5}],
        "peak_memory_bytes": None,
    },
    "compute": {"fwd_s": 1.0, "bwd_s": 2.0, "step_s": 0.5, "window_s": 1.5, "contention_factor": None},
    "tiers": {
        "rack": [
            {
                "shape": {"nodes": 2, "gpus_per_node": 4, "rank_order": "blocked", "racks": 1},
                "link": {"bandwidth_bps": 1e10, "latency_s": None},
                "allreduce_curve": [
                    {"bytes": 100, "median_s": 0.1, "p10_s": 0.1, "p90_s": 0.2, "n": 9},
                    {"bytes": 300, "median_s": 0.3, "p10_s": None, "p90_s": None, "n": None},
                ],
                "iteration": {"median_s": 4.0, "p10_s": 3.9, "p90_s": 4.1, "n": 20},
                "exposed_s": 0.5,
                "slowdown": 1.1,
            }
        ]
    },
    "fit": {
        "form": "replay",
        "parameters": {"factor": 1.0},
        "residuals": [0.01],
        "held_out_mape": 0.02,
        "held_out_max": 0.03,
        "valid_bytes": [100, 300],
    },
    "quality": {"foreign_cpu_fraction": 0.01, "steal": 0.0, "flags": ["busy"]},
    "restart": {"base_s": 1.0, "per_gpu_s": 0.5},
}


def altered(path: str, value: object) -> str:
    """The sample as JSON with one field replaced; path as `tiers.rack.0.shape`."""
    data = json.loads(json.dumps(SAMPLE))
    *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    target = data
    for key in parents:
        target = target[key]
    target[last] = value
    return json.dumps(data)


def sample(**changes: Any) -> Profile:
    return replace(parse_profile(json.dumps(SAMPLE), "sample"), **changes)


def test_a_profile_survives_writing_and_reading(tmp_path: Path) -> None:
    write_profile(sample(), tmp_path / "a.json")
    assert load_profiles(tmp_path / "a.json").profiles[0] == sample()


def test_writing_twice_gives_the_same_bytes() -> None:
    text = format_profile(sample())
    assert format_profile(parse_profile(text, "again")) == text


def test_a_profile_may_leave_out_fit_quality_and_restart_and_then_restarts_in_6_s_and_1_s_per_gpu() -> None:
    data = {key: value for key, value in SAMPLE.items() if key not in ("fit", "quality", "restart")}
    profile = parse_profile(json.dumps(data), "short")
    assert profile.fit is None
    assert profile.restart.cost_s(8) == 14.0
    assert profile.restart.first_cost_s(8) == 0.0


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schema", 3, "x.json: schema is 3, this version reads 1 and 2"),
        ("schema", 2, "schema is 2, must be 1 as it has no events"),
        ("colour", 1, "x.json: unknown key colour; valid: schema, provenance"),
        ("model.colour", 1, "unknown key model.colour; valid: name, params"),
        ("tiers.rack.0.link.colour", 1, "unknown key tiers.rack[0].link.colour; valid: bandwidth_bps"),
        ("provenance.mode", "guess", 'provenance.mode is "guess"; valid: nccl, gloo, emulated, imported'),
        ("compute.bwd_s", -1.0, "compute.bwd_s is -1.0, must be a number of 0 or more"),
        ("compute.bwd_s", None, "compute.bwd_s is null, must be a number"),
        ("compute.bwd_s", 0, "compute.bwd_s is 0, must be positive"),
        ("compute.bwd_s", True, "compute.bwd_s is true, must be a number"),
        ("compute.contention_factor", 0.5, "compute.contention_factor is 0.5, must be 1 or more"),
        ("model.buckets.0.bytes", 1.5, "model.buckets[0].bytes is 1.5, must be a whole number"),
        ("model.buckets.0.bytes", 0, "model.buckets[0].bytes is 0, must be positive"),
        ("model.buckets.0.ready_s", 9.0, "model.buckets are not sorted by ready_s"),
        ("model.buckets", {}, "model.buckets is {}, must be a list"),
        ("model.name", "", "model.name is empty"),
        ("env.hosts.0", 7, "env.hosts[0] is 7, must be a string"),
        ("tiers.rack.0.allreduce_curve.0.bytes", 900, "allreduce_curve is not sorted by bytes"),
        (
            "tiers.rack.0.allreduce_curve.0.p90_s",
            0.05,
            "p10_s 0.1, median_s 0.1, p90_s 0.05 must not decrease",
        ),
        ("tiers.rack.0.iteration.median_s", 0, "tiers.rack[0].iteration.median_s is 0, must be positive"),
        ("tiers.rack.0.shape.nodes", 1, "tiers.rack[0].shape.nodes is 1, must be 2 or more"),
        ("tiers.rack.0.shape.racks", 3, "tiers.rack[0].shape.racks is 3, must be 1 to 2"),
        ("tiers.floor", [], "tiers has unknown tier floor; valid: machine, rack, network"),
        ("tiers", [], "tiers is [], must be an object"),
        ("restart", 3, "restart is 3, must be an object"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_valid(
    path: str, value: object, message: str
) -> None:
    with pytest.raises(InputError) as error:
        parse_profile(altered(path, value), "x.json")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("x.json: ")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "1" + "0" * 400])
def test_a_number_that_is_not_finite_is_refused(number: str) -> None:
    text = altered("compute.bwd_s", 123456789).replace("123456789", number)
    with pytest.raises(InputError, match="bwd_s is"):
        parse_profile(text, "x.json")


def test_another_version_is_told_before_its_unknown_keys_are() -> None:
    data = {"schema": 3, "colour": "red"}
    with pytest.raises(InputError, match=r"^x\.json: schema is 3, this version reads 1 and 2$"):
        parse_profile(json.dumps(data), "x.json")


def test_absurdly_nested_json_is_refused() -> None:
    with pytest.raises(InputError, match="not complete JSON"):
        parse_profile("[" * 200_000, "x.json")


def test_a_missing_field_is_named() -> None:
    data = json.loads(json.dumps(SAMPLE))
    del data["compute"]["window_s"]
    with pytest.raises(InputError, match=r"^x\.json: compute\.window_s is missing$"):
        parse_profile(json.dumps(data), "x.json")


def test_truncated_json_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^x\.json: not complete JSON: .*$"):
        parse_profile(json.dumps(SAMPLE)[:200], "x.json")


def test_a_profile_that_cannot_be_written_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match=r"^profile .*a\.json cannot be written: No space left on device$"):
        write_profile(sample(), tmp_path / "a.json")
    assert not list(tmp_path.iterdir())


def test_profiles_are_written_by_model_and_gpu_type_into_a_folder_that_is_made(tmp_path: Path) -> None:
    untyped, typed_ = typed(None), typed("NVIDIA H100 80GB/PCIe")
    paths = write_profiles([untyped, typed_], tmp_path / "a" / "b")
    assert [path.name for path in paths] == ["resnet50.json", "resnet50-NVIDIA-H100-80GB-PCIe.json"]
    assert load_profiles(tmp_path / "a" / "b").profiles == (untyped, typed_)


def named(name: str, gpu_type: str | None = None) -> Profile:
    profile = typed(gpu_type)
    return replace(profile, model=replace(profile.model, name=name))


def test_profiles_whose_plain_names_are_the_same_lie_side_by_side(tmp_path: Path) -> None:
    made = (named("a+b"), named("a-b"), named("a", "b"), named("a:b"))
    paths = write_profiles(made, tmp_path)
    assert paths[0].name == "a-b.json"
    assert len({*paths}) == 4
    assert {*load_profiles(tmp_path).profiles} == {*made}
    assert write_profiles(reversed(made), tmp_path) == tuple(reversed(paths)), "each has kept its name"
    with pytest.raises(InputError, match=r"a-b-.{8}\.json exists"):
        add_profile(named("a:b"), tmp_path)
    remove_profile(tmp_path, "a+b")
    assert profile_path(tmp_path, "a:b", None) == paths[3]
    assert add_profile(named("a+b"), tmp_path) == paths[0]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"folder .*file/sub cannot be made: Not a directory"):
        write_profiles([sample()], tmp_path / "file" / "sub")


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"a\.json: byte 0xff is not UTF-8"):
        load_profiles(tmp_path / "a.json")


def test_a_profile_can_be_a_key() -> None:
    assert {sample(): 1}[sample()] == 1


def folder_of(path: Path, *profiles: Profile) -> Path:
    for number, profile in enumerate(profiles):
        write_profile(profile, path / f"{number}.json")
    return path


def typed(gpu_type: str | None, mode: ProfileMode = ProfileMode.NCCL) -> Profile:
    profile = sample()
    return replace(
        profile,
        env=replace(profile.env, gpu_type=gpu_type),
        provenance=replace(profile.provenance, mode=mode),
    )


def test_find_takes_the_exact_gpu_type_then_the_untyped_then_the_first(tmp_path: Path) -> None:
    found = load_profiles(folder_of(tmp_path, typed("v100"), typed("a100"), typed(None)))
    assert found.find("resnet50", "v100") == typed("v100")
    assert found.find("resnet50", "h100") == typed(None)
    assert found.find("resnet50") == typed(None)
    assert found.find("vgg11", "v100") is None
    (tmp_path / "2.json").unlink()
    assert load_profiles(tmp_path).find("resnet50", "h100") == typed("a100")


def test_one_file_is_a_set_too(tmp_path: Path) -> None:
    folder_of(tmp_path, typed("v100"))
    assert load_profiles(tmp_path / "0.json").models == ("resnet50",)


def test_cpu_and_gpu_profiles_mix_only_if_allowed(tmp_path: Path) -> None:
    folder_of(tmp_path, typed("v100", ProfileMode.NCCL), typed("cpu", ProfileMode.GLOO))
    with pytest.raises(InputError, match=r"mixes CPU and GPU profiles \(gloo, nccl\)"):
        load_profiles(tmp_path)
    assert load_profiles(tmp_path, allow_mixed=True).modes == (ProfileMode.GLOO, ProfileMode.NCCL)


def test_two_profiles_for_one_model_and_type_are_refused(tmp_path: Path) -> None:
    folder_of(tmp_path, typed("v100"), typed("v100"))
    expected = r"1\.json: model resnet50 on GPU type v100 with local batch \d+ is also in .*0\.json"
    with pytest.raises(InputError, match=expected):
        load_profiles(tmp_path)


def test_an_empty_directory_and_an_unknown_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no \.json files"):
        load_profiles(tmp_path)
    with pytest.raises(InputError, match="no profile set or path nowhere; shipped sets: dally, gavel"):
        load_profiles("nowhere")


def test_the_shipped_sets_load() -> None:
    assert shipped_sets() == ("dally", "gavel", "pollux", "realistic", "testbed")
    for name in shipped_sets():
        assert load_profiles(name).modes == (
            ProfileMode.EMULATED if name == "testbed" else ProfileMode.IMPORTED,
        )


def test_the_cost_of_a_first_start_is_kept_and_left_out_where_it_is_nothing(tmp_path: Path) -> None:
    profile = parse_profile(json.dumps(SAMPLE | {"restart": {"first_s": 4.5}}), "a test")
    (path,) = write_profiles([profile], tmp_path)
    assert load_profiles(path).profiles[0] == profile
    assert profile.restart.first_cost_s(3) == 4.5
    assert json.loads(path.read_text())["restart"] == {"base_s": 6.0, "per_gpu_s": 1.0, "first_s": 4.5}
