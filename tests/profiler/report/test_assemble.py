"""Profiles from the runs of a machine that is known in closed form."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.cluster.topology import Link, Machine, Shape
from dally.cluster.topology_build import Attached, Switch, build_topology
from dally.errors import InputError
from dally.profiles.files import format_profile, parse_profile
from dally.profiles.iteration import predict
from dally.profiles.schema import Env, Profile, ProfileMode
from profiler.report.assemble import assemble
from profiler.report.raw import RawRun
from tests.profiler.report.machine import (
    COMPUTE,
    ENV,
    FAR,
    PLACES,
    RACK,
    SIZES,
    SLOW,
    SOLO,
    RankPlace,
    buckets,
    iteration_s,
    measure,
)

NOW = "2026-11-21T12:00:00Z"


def profiles(raws: Sequence[RawRun]) -> dict[str, Profile]:
    return {profile.model.name: profile for profile in assemble(raws, NOW)}


def shape(place: RankPlace) -> Shape:
    """The gang of a place on a real tree of machines: two a rack."""
    rate = Link(place.bandwidth_bps or 1e12)
    per_rack = 2 if place.tier == "network" else place.nodes
    attached = [
        Attached(Machine(f"h{number}", place.per_node, "", Link(1e12)), f"s{number // per_rack}", rate)
        for number in range(place.nodes)
    ]
    racks = {machine.switch for machine in attached}
    switches = [Switch(name, "top", Link(1e12)) for name in sorted(racks)] if len(racks) > 1 else []
    topology = build_topology("t", attached, [*switches, Switch("top" if switches else "s0", None)])
    return topology.shape(tuple((number, place.per_node) for number in range(place.nodes)))


def without_iterations(profile: Profile) -> Profile:
    tiers = profile.tiers.items()
    bare = {tier: tuple(replace(point, iteration=None) for point in points) for tier, points in tiers}
    return replace(profile, tiers=bare)


@pytest.mark.parametrize("place", [RACK, SLOW, FAR], ids=lambda place: place.name)
@pytest.mark.parametrize("model", sorted(SIZES))
@pytest.mark.parametrize("stretch", [1.0, 1.2])
def test_predictions_from_curves_alone_are_the_simulated_iterations(
    model: str, place: RankPlace, stretch: float
) -> None:
    made = profiles([measure(each, stretch=stretch) for each in PLACES])[model]
    prediction = predict(without_iterations(made), shape(place))
    assert (prediction.method, prediction.note) == ("replay", "")
    assert prediction.iteration_s == pytest.approx(iteration_s(place, model, stretch), rel=1e-9)


@pytest.mark.parametrize("model", sorted(SIZES))
def test_a_link_between_two_measured_ones_is_predicted_within_a_percent_and_flagged(model: str) -> None:
    made = profiles([measure(place) for place in PLACES])[model]
    between = replace(RACK, bandwidth_bps=800e6)
    prediction = predict(made, shape(between))
    assert prediction.extrapolated
    assert prediction.iteration_s == pytest.approx(iteration_s(between, model), rel=0.01)


def test_all_places_but_that_of_the_fastest_run_on_several_ranks_are_held_out() -> None:
    fit = profiles([measure(place, stretch=1.2) for place in PLACES])["vgg"].fit
    assert fit is not None
    assert fit.form == "replay"
    assert fit.residuals == pytest.approx((0, 0, 0), abs=1e-9)
    # Only FAR: SLOW is at the fastest one's place. Its ring is right but for the latency.
    assert fit.held_out_mape == pytest.approx(0, abs=1e-3)
    assert fit.valid_bytes == (4096, 2**28)


def test_errors_are_told_with_and_without_knowing_the_place_and_large_ones_are_flagged() -> None:
    raws = [measure(SOLO), measure(RACK, error=0.5), measure(SLOW), measure(FAR, error=0.25)]
    made = profiles(raws)["vgg"]
    assert made.fit is not None
    assert made.fit.residuals == pytest.approx((1 / 3, 0, 0.2))
    assert made.fit.held_out_max == pytest.approx(0.2, abs=1e-3)
    assert made.quality is not None
    assert made.quality.flags == (
        "iterations are mispredicted by up to 33.3 %, from all-reduces of the same place",
        "held-out iterations are mispredicted by up to 20.0 %, 20.0 % on average",
    )


def test_the_contention_factor_comes_from_the_fastest_run_on_several_ranks_without_flows() -> None:
    jammed = replace(RACK, bandwidth_bps=4e9, flows=2)
    raws = [
        measure(SOLO),
        measure(jammed, stretch=3.0),
        measure(RACK, stretch=1.2),
        measure(SLOW, stretch=1.4),
    ]
    assert profiles(raws)["vgg"].compute == replace(COMPUTE, contention_factor=1.2)


def test_one_run_on_several_ranks_gives_the_factor_and_leaves_nothing_held_out() -> None:
    fit = profiles([measure(SOLO), measure(RACK)])["vgg"].fit
    assert fit is not None
    assert (len(fit.residuals), fit.held_out_mape) == (1, None)


def test_without_a_run_on_one_rank_the_fastest_gives_compute_and_slowdowns() -> None:
    made = profiles([measure(SLOW), measure(RACK)])["vgg"]
    assert made.compute.total_s == COMPUTE.total_s
    fast, slow = made.tiers["rack"]
    assert fast.slowdown == 1.0
    assert slow.slowdown == pytest.approx(iteration_s(SLOW, "vgg") / iteration_s(RACK, "vgg"))


def test_slowdown_is_over_one_rank_and_exposed_time_over_compute() -> None:
    made = profiles([measure(SOLO), measure(RACK)])["resnet"]
    alone, together = *made.tiers["machine"], *made.tiers["rack"]
    assert (alone.slowdown, alone.exposed_s) == (1.0, None)
    total_s = iteration_s(RACK, "resnet")
    assert together.slowdown == pytest.approx(total_s / COMPUTE.total_s)
    assert together.exposed_s == pytest.approx(total_s - COMPUTE.total_s)


def test_buckets_come_from_the_fastest_run_that_has_them() -> None:
    alone = measure(SOLO, models=("vgg",))
    bare = replace(alone.trained[0], model=replace(alone.trained[0].model, buckets=()))
    made = profiles([replace(alone, trained=(bare,)), measure(RACK)])["vgg"]
    assert made.model.buckets == buckets("vgg")


def test_nothing_measured_under_foreign_flows_enters_an_ordinary_prediction() -> None:
    jammed = measure(replace(RACK, flows=3))
    made, clean = (
        profiles([measure(SOLO), *raws])["vgg"] for raws in ([measure(SLOW), jammed], [measure(SLOW)])
    )
    for place in (RACK, SLOW, FAR):
        assert predict(made, shape(place)) == predict(clean, shape(place))


def test_foreign_flows_that_share_fairly_weigh_1_and_iterations_beside_them_are_predicted() -> None:
    jammed = [measure(replace(SLOW, flows=flows)) for flows in (1, 3)]
    fit = profiles([measure(SOLO), measure(RACK), measure(SLOW), *jammed])["vgg"].fit
    assert fit is not None
    assert fit.parameters["background_weight"] == pytest.approx(1.0)
    assert fit.parameters["background_max"] == pytest.approx(0.0, abs=1e-9)
    assert len(fit.residuals) == 2, "points under flows have no part in the other errors"


def test_ranks_in_another_order_are_predicted_from_their_own_curve() -> None:
    crossed = replace(FAR, spec="interleaved", bandwidth_bps=0.5e9)
    fit = profiles([measure(place) for place in (*PLACES, crossed)])["vgg"].fit
    assert fit is not None
    assert fit.residuals == pytest.approx((0, 0, 0, 0), abs=1e-9)


def test_runs_at_one_place_are_taken_together_the_least_disturbed_numbers_winning() -> None:
    again = measure(RACK, error=0.3)
    again = replace(again, run=replace(again.run, name="again"), reduced=again.reduced[:2])
    assert (
        profiles([measure(SOLO), again, measure(RACK)])["vgg"].tiers
        == profiles([measure(SOLO), measure(RACK)])["vgg"].tiers
    )


def test_a_run_without_the_model_still_gives_it_its_curve() -> None:
    made = profiles([measure(SOLO), measure(RACK, models=("vgg",))])["resnet"]
    (point,) = made.tiers["rack"]
    assert point.iteration is None
    assert predict(made, shape(RACK)).method == "replay"


def test_the_mode_is_what_carried_it_or_emulated() -> None:
    made = profiles([measure(SOLO)])["vgg"].provenance
    real = profiles([measure(SOLO, emulated_flops=None)])["vgg"].provenance
    assert (made.mode, real.mode, made.utc_time) == (ProfileMode.EMULATED, ProfileMode.GLOO, NOW)


def test_env_takes_each_fact_from_the_fastest_run_that_knows_it_and_all_hosts() -> None:
    far = replace(ENV, nic="eth0", kernel="6.9", hosts=("h9",))
    env = profiles([measure(FAR, env=far), measure(SOLO)])["vgg"].env
    assert env == replace(ENV, nic="eth0", hosts=("h1", "h2", "h9"))


def test_quality_is_the_worst_of_all_runs_and_names_partial_ones() -> None:
    quality = profiles([measure(SOLO), replace(measure(FAR), finished=False)])["vgg"].quality
    assert quality is not None
    assert quality.foreign_cpu_fraction == 0.04
    assert quality.flags == (f"{FAR.name}: partial, the run did not finish",)


def test_a_farther_tier_that_is_faster_is_flagged_not_refused() -> None:
    quality = profiles([measure(SOLO), measure(SLOW), measure(replace(FAR, nodes=2, bandwidth_bps=9e9))])[
        "vgg"
    ].quality
    assert quality is not None
    assert any("faster in tier network than in tier rack" in flag for flag in quality.flags)


def test_each_gpu_type_has_its_own_profile() -> None:
    raws = [measure(SOLO, env=Env(gpu_type=gpu_type, torch="2.13")) for gpu_type in ("v100", "h100")]
    made = assemble(raws, NOW)
    assert [profile.env.gpu_type for profile in made] == ["h100", "h100", "v100", "v100"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (measure(RACK, env=Env(torch="2.12")), "do not mix: torch 2.13.0.cpu and 2.12"),
        (measure(RACK, emulated_flops=None), "do not mix: emulated_flops 1000000000000.0 and None"),
    ],
)
def test_runs_that_do_not_belong_together_are_refused_in_one_line(other: RawRun, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        assemble([measure(SOLO), other], NOW)
    assert "\n" not in str(caught.value)


def test_a_model_of_another_batch_size_is_refused() -> None:
    raw = measure(RACK, models=("vgg",))
    (trained,) = raw.trained
    raw = replace(raw, trained=(replace(trained, model=replace(trained.model, local_batch=64)),))
    with pytest.raises(InputError, match=r"model vgg: runs machine-1x1.* do not mix: local_batch 32 and 64"):
        assemble([measure(SOLO), raw], NOW)


def test_without_a_trained_model_there_is_no_profile() -> None:
    with pytest.raises(InputError, match="no run measured a model"):
        assemble([replace(measure(SOLO), env=None), measure(RACK, models=())], NOW)


def test_a_profile_survives_writing_and_reading() -> None:
    for profile in assemble([measure(place) for place in (*PLACES, replace(SLOW, flows=2))], NOW):
        assert parse_profile(format_profile(profile), "x") == profile


ALL = tuple(
    measure(place, stretch=1.1, error=error)
    for place in (*PLACES, replace(SLOW, flows=2), replace(FAR, spec="interleaved"))
    for error in (0.0, 0.02)
)
NAMED = tuple(replace(raw, run=replace(raw.run, name=f"r{number}")) for number, raw in enumerate(ALL))


@given(st.permutations(NAMED), st.integers(1, len(NAMED)))
def test_any_order_of_raw_files_gives_the_same_profiles(raws: list[RawRun], count: int) -> None:
    kept = raws[:count]
    assert assemble(kept, NOW) == assemble(sorted(kept, key=lambda raw: raw.run.name), NOW)
