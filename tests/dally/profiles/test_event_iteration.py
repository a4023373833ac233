import json
from dataclasses import replace
from math import inf

import pytest

from dally.cluster.topology import Allocation, Link, Machine, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology
from dally.errors import InputError
from dally.jobs.job import Job
from dally.jobs.parallelism import Axis
from dally.jobs.training_plan import TrainingPlan
from dally.profiles.allreduce import HEADERS
from dally.profiles.collectives import CollectiveKind
from dally.profiles.contention import SharedLinks
from dally.profiles.costs import CostModel
from dally.profiles.event_iteration import price_events
from dally.profiles.event_replay import Transfer, replay_s
from dally.profiles.events import CollectiveCurve, CollectiveTime, Event
from dally.profiles.files import ProfileSet, format_profile, parse_profile
from dally.profiles.iteration import Prediction, predict
from dally.profiles.parallel.rank_placement import RankPlacer
from dally.profiles.schema import (
    Compute,
    Env,
    Model,
    Point,
    PointShape,
    Profile,
    ProfileMode,
    Provenance,
    StageCompute,
    Timing,
)
from dally.profiles.stand_ins import at_speed

MB = 1_000_000
HOST_BPS, RACK_BPS = 8e6, 2e6
"""A host's link carries a megabyte in a second, a rack's a quarter."""

