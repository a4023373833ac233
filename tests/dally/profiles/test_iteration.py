from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.cluster.topology import Link, Machine, Ring, Shape
from dally.cluster.topology_build import Attached, Switch, build_topology
from dally.profiles.allreduce import curve_time_s, ring_factor, rings_time_s
from dally.profiles.iteration import buckets_s, predict, window_s
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
    Timing,
)

GBPS = 1e9
COMPUTE = Compute(fwd_s=1.0, bwd_s=2.0, step_s=0.5, window_s=1.5, contention_factor=None)
BUCKETS = (Bucket(100, 1.5), Bucket(300, 2.5))


def reduced(size_bytes: int, median_s: float) -> Reduced:
    return Reduced(size_bytes, median_s, None, None, None)


CURVE = (reduced(100, 1.0), reduced(300, 2.0), reduced(400, 3.0))


def point(
    nodes: int,
    per_node: int,
    iteration_s: float | None = None,
    curve: Sequence[Reduced] = (),
    link: PointLink | None = None,
    racks: int | None = None,
    order: str | None = "blocked",
) -> Point:
    timing = None if iteration_s is None else Timing(iteration_s, None, None, None)
    return Point(PointShape(nodes, per_node, order, racks), link, tuple(curve), timing, None, None)


def profile(
    rack: Sequence[Point] = (),
    machine: Sequence[Point] = (),
    network: Sequence[Point] = (),
    buckets: Sequence[Bucket] = BUCKETS,
    grad_bytes: int | None = 400,
    gpu_type: str | None = None,
    compute: Compute = COMPUTE,
    local_batch: int | None = None,
) -> Profile:
    return Profile(
        1,
        Provenance(ProfileMode.NCCL, "test", "none", "0", "2026-01-01T00:00:00Z"),
        Env(gpu_type=gpu_type),
        Model("m", None, None, grad_bytes, local_batch, None, tuple(buckets), None),
        compute,
        {"machine": tuple(machine), "rack": tuple(rack), "network": tuple(network)},
    )


def shape(*machines: int, bandwidth_bps: float = 10 * GBPS, latency_s: float = 0.0, level: int = 1) -> Shape:
    inside = Ring(max(machines), Link(100 * GBPS), 1)
    outside = Ring(len(machines), Link(bandwidth_bps, latency_s), 2)
    return Shape(
        level if len(machines) > 1 else 0,
        machines,
        (len(machines),) if len(machines) > 1 else (),
        tuple(ring for ring in (inside, outside) if ring.members > 1),
        ("v100",),
    )


def test_a_ring_of_4_sends_one_and_a_half_times_the_data() -> None:
    assert ring_factor(4) == 1.5
    assert ring_factor(1) == 0.0


def test_a_stage_takes_its_steps_latencies_and_its_bytes() -> None:
    ring = Ring(4, Link(8 * GBPS, 1e-3), 2)
    assert rings_time_s([ring], 1e9) == pytest.approx(6 * 2 * 1e-3 + 1.5 * 1.0)


def test_stages_inside_a_machine_carry_a_share_and_shared_uplinks_the_whole() -> None:
    slot, slots = Ring(4, Link(8 * GBPS), 1), Ring(2, Link(8 * GBPS), 1)
    slow_slots, uplinks, racks = (
        Ring(2, Link(GBPS), 1),
        Ring(2, Link(4 * GBPS), 2),
        Ring(2, Link(2 * GBPS), 2),
    )
    assert rings_time_s([slots, slot], 1e9) == pytest.approx(1.0), "the second sends half of 1.5 s, meanwhile"
    assert rings_time_s([slot, slow_slots], 1e9) == pytest.approx(2.0), "a quarter over an eighth of the rate"
    assert rings_time_s([slot, slots, uplinks, racks], 1e9) == pytest.approx(4.0)


