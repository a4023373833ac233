"""What a profile says of its own predictions."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.profiles.checks import add_trust, calibration_point, check_held_out, check_points, shape_of
from dally.profiles.iteration import predict
from dally.profiles.schema import Compute, Point, PointLink, Profile, Quality
from tests.dally.profiles.test_iteration import CURVE, GBPS, point, profile, reduced

COMPUTE = Compute(fwd_s=1.0, bwd_s=2.0, step_s=0.5, window_s=1.5, contention_factor=None)
STRETCHED = replace(COMPUTE, contention_factor=1.5)
LINK = PointLink(10 * GBPS, None)


def errors(points: Sequence[Point], compute: Compute = COMPUTE) -> list[float]:
    return [check.error for check in check_points(profile(rack=points, compute=compute))]


def test_a_point_is_predicted_from_its_own_curve_but_not_from_its_iteration() -> None:
    # 1.5 to 2.5, 2.5 to 4.5, step: 5 s by replay.
    assert errors([point(2, 4, 4.0, curve=CURVE)]) == pytest.approx([0.25])


def test_without_a_curve_a_point_is_predicted_from_the_others() -> None:
    # 8 GPUs: 1.5 s exposed + 1.5 s window = 3 s, so 45/14 s on 16, of which 1.5 s are hidden.
    # 16 GPUs: 2 s exposed + 1.5 s window = 3.5 s, so 49/15 s on 8, of which 1.5 s are hidden.
    assert errors([point(2, 4, 5.0), point(4, 4, 5.5)]) == pytest.approx(
        [(2 + 49 / 15) / 5 - 1, (2 + 45 / 14) / 5.5 - 1]
    )


def test_a_point_of_which_nothing_else_is_known_is_not_checked() -> None:
    assert errors([point(2, 4, 5.0)]) == []


def test_with_a_known_link_the_ring_is_calculated() -> None:
    assert len(errors([point(2, 4, 5.0, link=LINK)])) == 1


def test_one_gpu_and_points_under_flows_are_not_checked() -> None:
    jammed = replace(point(2, 4, 9.0, curve=CURVE), background_flows=2)
    alone = point(1, 1, 3.5)
    assert check_points(profile(rack=[jammed], machine=[alone])) == ()


def test_another_rank_order_is_predicted_from_its_own_curve() -> None:
    crossed = point(2, 4, 8.0, curve=[reduced(400, 6.0)], order="interleaved")
    assert errors([crossed, point(2, 4, 5.0, curve=CURVE)])[0] == errors([crossed])[0]


def test_the_place_that_gave_the_contention_factor_is_not_held_out() -> None:
    points = [
        point(2, 4, 5.0, curve=CURVE, order="interleaved"),
        point(2, 4, 5.0, curve=CURVE),
        point(3, 4, 5.0),
    ]
    held_out = [check.point for check in check_held_out(profile(rack=points, compute=STRETCHED))]
    assert held_out == [points[2]]
    assert calibration_point(profile(rack=points)) is points[1]


def test_with_its_place_held_out_not_even_the_curve_of_a_point_counts() -> None:
    slow = [reduced(100, 10.0), reduced(400, 10.0)]
    points = [point(2, 4, 5.0, curve=CURVE), point(4, 4, 40.0, curve=slow)]
    known, unknown = (check(profile(rack=points))[1] for check in (check_points, check_held_out))
    assert (known.held_out, unknown.held_out) == (False, True)
    # Two buckets of 10 s each; of the place itself nothing tells how slow it is.
    assert known.prediction.iteration_s > 20.0
    assert unknown.prediction == predict(
        profile(rack=points[:1]), shape_of("rack", points[1], profile().env.gpu_type)
    )


def test_what_was_measured_there_under_flows_or_in_another_rank_order_is_held_out_with_its_place() -> None:
    others = [
        replace(point(2, 4, 9.0, curve=CURVE), background_flows=2),
        point(2, 4, 8.0, curve=CURVE, order="interleaved"),
    ]
    assert check_held_out(profile(rack=[point(2, 4, 5.0, curve=CURVE), *others])) == ()


@pytest.mark.parametrize(
    ("tier", "nodes", "racks", "expected"),
    [
        ("machine", 1, None, ()),
        ("rack", 4, None, (4,)),
        ("network", 5, None, (3, 2)),
        ("network", 5, 3, (2, 2, 1)),
    ],
)
def test_the_shape_of_a_point_is_that_of_its_tier(
    tier: str, nodes: int, racks: int | None, expected: tuple[int, ...]
) -> None:
    shape = shape_of(tier, point(nodes, 2, racks=racks, link=LINK), "v100")
    assert (shape.machines, shape.racks, shape.gpu_types) == ((2,) * nodes, expected, ("v100",))
    assert shape.rings[-1].link.bandwidth_bps == LINK.bandwidth_bps


@given(st.integers(1, 8), st.integers(1, 8), st.floats(1e8, 1e11), st.floats(4.0, 100.0))
def test_the_shape_of_a_point_is_predicted_as_measured(
    nodes: int, per_node: int, rate: float, iteration_s: float
) -> None:
    if nodes * per_node == 1:
        return
    measured = point(nodes, per_node, iteration_s, link=PointLink(rate, 1e-5))
    tier = "machine" if nodes == 1 else "rack"
    whole = profile(machine=[measured]) if nodes == 1 else profile(rack=[measured])
    prediction = predict(whole, shape_of(tier, measured, None))
    assert (prediction.method, prediction.iteration_s) == ("measured", iteration_s)


def trusted(held_out: Sequence[float] | None = None) -> Profile:
    return add_trust(profile(rack=[point(2, 4, 4.0, curve=CURVE), point(4, 4, 8.0)]), held_out)


def test_a_fit_has_the_errors_of_its_points_and_the_sizes_of_its_curves() -> None:
    fit = trusted().fit
    assert fit is not None
    # The curve of 8 GPUs takes 15/14 as long on 16: buckets done at 1.5 + 15/14 and 15/7 later, and the step.
    error = 1 - (1.5 + 3 * 15 / 14 + 0.5) / 8
    assert fit.residuals == pytest.approx((0.25, error))
    # Held out, 4 machines are the same, from the curve of 2. 2 machines know only the 8 s of 4: 4.5 s exposed
    # and 1.5 s of window are 6 s, so 5.6 s on 8 GPUs instead of 16, of which 4.1 s are exposed: 7.6 s of 4.
    assert (fit.held_out_mape, fit.held_out_max) == pytest.approx(((0.9 + error) / 2, 0.9))
    assert (fit.form, fit.valid_bytes) == ("replay", (100, 400))


def test_held_out_errors_may_come_from_elsewhere_and_are_flagged_above_a_tenth() -> None:
    calm, wild = trusted([0.02, -0.04]), trusted([0.02, -0.3])
    assert calm.fit is not None
    assert calm.fit.held_out_mape == pytest.approx(0.03)
    assert calm.fit.held_out_max == 0.04
    known = "iterations are mispredicted by up to 25.0 %, from all-reduces of the same place"
    assert calm.quality == Quality(flags=(known,))
    assert wild.quality == Quality(
        flags=(known, "held-out iterations are mispredicted by up to 30.0 %, 16.0 % on average")
    )


def test_an_error_of_the_only_run_on_several_gpus_is_flagged_and_not_called_held_out() -> None:
    only = add_trust(
        profile(rack=[point(2, 4, 4.0, curve=CURVE)], compute=replace(COMPUTE, contention_factor=1.0))
    )
    assert only.fit is not None
    assert (only.fit.held_out_mape, only.fit.held_out_max) == (None, None)
    assert only.quality == Quality(
        flags=("the only run on several GPUs is mispredicted by 25.0 %, from its own all-reduces",)
    )


def test_flags_that_were_there_stay() -> None:
    flagged = replace(profile(rack=[point(2, 4, 4.0, curve=CURVE)]), quality=Quality(0.1, flags=("busy",)))
    quality = add_trust(flagged, [0.5]).quality
    assert quality is not None
    assert quality.foreign_cpu_fraction == 0.1
    assert quality.flags[0] == "busy"
    assert len(quality.flags) == 3


@pytest.mark.parametrize(("far_s", "flags"), [(4.0, 1), (4.9, 0), (6.0, 0)])
def test_as_many_gpus_that_are_faster_farther_apart_are_flagged(far_s: float, flags: int) -> None:
    quality = add_trust(profile(machine=[point(1, 4, 5.0)], rack=[point(4, 1, far_s)]), []).quality
    assert len(quality.flags if quality else ()) == flags


def test_nothing_to_check_gives_no_fit() -> None:
    assert add_trust(profile()) == profile()