TENSOR = Event(CollectiveKind.ALL_REDUCE, MB // 2, Axis.TENSOR, 2, 1, 1.0, 1.0)
DATA = Event(CollectiveKind.ALL_REDUCE, MB, Axis.DATA, 2, 2, 1.5)


def cluster() -> Topology:
    """Two racks of two machines with four GPUs; what is inside machines takes no time."""
    attached = [
        Attached(Machine(f"n{rack}{number}", 4, "", Link(1e15, 0.0)), f"r{rack}", Link(HOST_BPS, 0.0))
        for rack in range(2)
        for number in range(2)
    ]
    switches = [Switch("top", None), *(Switch(f"r{rack}", "top", Link(RACK_BPS, 0.0)) for rack in range(2))]
    return build_topology("test", attached, switches)


def profile(*events: Event, plan: str = "tp=2,dp=2", curves: tuple[CollectiveCurve, ...] = ()) -> Profile:
    return Profile(
        schema=2,
        provenance=Provenance(ProfileMode.NCCL, "test", "own", "dally", "2026-01-01T00:00:00+00:00"),
        env=Env(),
        model=Model("m", None, None, None, None, None, (), None),
        compute=Compute(None, 2.0, 0.25, None, None),
        tiers={},
        plan=plan,
        events=events or (TENSOR, DATA),
        curves=curves,
    )


TOPOLOGY = cluster()


def predicted(known: Profile, *place: tuple[int, int], stretch: float = 1.0) -> Prediction:
    allocation: Allocation = place
    shape = TOPOLOGY.shape(allocation)
    return predict(known, shape, stretch, ranks=RankPlacer(TOPOLOGY).place(allocation))


@pytest.mark.parametrize(
    ("place", "wait_s", "sent"),
    [
        (((0, 4),), 0.0, ()),
        # Data pairs leave the machines: each of two sends a megabyte over the one link, 0.5 s are hidden.
        (((0, 2), (1, 2)), 2 * HEADERS - 0.5, (2 * MB,)),
        # The same over the links of racks.
        (((0, 2), (2, 2)), 8 * HEADERS - 0.5, (2 * MB, 2 * MB)),
        # Data pairs leave the machines: two send a megabyte each over the one link, and 0.5 s are hidden.
        # the machine counts that sends most.
        (((0, 1), (1, 1), (2, 2)), 8.5 * HEADERS - 0.5, (2.5 * MB, 2 * MB)),
    ],
)
def test_groups_share_the_links_that_they_cross(
    place: Allocation, wait_s: float, sent: tuple[float, ...]
) -> None:
    found = predicted(profile(), *place)
    assert found.exposed_s == pytest.approx(wait_s, abs=1e-6)
    assert found.sent_bytes == pytest.approx([size * HEADERS for size in sent])
    assert (found.method, found.extrapolated) == ("replay", True)


@pytest.mark.parametrize(("by_gloo", "held"), [(True, 0.8), (False, 1.0)])
def test_the_kernel_holds_less_of_a_message_than_nccl_does(by_gloo: bool, held: float) -> None:
    message = Event(CollectiveKind.SEND, 3_495_253, Axis.PIPELINE, 2, 1, 0.0, 0.0, stage=0, to=1)
    place = ((0, 1), (1, 1))
    ranks = RankPlacer(TOPOLOGY).place(place)
    (price,) = price_events([message], (), TOPOLOGY.shape(place), ranks, by_gloo=by_gloo)
    assert price.held == pytest.approx(held, abs=1e-6)


def test_an_iteration_is_the_replay_of_its_events() -> None:
    found = predicted(profile(), (0, 1), (1, 1), (2, 2))
    tensor_s, data_s = 0.5 * HEADERS, 8 * HEADERS
    transfers = [Transfer(1.0, 1.0, tensor_s), Transfer(1.5, inf, data_s)]
    assert found.iteration_s == pytest.approx(replay_s(transfers, 2.0) + 0.25, abs=1e-6)
    assert found.comm_s == pytest.approx(tensor_s + data_s, abs=1e-6)


@pytest.mark.parametrize(
    ("collective", "sent"),
    [
        (CollectiveKind.ALL_REDUCE, 2 * 3 / 4),
        (CollectiveKind.ALL_GATHER, 3 / 4),
        (CollectiveKind.REDUCE_SCATTER, 3 / 4),
        (CollectiveKind.ALL_TO_ALL, 2 * 2 / 4),  # of each of two ranks here, to each of two there
        (CollectiveKind.SEND, 1),  # from the second rank to the third, and not around
    ],
)
def test_each_collective_sends_its_part_of_the_whole(collective: CollectiveKind, sent: float) -> None:
    event = Event(collective, MB, Axis.EXPERT, 4, 1, 1.0, 1.0)
    found = predicted(profile(event, plan="dp=4,ep=4"), (0, 2), (1, 2))
    assert found.sent_bytes == pytest.approx([sent * MB * HEADERS])
    assert found.exposed_s == pytest.approx(sent * HEADERS, abs=1e-6)


def test_more_gpus_are_more_replicas_and_what_lies_outside_of_them_moves_out() -> None:
    pipeline = Event(CollectiveKind.SEND, MB, Axis.PIPELINE, 2, 4, 1.0, 1.0)
    known = profile(TENSOR, replace(DATA, ready_s=1.0), pipeline, plan="tp=2,dp=2,pp=2")
    found = predicted(known, (0, 4), (1, 4), (2, 4), (3, 4))
    # Of two stages on two machines each, all four replicas' pairs send to the next one, over racks.
    assert found.sent_bytes is not None
    assert found.sent_bytes[1] == pytest.approx(8 * MB * HEADERS)
    # Rings of four with two ranks on each machine: 2 * 3/4 of a megabyte, once for each of the two rings.
    data_only = predicted(profile(plan="tp=2,dp=2"), (0, 4), (1, 4))
    assert data_only.sent_bytes == pytest.approx([2 * 1.5 * MB * HEADERS])
    assert "recorded on 4 GPUs, not 8" in data_only.note


def test_one_replica_has_no_gradients_to_reduce() -> None:
    assert predicted(profile(), (0, 1), (1, 1)).sent_bytes == pytest.approx([0.5 * MB * HEADERS])


def test_where_replicas_do_not_come_out_even_all_communicate_with_all() -> None:
    found = predicted(profile(), (0, 2), (1, 1))
    assert found.sent_bytes == pytest.approx([1.5 * MB * 4 / 3 * HEADERS])


def test_what_was_measured_between_ranks_that_lie_so_counts_before_the_links() -> None:
    times = (CollectiveTime(MB // 2, 3.0, 9),)
    curve = CollectiveCurve(CollectiveKind.ALL_REDUCE, 2, 1, "machine", None, times)
    measured = predicted(profile(TENSOR, curves=(curve,)), (0, 4))
    assert measured.exposed_s == pytest.approx(3.0)
    assert (measured.note, measured.extrapolated) == ("", False)
    elsewhere = replace(curve, machines=2, tier="rack", bandwidth_bps=HOST_BPS)
    over = (DATA, replace(TENSOR, size=4, stride=1, ready_s=1.5, needed_s=1.5))
    assert predicted(profile(*over, curves=(elsewhere,)), (0, 2), (1, 2)).note


def test_a_measured_step_counts_and_others_stretch_it() -> None:
    point = Point(PointShape(2, 2, None), None, (), Timing(5.0, None, None, 9), None, None)
    known = replace(profile(), tiers={"rack": (point,)})
    found = predicted(known, (0, 2), (1, 2))
    assert (found.iteration_s, found.method, found.extrapolated) == (5.0, "measured", False)
    assert predicted(known, (0, 2), (1, 2), stretch=2.0).iteration_s == pytest.approx(5.0 + 2 * HEADERS)


def test_jobs_on_one_link_slow_each_other_by_what_their_axes_send() -> None:
    """Two pairs of machines share the racks' links; a job inside a rack is in nobody's way."""
    costs = CostModel(TOPOLOGY, ProfileSet("test", (profile(),)))
    links = SharedLinks(costs)
    jobs = [Job(f"j{number}", 0.0, 4, 100.0, model="m") for number in range(3)]
    links.start(jobs[0], ((0, 2), (2, 2)))
    links.start(jobs[1], ((1, 2), (3, 2)))
    stretched = dict(links.changes())
    assert set(stretched) == {"j0", "j1"}
    alone = costs.cost(jobs[0], ((0, 2), (2, 2)))
    assert 1.5 < stretched["j0"].slowdown / alone.slowdown < 2.0
    links.stop("j1")
    assert dict(links.changes())["j0"] == alone
    links.start(jobs[2], ((1, 4),))
    assert links.changes() == []


def test_a_gpu_twice_as_fast_computes_in_half_the_time_and_sends_as_much() -> None:
    known = profile(replace(TENSOR, needed_s=1.5))
    faster = at_speed(known, 2.0)
    (event,) = faster.events
    assert (event.ready_s, event.needed_s, faster.compute.total_s) == (0.5, 0.75, 1.125)
    place = (0, 1), (1, 1), (2, 2)
    assert predicted(faster, *place).comm_s == pytest.approx(predicted(known, *place).comm_s)


def test_half_the_local_batch_sends_half_the_activations_and_all_gradients() -> None:
    place: Allocation = ((0, 1), (1, 1), (2, 2))
    shape, ranks = TOPOLOGY.shape(place), RankPlacer(TOPOLOGY).place(place)
    found = predict(profile(), shape, batch=0.5, ranks=ranks)
    assert found.sent_bytes == pytest.approx([2.25 * MB * HEADERS, 2 * MB * HEADERS])
    assert found.iteration_s - found.exposed_s == pytest.approx(2.25 / 2)


def test_the_closest_place_is_the_best_one() -> None:
    costs = CostModel(TOPOLOGY, ProfileSet("test", (profile(),)))
    job = Job("j", 0.0, 4, 100.0, model="m")
    places: list[Allocation] = [((0, 4),), ((0, 2), (1, 2)), ((0, 2), (2, 2))]
    near, rack, far = (costs.cost(job, place).slowdown for place in places)
    assert near == 1.0 < rack < far


def test_a_recorded_plan_counts_before_what_is_calculated_of_it() -> None:
    costs = CostModel(TOPOLOGY, ProfileSet("test", (profile(),)))
    plans = ("tp=2,sequence=128", "tp=4,sequence=128")
    jobs = [Job("j", 0.0, 4, 100.0, model="m", batch=8, plan=TrainingPlan.parse(plan, 4)) for plan in plans]
    assert costs.plan_gap(jobs[0]) is None
    assert costs.plan_gap(jobs[1]), "it goes by its profile, too, but as the model's shape is unknown"
    assert costs.cost(jobs[0], ((0, 2), (2, 2))).slowdown > 1


def test_of_plans_as_large_a_job_gets_its_own() -> None:
    known = tuple(
        profile(event, plan=plan)
        for event, plan in ((replace(DATA, size=4, stride=1), "dp=4"), (TENSOR, "tp=2,dp=2"))
    )
    costs = CostModel(TOPOLOGY, ProfileSet("test", known))
    place: Allocation = ((0, 2), (2, 2))
    for plan, waits in (("tp=2,sequence=128", False), ("dp=4,sequence=128", True)):
        job = Job("j", 0.0, 4, 100.0, model="m", batch=8, plan=TrainingPlan.parse(plan, 4))
        assert (costs.cost(job, place).exposed > 0.1) is waits


def test_of_precisions_of_one_plan_a_job_gets_its_own() -> None:
    known = []
    for precision, size in (("bf16", 1), ("fp8", 10_000_000_000)):
        one = profile(replace(DATA, size=4, stride=1, bytes=size), plan="dp=4")
        known.append(replace(one, model=replace(one.model, precision=precision)))
    costs = CostModel(TOPOLOGY, ProfileSet("test", tuple(known)))
    for precision, waits in (("bf16", False), ("fp8", True)):
        plan = TrainingPlan.parse(f"dp=4,sequence=128,precision={precision}", 4)
        job = Job("j", 0.0, 4, 100.0, model="m", batch=8, plan=plan)
        assert (costs.cost(job, ((0, 2), (2, 2))).exposed > 0.1) is waits


def test_a_record_of_another_precision_does_not_count_before_a_plan() -> None:
    one = profile(replace(DATA, size=4, stride=1), plan="dp=4")
    known = replace(one, model=replace(one.model, precision="bf16"))
    costs = CostModel(TOPOLOGY, ProfileSet("test", (known,)))
    for precision, recorded in (("bf16", True), ("fp8", False)):
        plan = TrainingPlan.parse(f"dp=4,sequence=128,precision={precision}", 4)
        job = Job("j", 0.0, 4, 100.0, model="m", batch=8, plan=plan)
        assert (costs.plan_gap(job) is None) is recorded


def test_a_profile_with_events_is_read_as_it_was_written() -> None:
    curve = CollectiveCurve(CollectiveKind.ALL_REDUCE, 2, 1, "machine", None, (CollectiveTime(5, 1.0, 2),))
    known = profile(curves=(curve,))
    assert parse_profile(format_profile(known), "again") == known


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 1}, "schema is 1, must be 2 as it has events"),
        ({"plan": "tp=3"}, "events[0] has size 2 and stride 1, which do not divide 3 ranks"),
        ({"plan": None}, "plan and events belong together"),
        ({"events": [], "schema": 1}, "plan and events belong together"),
    ],
)
def test_wrong_events_are_one_line(change: dict[str, object], said: str) -> None:
    data = json.loads(format_profile(profile()))
    with pytest.raises(InputError) as error:
        parse_profile(json.dumps({**data, **change}), "x.json")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bytes": 0}, "events[0].bytes is 0, must be positive"),
        ({"size": 1}, "events[0].size is 1, must be 2 or more"),
        ({"needed_s": 0.5}, "events[0].needed_s is 0.5, must not be before ready_s 1"),
        ({"collective": "receive"}, "events[0].collective is receive, which sends nothing"),
        ({"ready_s": 9.0, "needed_s": 9.0}, "events are not sorted by ready_s"),
    ],
)
def test_a_wrong_event_is_named(change: dict[str, object], said: str) -> None:
    data = json.loads(format_profile(profile()))
    data["events"][0].update(change)
    with pytest.raises(InputError) as error:
        parse_profile(json.dumps(data), "x.json")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("order", "shared"),
    [((0, 2, 1, 3), 2), ((0, 1, 2, 3), 0.25), ((0, 2, 3, 1), 1)],
    ids=["both leave the first rack", "neither leaves its rack", "each leaves another rack"],
)
def test_messages_between_different_stages_share_the_link_out_of_a_rack(
    order: tuple[int, ...], shared: float
) -> None:
    first = Event(CollectiveKind.SEND, MB, Axis.PIPELINE, 4, 1, 0.0, 0.0, stage=0, to=1)
    known = replace(
        profile(),
        plan="pp=4",
        events=(first, replace(first, stage=2, to=3)),
        compute=Compute(None, 1.0, 0.0, None, None, stages=(StageCompute(1.0, 0.0),) * 4),
    )
    place = tuple((machine, 1) for machine in range(4))
    ranks = RankPlacer(TOPOLOGY, order).place(place)
    step_s = predict(known, TOPOLOGY.shape(place), ranks=ranks).iteration_s
    assert step_s == pytest.approx(1 + shared * 4 * HEADERS)