def test_what_goes_to_other_racks_crosses_the_uplinks_of_the_machines_too() -> None:
    """A machine in each of two racks, two in each of two, and four in one, whose uplinks are the slowest."""
    machines, racks = Link(8 * GBPS), Link(80 * GBPS)
    alone = [Ring(1, machines, 2, 2), Ring(2, racks, 2)]
    assert rings_time_s(alone, 1e9) == pytest.approx(rings_time_s([Ring(2, machines, 2)], 1e9))
    pairs = [Ring(2, machines, 2, 4), Ring(2, racks, 2)]
    assert rings_time_s(pairs, 1e9) == pytest.approx(rings_time_s([Ring(4, machines, 2)], 1e9))


@given(st.floats(1e8, 1e12), st.floats(1e8, 1e12), st.integers(2, 3), st.integers(1, 3))
def test_farther_apart_is_never_faster(nic_bps: float, rack_bps: float, racks: int, each: int) -> None:
    """The same machines in one rack, and shared out over several."""
    topology = build_topology(
        "t",
        [
            Attached(Machine(f"{rack}-{place}", 8, "a", Link(1e13)), f"r{rack}", Link(nic_bps))
            for rack in range(racks)
            for place in range(racks * each)
        ],
        [Switch("core", None), *(Switch(f"r{rack}", "core", Link(rack_bps)) for rack in range(racks))],
    )
    near = topology.shape(tuple((place, 8) for place in range(racks * each)))
    far = topology.shape(
        tuple((rack * racks * each + place, 8) for rack in range(racks) for place in range(each))
    )
    assert rings_time_s(far.rings, 1e9) >= rings_time_s(near.rings, 1e9) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("size_bytes", "seconds"),
    [(50, 1.0), (100, 1.0), (200, 1.5), (300, 2.0), (350, 2.5), (400, 3.0), (600, 5.0)],
)
def test_a_curve_is_linear_between_sizes_flat_below_and_goes_on_above(
    size_bytes: int, seconds: float
) -> None:
    assert curve_time_s(CURVE, size_bytes) == pytest.approx(seconds)


def test_above_a_single_size_or_a_falling_end_time_grows_with_bytes() -> None:
    assert curve_time_s([reduced(100, 1.0)], 200) == pytest.approx(2.0)
    assert curve_time_s([reduced(50, 3.0), reduced(100, 1.0)], 200) == pytest.approx(2.0)


def test_buckets_are_reduced_one_after_another_from_when_they_are_ready() -> None:
    # ready 1.5, done 3.5; the second was ready at 2.5 but waits until 3.5, done 5.5; then the step.
    assert buckets_s(COMPUTE, BUCKETS, lambda _: 2.0) == pytest.approx(6.0)
    # 1.5 to 1.7 and 2.5 to 2.7: backward ends later, at 3.0.
    assert buckets_s(COMPUTE, BUCKETS, lambda _: 0.2) == pytest.approx(3.5)
    # the second is late: 2.5 to 3.25.
    assert buckets_s(COMPUTE, BUCKETS, lambda size: size / 400) == pytest.approx(3.75)


def test_contention_stretches_backward_and_the_ready_times_in_it() -> None:
    slowed = replace(COMPUTE, contention_factor=2.0)
    # backward ends at 1 + 4, buckets ready at 2 and 4; 4 + 2 is later than 5.
    assert buckets_s(slowed, BUCKETS, lambda _: 2.0) == pytest.approx(6.5)
    # window 3: of 5 s, 2 are exposed, on top of 1 + 4 + 0.5.
    assert window_s(slowed, 5.0) == pytest.approx(7.5)


def test_the_window_hides_a_constant_time() -> None:
    assert window_s(COMPUTE, 1.0) == pytest.approx(3.5)
    assert window_s(COMPUTE, 2.5) == pytest.approx(4.5)


def test_one_gpu_computes_only() -> None:
    prediction = predict(profile(), shape(1))
    assert (prediction.iteration_s, prediction.exposed_s) == (3.5, 0.0)
    assert (prediction.method, prediction.extrapolated, prediction.note) == ("compute", False, "")


def test_a_measured_shape_is_taken_as_measured() -> None:
    prediction = predict(profile(rack=[point(2, 4, 9.0)]), shape(4, 4))
    assert (prediction.iteration_s, prediction.exposed_s, prediction.method) == (9.0, 5.5, "measured")
    assert not prediction.extrapolated


