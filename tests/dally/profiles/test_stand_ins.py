"""Profiles of other GPU types that stand in, and of several local batches."""

from dataclasses import replace

import pytest

from dally.profiles.files import ProfileSet
from dally.profiles.iteration import predict
from dally.profiles.schema import Point, Profile
from dally.profiles.stand_ins import at_speed
from tests.dally.profiles.test_iteration import NO_WINDOW, point, profile, shape


def named(model: str, gpu_type: str | None, total_s: float = 3.5, batch: int | None = None) -> Profile:
    made = profile(rack=[point(2, 1, 2 * total_s)], gpu_type=gpu_type, buckets=(), grad_bytes=None)
    compute = replace(NO_WINDOW, fwd_s=None, bwd_s=total_s, step_s=None)
    return replace(made, model=replace(made.model, name=model, local_batch=batch), compute=compute)


def found(profiles: ProfileSet, model: str, gpu_type: str | None, batch: float | None = None) -> Profile:
    profile = profiles.find(model, gpu_type, batch)
    assert profile is not None
    return profile


@pytest.mark.parametrize(
    ("device", "asked"),
    [("Tesla V100-SXM2-16GB", "v100"), ("NVIDIA H100 80GB HBM3", "h100"), ("h100", "nvidia_h100_80gb_hbm3")],
)
def test_a_profile_is_found_under_slurms_and_cudas_name(device: str, asked: str) -> None:
    profiles = ProfileSet("s", (named("m", "a100"), named("m", device)))
    assert found(profiles, "m", asked).env.gpu_type == device
    assert profiles.stand_ins([("m", asked)]) == ()
    alike = replace(shape(1), gpu_types=(asked,))
    assert not predict(found(profiles, "m", asked), alike).extrapolated


def test_the_type_nearest_in_speed_stands_in_and_that_is_said() -> None:
    profiles = ProfileSet("s", (named("m", "a100"), named("m", "k80"), named("m", "v100")))
    assert found(profiles, "m", "h100") == named("m", "a100")
    assert found(profiles, "m", "p100") == named("m", "k80")
    assert profiles.stand_ins([("m", "h100"), ("m", "a100")]) == (
        "no profile on GPU type h100 for m: that on a100 stands in, "
        "times not scaled, as no model was measured on both types",
    )


def test_a_stand_in_is_scaled_by_what_other_models_show_on_both_types() -> None:
    others = (
        named("a", "v100", 4.0),
        named("a", "k80", 8.0),
        named("b", "v100", 1.0),
        named("b", "k80", 8.0),
    )
    profiles = ProfileSet("s", (*others, named("m", "v100", 2.0)))
    slow = found(profiles, "m", "k80")
    assert slow.compute.total_s == pytest.approx(2.0 * 4), "twice and eight times: four times in the mean"
    assert slow.env.gpu_type == "v100", "so that its predictions are marked"
    assert profiles.stand_ins([("m", "k80")]) == (
        "no profile on GPU type k80 for m: that on v100 stands in, "
        "its compute taken as 4 times as slow, as that of a, b",
    )


def test_what_a_slower_gpu_hides_is_calculated_anew() -> None:
    fast = named("m", "v100", 2.0)
    slow = at_speed(fast, 0.25)
    comm_s = (4.0**3 - 2.0**3) ** (1 / 3)
    apart = replace(shape(1, 1), gpu_types=("v100",))
    assert predict(slow, apart).iteration_s == pytest.approx((8.0**3 + comm_s**3) ** (1 / 3))
    assert predict(slow, apart).comm_s == pytest.approx(comm_s)


def test_one_line_for_each_pair_of_types_names_some_models_and_counts_the_rest() -> None:
    profiles = ProfileSet("s", tuple(named(f"m{number}", "v100") for number in range(6)))
    (line,) = profiles.stand_ins([(f"m{number}", "h100") for number in range(6)])
    assert "for m0, m1, m2, m3 and 2 more: that on v100 stands in" in line


def test_a_cluster_without_types_is_told_which_of_several_is_taken() -> None:
    one, two = (
        ProfileSet("s", (named("m", "v100"),)),
        ProfileSet("s", (named("m", "k80"), named("m", "v100"))),
    )
    assert one.stand_ins([("m", "")]) == ()
    assert two.stand_ins([("m", "")]) == ("the cluster names no GPU type: profiles on k80 are taken for m",)
    assert found(two, "m", None) == named("m", "k80")


def test_a_profile_without_a_type_stands_for_all_and_nothing_is_said() -> None:
    profiles = ProfileSet("s", (named("m", None), named("m", "v100")))
    assert found(profiles, "m", "h100") == named("m", None)
    assert profiles.stand_ins([("m", "h100")]) == ()


@pytest.mark.parametrize(("asked", "expected"), [(None, 32), (8, 8), (17, 32), (15, 8), (500, 128)])
def test_of_several_local_batches_the_nearest_is_found(asked: float | None, expected: int) -> None:
    profiles = ProfileSet("s", tuple(named("m", "v100", batch=batch) for batch in (8, 32, 128)))
    assert found(profiles, "m", "v100", asked).model.local_batch == expected


def test_points_without_an_iteration_stay_as_they_are() -> None:
    swept: Point = point(2, 1)
    assert at_speed(profile(rack=[swept], gpu_type="v100"), 2.0).tiers["rack"] == (swept,)
