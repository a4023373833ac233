"""Profiles of pretended GPUs of other speeds."""

from dataclasses import replace

import pytest

from dally.cluster.topology import Ring, Shape
from dally.errors import InputError
from dally.profiles.emulated import of_types, scale
from dally.profiles.files import load_profiles
from dally.profiles.iteration import predict
from dally.profiles.schema import ProfileMode
from dally.testing.worlds import NIC

TESTBED = load_profiles("testbed")
ONE = TESTBED.profiles[0]
APART = Shape(1, (1, 1), (2,), (Ring(2, NIC, 2),), ("fast",))


def test_a_gpu_of_twice_the_speed_computes_in_half_the_time_and_reduces_in_the_same() -> None:
    fast = scale(ONE, "fast", 2.0)
    assert fast.compute.bwd_s == ONE.compute.bwd_s / 2
    assert fast.compute.step_s == ONE.compute.step_s
    assert [bucket.ready_s * 2 for bucket in fast.model.buckets] == [
        bucket.ready_s for bucket in ONE.model.buckets
    ]
    assert predict(fast, APART).comm_s == pytest.approx(predict(scale(ONE, "fast", 0.5), APART).comm_s)


def test_whole_iterations_hold_at_the_speed_at_which_they_were_measured() -> None:
    assert scale(ONE, "same", 1.0).tiers == ONE.tiers
    slower = [point for points in scale(ONE, "slow", 0.5).tiers.values() for point in points]
    assert slower
    assert not any(point.iteration or point.slowdown for point in slower)


def test_each_model_has_a_profile_of_each_type() -> None:
    typed = of_types(TESTBED, {"v100": 2.0, "k80": 0.5})
    assert len(typed.profiles) == 2 * len(TESTBED.profiles)
    found = {gpu_type: typed.find(ONE.model.name, gpu_type) for gpu_type in ("v100", "k80")}
    assert [profile and profile.env.gpu_type for profile in found.values()] == ["v100", "k80"]


@pytest.mark.parametrize("change", ["mode", "type"])
def test_what_was_measured_or_is_of_a_type_already_does_not_scale(change: str) -> None:
    real = replace(ONE, provenance=replace(ONE.provenance, mode=ProfileMode.NCCL))
    typed = replace(ONE, env=replace(ONE.env, gpu_type="v100"))
    with pytest.raises(InputError, match="only an emulated one of no type"):
        of_types(replace(TESTBED, profiles=(real if change == "mode" else typed,)), {"k80": 1.0})