def test_a_measured_shape_under_another_link_is_scaled_and_flagged() -> None:
    measured = profile(rack=[point(2, 4, 5.0, link=PointLink(10 * GBPS, None))], buckets=())
    assert predict(measured, shape(4, 4)).method == "measured"
    # 1.5 s exposed + 1.5 s window = 3 s of traffic, 30 s on a tenth of the bandwidth, 28.5 s exposed.
    slow = predict(measured, shape(4, 4, bandwidth_bps=1 * GBPS))
    assert slow.iteration_s == pytest.approx(3.5 + 28.5)
    assert slow.note == "measured on links of 10 Gb/s, scaled to 1 Gb/s"


def test_a_known_difference_of_latency_adds_to_each_step() -> None:
    link = PointLink(10 * GBPS, 0.01)
    measured = profile(rack=[point(2, 4, curve=[reduced(400, 2.0)], link=link)], buckets=())
    # 2(2-1) steps over 2 links each, 0.1 - 0.01 s more per link; 1.5 s of the time are hidden.
    far = predict(measured, shape(4, 4, latency_s=0.1))
    assert far.iteration_s == pytest.approx(3.5 + 2.0 + 4 * 0.09 - 1.5)


def test_buckets_are_replayed_over_the_curve_of_the_tier() -> None:
    prediction = predict(profile(rack=[point(2, 4, curve=CURVE)]), shape(4, 4))
    # 1.5 to 2.5, 2.5 to 4.5, step.
    assert (prediction.iteration_s, prediction.method) == (5.0, "replay")
    assert not prediction.extrapolated


def test_without_buckets_the_window_formula_uses_the_whole_gradients() -> None:
    prediction = predict(profile(rack=[point(2, 4, curve=CURVE)], buckets=()), shape(4, 4))
    assert (prediction.iteration_s, prediction.method) == (5.0, "window")


def test_sizes_outside_of_the_curve_are_flagged() -> None:
    prediction = predict(profile(rack=[point(2, 4, curve=CURVE[1:])]), shape(4, 4))
    assert prediction.extrapolated
    assert prediction.note == "all-reduce of 100 bytes outside of the measured 300 to 400"


def allreduce_of(known: Sequence[Point], asked: Shape) -> float:
    """Seconds of the one all-reduce of a profile whose compute hides nothing."""
    bare = replace(COMPUTE, window_s=0.0)
    return predict(profile(rack=known, buckets=(), compute=bare), asked).exposed_s


def swept(nodes: int, per_node: int, seconds: float) -> Point:
    return point(nodes, per_node, curve=[reduced(400, seconds)])


def test_more_machines_than_measured_scale_by_the_ring_factor_of_their_gpus() -> None:
    prediction = predict(profile(rack=[swept(2, 4, 2.0)], buckets=()), shape(4, 4, 4, 4))
    # 16 GPUs send 15/8 of the data where 8 sent 7/4; 1.5 s are hidden.
    assert prediction.iteration_s == pytest.approx(3.5 + 2.0 * 1.875 / 1.75 - 1.5)
    assert prediction.note == "GPUs spread 4+4+4+4 not measured, taken from 2x4"


def test_two_ranks_on_each_machine_are_a_ring_of_four() -> None:
    assert allreduce_of([swept(2, 1, 1.0)], shape(2, 2)) == pytest.approx(1.5)


def test_gpus_per_machine_between_two_measured_ones_mix_them() -> None:
    found = allreduce_of([swept(2, 2, 1.5), swept(2, 6, 11 / 6 * 3)], shape(4, 4))
    assert found == pytest.approx(1.75 * (1 / 2 + 3 / 2)), "by the ring factor, halfway between 1 and 3"


def test_uneven_machines_count_as_half_way_between_the_fullest_and_the_mean() -> None:
    points = [point(2, 2, 5.0), point(2, 4, 9.0)]
    prediction = predict(profile(rack=points), shape(4, 2))
    # 3.5 GPUs a machine. Exposed are 1.5 and 5.5 s, hidden 1.5 s, by rings of 4 and 8; this one has 6.
    comm_s = (3.0 / 1.5 / 4 + 7.0 / 1.75 * 3 / 4) * 10 / 6
    assert prediction.iteration_s == pytest.approx(3.5 + comm_s - 1.5)
    assert prediction.note == "GPUs spread 4+2 not measured, taken from 2x2 and 2x4"


