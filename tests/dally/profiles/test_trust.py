"""What a profile says of its own predictions."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.profiles.checks import calibration_point, check_points, shape_of
from dally.profiles.iteration import predict
from dally.profiles.schema import Compute, Point, PointLink, Profile, Quality
from dally.profiles.trust import add_trust
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
    # 2 machines: 1.5 s exposed + 1.5 s window = 3 s, so 4.5 s on 4, of which 3 s are exposed: 6.5 s.
    # 4 machines: 2 s exposed + 1.5 s window = 3.5 s, so 7/3 s on 2, of which 7/3 - 1.5 s are exposed.
    assert errors([point(2, 4, 5.0), point(4, 4, 5.5)]) == pytest.approx(
        [(3.5 + 7 / 3 - 1.5) / 5 - 1, 6.5 / 5.5 - 1]
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


def test_the_point_that_gave_the_contention_factor_is_not_held_out() -> None:
    points = [
        point(2, 4, 5.0, curve=CURVE, order="interleaved"),
        point(2, 4, 5.0, curve=CURVE),
        point(3, 4, 5.0),
    ]
    held_out = [check.held_out for check in check_points(profile(rack=points, compute=STRETCHED))]
    assert held_out == [True, False, True]
    assert calibration_point(profile(rack=points)) is points[1]
    assert all(check.held_out for check in check_points(profile(rack=points)))


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
    # The curve of 2 machines takes 1.5 times as long on 4: buckets done at 3 and 6, step: 6.5 s of 8.
    assert fit.residuals == pytest.approx((0.25, 1 - 6.5 / 8))
    assert (fit.held_out_mape, fit.held_out_max) == pytest.approx((0.21875, 0.25))
    assert (fit.form, fit.valid_bytes) == ("replay", (100, 400))


def test_held_out_errors_may_come_from_elsewhere_and_are_flagged_above_a_tenth() -> None:
    calm, wild = trusted([0.02, -0.04]), trusted([0.02, -0.3])
    assert calm.fit is not None
    assert calm.fit.held_out_mape == pytest.approx(0.03)
    assert calm.fit.held_out_max == 0.04
    assert calm.quality is None
    assert wild.quality == Quality(
        flags=("held-out iterations are mispredicted by up to 30.0%, 16.0% on average",)
    )


def test_flags_that_were_there_stay() -> None:
    flagged = replace(profile(rack=[point(2, 4, 4.0, curve=CURVE)]), quality=Quality(0.1, flags=("busy",)))
    quality = add_trust(flagged, [0.5]).quality
    assert quality is not None
    assert quality.foreign_cpu_fraction == 0.1
    assert quality.flags[0] == "busy"
    assert len(quality.flags) == 2


@pytest.mark.parametrize(("far_s", "flags"), [(4.0, 1), (4.9, 0), (6.0, 0)])
def test_as_many_gpus_that_are_faster_farther_apart_are_flagged(far_s: float, flags: int) -> None:
    quality = add_trust(profile(machine=[point(1, 4, 5.0)], rack=[point(4, 1, far_s)]), []).quality
    assert len(quality.flags if quality else ()) == flags


def test_nothing_to_check_gives_no_fit() -> None:
    assert add_trust(profile()) == profile()
