from collections.abc import Sequence

import pytest

from dally.cluster.topology import Shape
from dally.errors import InputError
from dally.profiles.files import format_profile, parse_profile
from dally.profiles.given import StepTime, given_profile
from dally.profiles.iteration import predict
from dally.profiles.schema import PointShape, Profile, ProfileMode, Timing

NOW = "2026-11-26T00:00:00+00:00"
MACHINE = ("machine", 1, 8, 1.05)
RACK = ("rack", 2, 4, 1.3)
NETWORK = ("network", 2, 4, 2.6)


def given(*places: tuple[str, int, int, float], name: str = "llm") -> Profile:
    times = [
        StepTime(tier, PointShape(nodes, gpus, None), Timing(step_s, None, None, None))
        for tier, nodes, gpus, step_s in places
    ]
    return given_profile(name, times, "typed in", NOW)


def shape(level: int, machines: Sequence[int], racks: Sequence[int] = ()) -> Shape:
    return Shape(level, tuple(machines), tuple(racks), (), ())


def test_the_places_that_were_given_take_the_seconds_that_were_given() -> None:
    profile = given(MACHINE, RACK, NETWORK)
    asked = (shape(0, (8,)), shape(1, (4, 4), (2,)), shape(2, (4, 4), (1, 1)))
    found = [predict(profile, each) for each in asked]
    assert [each.iteration_s for each in found] == [1.05, 1.3, 2.6]
    assert not any(each.extrapolated for each in found)


def test_other_spreads_of_the_same_gpus_take_about_as_long_and_say_that_they_were_not_measured() -> None:
    profile = given(MACHINE, RACK, NETWORK)
    found = predict(profile, shape(2, (2, 2, 2, 2), (2, 2)))
    assert found.iteration_s == pytest.approx(2.6)
    assert found.extrapolated


def test_without_a_step_on_one_gpu_nothing_is_faster_than_the_shortest_and_the_profile_says_so() -> None:
    profile = given(MACHINE, RACK)
    assert predict(profile, shape(0, (2,))).iteration_s == 1.05
    assert profile.quality is not None
    assert profile.quality.flags == ("no step on one GPU is known: the shortest step is taken for compute",)


def test_a_step_on_one_gpu_is_compute() -> None:
    profile = given(("machine", 1, 1, 0.9), MACHINE, RACK)
    assert predict(profile, shape(0, (1,))).iteration_s == 0.9
    assert [round(point.slowdown or 0, 3) for point in profile.tiers["machine"]] == [1.0, 1.167]
    assert profile.quality is None or not profile.quality.flags


def test_faster_apart_is_kept_and_flagged() -> None:
    profile = given(("rack", 2, 4, 2.0), ("network", 2, 4, 1.0))
    assert predict(profile, shape(1, (4, 4), (2,))).iteration_s == 2.0
    assert profile.quality is not None
    assert "8 GPUs are 100 % faster in tier network than in tier rack" in profile.quality.flags


def test_it_survives_its_file_and_counts_as_of_gpus() -> None:
    profile = given(MACHINE, RACK)
    assert parse_profile(format_profile(profile), "file") == profile
    assert profile.provenance.mode is ProfileMode.GIVEN
    assert not profile.provenance.mode.on_cpu


@pytest.mark.parametrize("name", ["", "my model", "a" * 65, "a/b"])
def test_a_name_that_no_job_can_say_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="must be letters, digits"):
        given(RACK, name=name)


def test_two_times_of_one_place_are_refused() -> None:
    with pytest.raises(InputError, match="rack 2x4 has two step times"):
        given(RACK, RACK)