def test_full_machines_are_not_taken_from_machines_with_one_gpu_where_full_ones_were_measured() -> None:
    """4 x 8 out of 2 x 8 and 4 x 1: as on 2 x 8, by the ring factor."""
    known = [swept(4, 1, 1.5), swept(2, 8, 6 * 1.875)]
    assert allreduce_of(known, shape(8, 8, 8, 8)) == pytest.approx(6 * ring_factor(32))


def test_how_time_grows_with_the_gpus_of_a_machine_comes_from_other_numbers_of_machines() -> None:
    """On two machines four times as many GPUs take 2 more, by the ring factor; on four so too."""
    known = [swept(2, 1, 1.0), swept(2, 4, 3 * 1.75), swept(4, 1, 2 * 1.5)]
    assert allreduce_of(known, shape(4, 4, 4, 4)) == pytest.approx((2 + 2) * 1.875)
    assert allreduce_of(known, shape(8, 8)) == pytest.approx(3 * 1.875), "no line goes on beyond 4 GPUs each"


def test_beyond_the_measured_number_of_machines_all_points_count() -> None:
    """Of 3 and, by the ring factor, 1 all-reduces: half the nearest, half the mean of both."""
    known = [swept(2, 1, 3.0), swept(3, 1, ring_factor(3))]
    found = allreduce_of(known, shape(1, 1, 1, 1))
    assert found == pytest.approx((0.5 * 1 + 0.5 * 2) * ring_factor(4))


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_what_was_measured_is_predicted_whatever_else_was(nodes: int) -> None:
    known = [swept(2, 1, 1.0), swept(2, 4, 4.0), swept(3, 4, 2.0), swept(5, 4, 7.0)]
    expected = {2: 4.0, 3: 2.0, 5: 7.0}[nodes]
    assert allreduce_of(known, shape(*(4,) * nodes)) == pytest.approx(expected)


NO_WINDOW = replace(COMPUTE, window_s=None)


def test_where_the_overlap_is_unknown_communication_and_compute_hide_most_of_each_other() -> None:
    """8.0 of the cube root of 3.5^3 + communication^3; twice the communication later."""
    known = profile(rack=[point(2, 1, 8.0)], buckets=(), grad_bytes=None, compute=NO_WINDOW)
    alone, beside = predict(known, shape(1, 1)), predict(known, shape(1, 1), stretch=2.0)
    assert alone.comm_s == pytest.approx((8.0**3 - 3.5**3) ** (1 / 3))
    assert beside.iteration_s == pytest.approx((3.5**3 + (2 * alone.comm_s) ** 3) ** (1 / 3))


def test_inside_a_machine_the_ring_has_as_many_members_as_gpus() -> None:
    prediction = predict(
        profile(machine=[point(1, 2, 5.0)], compute=replace(COMPUTE, window_s=0.0)), shape(8)
    )
    assert prediction.iteration_s == pytest.approx(3.5 + 1.5 * 1.75)


def test_measurements_under_the_nearest_link_are_taken() -> None:
    points = [point(2, 4, 5.0, link=PointLink(rate, None)) for rate in (1 * GBPS, 10 * GBPS)]
    points[0] = point(2, 4, 8.0, link=PointLink(1 * GBPS, None))
    assert predict(profile(rack=points), shape(4, 4)).iteration_s == 5.0
    assert predict(profile(rack=points), shape(4, 4, bandwidth_bps=GBPS)).iteration_s == 8.0


def test_points_under_background_flows_enter_no_prediction() -> None:
    jammed = [
        replace(each, background_flows=1) for each in (point(2, 4, 99.0, curve=CURVE), point(3, 4, 99.0))
    ]
    assert predict(profile(rack=jammed), shape(4, 4)) == predict(profile(), shape(4, 4))
    assert predict(profile(rack=[*jammed, point(2, 4, 5.0)]), shape(4, 4)).iteration_s == 5.0


def test_blocked_rank_order_is_preferred_and_another_one_flagged() -> None:
    mixed = [point(2, 4, 8.0, order="interleaved"), point(2, 4, 5.0)]
    assert predict(profile(rack=mixed), shape(4, 4)).iteration_s == 5.0
    other = predict(profile(rack=mixed[:1]), shape(4, 4))
    assert other.note == "measured in rank order interleaved"


def test_without_a_curve_the_links_are_calculated_and_that_is_said() -> None:
    prediction = predict(profile(buckets=(), grad_bytes=10**9), shape(1, 1, bandwidth_bps=8 * GBPS))
    assert prediction.iteration_s == pytest.approx(3.5)
    assert prediction.note == "no all-reduce measured for tier rack, calculated from the links"
    slow = predict(profile(buckets=(), grad_bytes=10**9), shape(1, 1, bandwidth_bps=0.8 * GBPS))
    assert slow.iteration_s == pytest.approx(3.5 + 10.0 - 1.5)


def test_several_racks_fall_back_on_measurements_in_one_rack() -> None:
    spread = replace(shape(4, 4, level=2), racks=(1, 1))
    prediction = predict(profile(rack=[point(2, 4, 5.0)], buckets=(), grad_bytes=None), spread)
    assert prediction.iteration_s == pytest.approx(5.0)
    assert prediction.note == "tier network not measured, taken from tier rack"


def test_racks_of_a_measurement_must_match() -> None:
    spread = replace(shape(4, 4, 4, level=2), racks=(2, 1))
    three = profile(network=[point(3, 4, 5.0, racks=3)], buckets=(), grad_bytes=None)
    assert predict(three, spread).note == "GPUs spread 4+4+4 over 2 racks not measured, taken from 3x4"
    two = profile(network=[point(3, 4, 5.0, racks=2)])
    assert predict(two, spread).method == "measured"


def test_with_nothing_known_compute_alone_is_predicted_and_said() -> None:
    prediction = predict(profile(buckets=(), grad_bytes=None), shape(4, 4))
    assert (prediction.iteration_s, prediction.method, prediction.extrapolated) == (3.5, "compute", True)
    assert prediction.note == "nothing known of its communication, none counted"


def test_another_gpu_type_is_flagged() -> None:
    assert predict(profile(gpu_type="k80"), shape(1)).note == "measured on GPU type k80, not v100"
    assert predict(profile(gpu_type="v100"), shape(1)).note == ""


def test_a_congested_topology_slows_an_analytic_prediction_down() -> None:
    def time_s(rate: float) -> float:
        attached = [
            Attached(Machine(f"n{number}", 4, "v100", Link(100 * GBPS)), "s1", Link(rate))
            for number in (1, 2)
        ]
        topology = build_topology("t", attached, [Switch("s1", None)])
        big = profile(buckets=(Bucket(10**9, 1.5),), grad_bytes=10**9)
        return predict(big, topology.shape(((0, 4), (1, 4)))).iteration_s

    # 1.5 s ready, then 8 Gbit over 10 or 1 Gb/s, while 0.12 s pass inside; and the step.
    assert time_s(10 * GBPS) == pytest.approx(3.5)
    assert time_s(1 * GBPS) == pytest.approx(1.5 + 8.0 + 0.5)


RATES = st.floats(1e8, 1e12)
SIZES = st.integers(1, 10**10)
RINGS = st.lists(
    st.builds(Ring, st.integers(2, 64), st.builds(Link, RATES, st.floats(0, 1e-3)), st.sampled_from([1, 2])),
    min_size=1,
    max_size=4,
)
READY = st.lists(st.tuples(SIZES, st.floats(0, 3.0)), min_size=1, max_size=8).map(
    lambda pairs: tuple(Bucket(size, ready) for size, ready in sorted(pairs, key=lambda pair: pair[1]))
)


@given(RINGS, SIZES, SIZES)
def test_more_bytes_never_take_less_time(rings: list[Ring], one: int, two: int) -> None:
    small, large = sorted((one, two))
    assert rings_time_s(rings, small) <= rings_time_s(rings, large)


@given(RINGS, SIZES, st.floats(0.01, 1.0))
def test_slower_links_never_take_less_time(rings: list[Ring], size: int, share: float) -> None:
    slowed = [
        replace(ring, link=Link(ring.link.bandwidth_bps * share, ring.link.latency_s)) for ring in rings
    ]
    assert rings_time_s(slowed, size) >= rings_time_s(rings, size)


@given(READY, st.floats(0, 10), st.floats(0, 10))
def test_a_slower_all_reduce_never_shortens_an_iteration_nor_does_any_beat_compute(
    buckets: tuple[Bucket, ...], one: float, two: float
) -> None:
    def iteration_s(allreduce_s: float) -> float:
        return buckets_s(COMPUTE, buckets, lambda _: allreduce_s)

    fast, slow = map(iteration_s, sorted((one, two)))
    assert COMPUTE.total_s <= fast <= slow


@given(READY, st.floats(1e7, 1e12), st.floats(0.01, 1.0), st.booleans())
def test_a_congested_link_never_speeds_a_prediction_up(
    buckets: tuple[Bucket, ...], rate: float, share: float, measured: bool
) -> None:
    points = [point(2, 4, curve=CURVE, link=PointLink(10 * GBPS, None))] if measured else []
    model = profile(rack=points, buckets=buckets)
    free = predict(model, shape(4, 4, bandwidth_bps=rate))
    jammed = predict(model, shape(4, 4, bandwidth_bps=rate * share))
    assert jammed.iteration_s >= free.iteration_s * (1 - 1e-9) or share > 0.98


@given(st.lists(st.integers(1, 8), min_size=1, max_size=12), READY, st.integers(0, 2))
def test_something_is_always_predicted(machines: list[int], buckets: tuple[Bucket, ...], known: int) -> None:
    tiers = [point(2, 4, 9.0, curve=CURVE), point(3, 1, 4.0)][:known]
    spread = shape(*sorted(machines, reverse=True))
    prediction = predict(profile(rack=tiers, buckets=buckets), spread)
    assert prediction.iteration_s >= COMPUTE.total_s
    assert prediction.extrapolated == bool(prediction.note)


def test_communication_is_counted_whether_compute_hides_it_or_not() -> None:
    alone = predict(profile(rack=[point(2, 1, curve=CURVE)]), shape(1, 1))
    assert (alone.iteration_s, alone.comm_s, alone.reduced_bytes) == (5.0, 3.0, 400)
    assert predict(profile(), shape(1)).comm_s == 0


def test_stretched_communication_lengthens_every_all_reduce() -> None:
    beside = predict(profile(rack=[point(2, 1, curve=CURVE)]), shape(1, 1), stretch=2.0)
    assert (beside.iteration_s, beside.comm_s, beside.exposed_s) == (8.0, 6.0, 4.5)


def test_a_measured_iteration_gains_what_its_communication_gains() -> None:
    by_curve = profile(rack=[point(2, 1, 5.2, CURVE)])
    by_window = profile(rack=[point(2, 1, 4.0)])
    assert predict(by_curve, shape(1, 1), stretch=2.0).iteration_s == pytest.approx(5.2 + 3.0)
    # 0.5 s exposed and 1.5 s hidden are 2 s; twice that are 2 s more.
    assert predict(by_window, shape(1, 1), stretch=2.0).iteration_s == pytest.approx(4.0 + 2.0)


@given(
    READY,
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.sampled_from([(), (point(2, 2, 5.0),), (point(2, 2, curve=CURVE),), (point(2, 2, 5.0, CURVE),)]),
    st.floats(1, 20),
    st.floats(1, 20),
)
def test_a_greater_stretch_never_shortens_an_iteration_nor_the_part_it_communicates(
    buckets: tuple[Bucket, ...], machines: list[int], measured: Sequence[Point], one: float, two: float
) -> None:
    known = profile(rack=measured, buckets=buckets)
    low, high = (predict(known, shape(*machines), stretch) for stretch in sorted((one, two)))
    assert low.iteration_s <= high.iteration_s * (1 + 1e-9)
    assert low.comm_s / low.iteration_s <= high.comm_s / high.iteration_s * (1 + 1e-9)
    assert 0 <= low.comm_s <= low.iteration_s
