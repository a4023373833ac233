"""Links shared by hand, what must hold of any sharing, and which jobs of a cluster share at all."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.cluster import load_cluster, scaled_links
from dally.cluster.topology import Allocation
from dally.jobs.job import Job, JobKind
from dally.profiles.contention import Flow, SharedLinks, crossed_links, fair_share_bps, stretches
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.profiles.schema import Compute, Model, Profile
from dally.testing.worlds import racks

ONE = {0: 100.0}
TOPOLOGY = scaled_links(racks([[4, 4], [4, 4], [4, 4]]), 0.001)
"""Three racks of two machines: 200 Mb/s up from a machine, 100 Mb/s up from a rack."""


def flow(compute_s: float, comm_s: float, demand_bps: float = 100.0, links: tuple[int, ...] = (0,)) -> Flow:
    """A job that computes, then communicates."""
    return Flow(dict.fromkeys(links, demand_bps), comm_s, lambda stretch: compute_s)


def profile(name: str, compute_s: float, reduced_bytes: int) -> Profile:
    """A model that hides no communication."""
    model = Model(name, None, None, reduced_bytes, None, None, (), None)
    compute = Compute(None, compute_s, None, None, None)
    return replace(load_profiles("dally").profiles[0], model=model, compute=compute, tiers={})


TALKER = profile("talker", 1e-9, 10_000_000)
THINKER = profile("thinker", 1.0, 10_000_000)
PROFILES = ProfileSet("test", (TALKER, THINKER))


def job(name: str, model: str, gpus: int = 2) -> Job:
    return Job(name, 0.0, gpus, 1000.0, model=model)


def test_two_jobs_that_always_communicate_take_twice_as_long_and_three_three_times() -> None:
    for count in (1, 2, 3, 12):
        assert stretches([flow(0, 1)] * count, ONE) == pytest.approx([count] * count)


def test_two_equal_jobs_take_as_long_as_the_mean_value_analysis_of_their_closed_network_says() -> None:
    """A job finds the other one communicating as often as it would if alone: 1/4 of the time."""
    assert stretches([flow(3, 1)] * 2, ONE) == pytest.approx([1.25, 1.25])


def test_who_always_communicates_gets_what_the_other_leaves() -> None:
    always, rarely = stretches([flow(0, 1), flow(3, 1)], ONE)
    assert rarely == pytest.approx(2)
    sent = 1 / (3 + rarely)
    assert 1 / always == pytest.approx(1 - sent)


def test_jobs_for_which_there_is_room_do_not_slow_each_other() -> None:
    assert stretches([flow(0, 1, 40), flow(0, 1, 60)], ONE) == [1, 1]
    assert stretches([flow(0, 1, 20), flow(0, 1, 100)], ONE) == pytest.approx([1, 1.25])


def test_the_fair_share_is_the_level_at_which_the_link_is_full() -> None:
    assert fair_share_bps(100, []) == 100
    assert fair_share_bps(100, [(100, 1.0), (100, 1.0)]) == pytest.approx(100 / 3)
    assert fair_share_bps(100, [(100, 0.5)]) == pytest.approx(100 / 1.5)
    assert fair_share_bps(100, [(10, 1.0), (100, 1.0)]) == pytest.approx(45)
    assert fair_share_bps(100, [(10, 0.5)]) == pytest.approx(95)


def test_hidden_communication_that_no_longer_fits_into_the_iteration_comes_out() -> None:
    """Each communicates 0.6 s of each second, hidden; both together need 1.2 s."""
    hidden = Flow({0: 100.0}, 0.6, lambda stretch: max(0.0, 1 - 0.6 * stretch))
    assert stretches([hidden, hidden], ONE) == pytest.approx([2, 2], rel=1e-4)


FLOWS = st.lists(
    st.builds(
        flow,
        compute_s=st.sampled_from([0.0, 0.1, 1.0, 5.0]),
        comm_s=st.sampled_from([0.1, 1.0, 3.0]),
        demand_bps=st.sampled_from([10.0, 45.0, 83.0, 100.0]),
        links=st.sampled_from([(0,), (1,), (0, 1), (0, 2), (1, 2)]),
    ),
    min_size=2,
    max_size=11,
)
THREE = {0: 100.0, 1: 100.0, 2: 120.0}


@given(FLOWS)
def test_more_sharers_never_speed_a_job_up(flows: list[Flow]) -> None:
    fewer, more = stretches(flows[:-1], THREE), stretches(flows, THREE)
    assert all(many >= few * (1 - 1e-5) >= 1 - 1e-5 for few, many in zip(fewer, more[:-1], strict=True))


@given(FLOWS, st.randoms(use_true_random=False))
def test_the_order_of_the_jobs_does_not_matter(flows: list[Flow], random: Random) -> None:
    places = list(range(len(flows)))
    random.shuffle(places)
    found = stretches(flows, THREE)
    assert stretches([flows[place] for place in places], THREE) == [found[place] for place in places]


@given(FLOWS)
def test_no_link_carries_more_than_it_can_and_none_idles_while_somebody_always_wants_it(
    flows: list[Flow],
) -> None:
    flows = [replace(each, demands_bps={0: max(each.demands_bps.values())}) for each in flows]
    found = stretches(flows, ONE)
    sent_bps = sum(
        each.demands_bps[0] * each.comm_s / (each.idle_s(stretch) + each.comm_s * stretch)
        for each, stretch in zip(flows, found, strict=True)
    )
    assert sent_bps <= 102, "levels are those of the mean, which costs a little"
    if all(each.idle_s(1.0) == 0 for each in flows) and sum(each.demands_bps[0] for each in flows) >= 100:
        assert sent_bps == pytest.approx(100)


class TestSharedLinks:
    def test_rings_cross_the_uplinks_below_the_domain_that_holds_them(self) -> None:
        in_a_rack = crossed_links(TOPOLOGY, ((0, 1), (1, 1)))
        over_racks = crossed_links(TOPOLOGY, ((0, 1), (1, 1), (2, 1)))
        names = [[TOPOLOGY.domains[link].name for link in links] for links in (in_a_rack, over_racks)]
        assert names == [["r0m0", "r0m1"], ["r0m0", "r0m1", "r1m0", "r0", "r1"]]

    def test_two_jobs_over_the_same_uplink_take_turns_until_one_stops(self) -> None:
        links = shared(("a", "talker", ((0, 1), (2, 1))), ("b", "talker", ((1, 1), (3, 1))))
        assert slowdowns(links) == pytest.approx({"a": 2 * alone(0, 2), "b": 2 * alone(0, 2)}, rel=1e-3)
        assert slowdowns(links) == {}
        links.stop("a")
        assert slowdowns(links) == {"b": alone(0, 2)}

    def test_a_job_inside_a_machine_or_a_rack_of_its_own_or_without_a_profile_changes_nothing(self) -> None:
        links = shared(
            ("a", "talker", ((0, 1), (2, 1))),
            ("inside", "talker", ((0, 2),)),
            ("elsewhere", "talker", ((4, 1), (5, 1))),
            ("unknown", "unheard-of", ((1, 1), (3, 1))),
        )
        assert slowdowns(links) == {}

    def test_a_job_on_a_wide_link_gets_what_one_held_back_by_a_narrow_one_leaves(self) -> None:
        links = shared(("far", "talker", ((0, 1), (2, 1))), ("near", "talker", ((0, 1), (1, 1))))
        # Half of the machine's 200 Mb/s is left, and half of a rack's 100 Mb/s would have been no more.
        assert slowdowns(links) == pytest.approx({"near": 2 * alone(0, 1)}, rel=1e-3)

    def test_copies_of_a_forked_job_train_apart_and_send_nothing(self) -> None:
        links = shared(("a", "talker", ((0, 1), (2, 1))))
        copies = replace(job("b", "talker", 1), kind=JobKind.FORKED, max_copies=2)
        links.start(copies, ((1, 1), (3, 1)))
        assert slowdowns(links) == {}

    def test_thinking_jobs_meet_seldom(self) -> None:
        links = shared(("a", "thinker", ((0, 1), (2, 1))), ("b", "thinker", ((1, 1), (3, 1))))
        comm_s = 80e6 / 100e6
        iteration_s = 1 + comm_s * (1 + comm_s / (1 + comm_s))
        changed = dict(links.changes())
        assert changed["a"] == changed["b"]
        assert changed["a"].exposed == pytest.approx(1 - 1 / iteration_s, rel=1e-3)

    @given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5), st.booleans()), max_size=12))
    def test_paces_told_change_by_change_are_those_of_the_jobs_that_run(
        self, steps: list[tuple[int, int, bool]]
    ) -> None:
        links, running, told = SharedLinks(COSTS), dict[str, tuple[str, Allocation]](), dict[str, float]()
        for number, (machine, distance, stops) in enumerate(steps):
            if stops and running:
                name = next(iter(running))
                links.stop(name)
                del running[name]
                told.pop(name, None)
            else:
                pair = sorted({machine, (machine + distance) % 6})
                running[f"j{number}"] = "thinker" if distance % 2 else "talker", tuple((m, 1) for m in pair)
                links.start(job(f"j{number}", running[f"j{number}"][0]), running[f"j{number}"][1])
            told |= slowdowns(links)
        fresh = shared(*((name, model, place) for name, (model, place) in running.items()))
        assert {name: value for name, value in told.items() if not is_alone(running, name, value)} == {
            name: value for name, value in slowdowns(fresh).items() if not is_alone(running, name, value)
        }


def test_jobs_of_one_model_with_other_batches_are_other_jobs() -> None:
    """A large batch computes for longer, so it meets the others less often."""
    batched = replace(PROFILES.profiles[1], model=replace(THINKER.model, local_batch=8))
    costs = CostModel(TOPOLOGY, ProfileSet("test", (batched,)))
    place = ((0, 1), (2, 1))
    small, large = (
        Job(name, 0, 2, 1, model="thinker", batch=batch) for name, batch in (("s", 16), ("l", 512))
    )
    links = SharedLinks(costs)
    idle_s = {}
    for each in (small, large):
        flow = links._flow(each, place)
        assert flow is not None
        idle_s[each.job_id] = flow.idle_s(1.0)
    assert idle_s["l"] == pytest.approx(32 * idle_s["s"])


def test_two_jobs_of_the_testbed_slow_each_other_as_measured(tmp_path: Path) -> None:
    """Steps of 14.26 s and 8.36 s were measured on real Slurm (docs/testbed-results.md, `steady`)."""
    file = tmp_path / "lab.toml"
    file.write_text(LAB, encoding="utf-8")
    costs = CostModel(load_cluster(str(file)), load_profiles("testbed"))
    links = SharedLinks(costs)
    running = {
        "resnet50": (14.26, ((2, 2), (4, 2), (5, 2), (7, 2))),
        "resnet18": (8.36, ((0, 2), (1, 2), (3, 2), (6, 2))),
    }
    for model, (_, allocation) in running.items():
        links.start(job(model, model, 8), allocation)
    for model, cost in links.changes():
        measured_s, allocation = running[model]
        alone_s = costs.prediction(job(model, model, 8), allocation)
        assert alone_s is not None
        best = costs.cost(job(model, model, 8), allocation).slowdown
        assert alone_s.iteration_s * cost.slowdown / best == pytest.approx(measured_s, rel=0.12)


LAB = """
name = "lab"
[[levels]]
name = "machine"
prefix = "h"
count = 2
gpus = 2
gpu_type = "h100"
fabric = { bandwidth_bps = 10e9, latency_s = 5e-6 }
uplink = { bandwidth_bps = 1e9, latency_s = 5e-6 }
[[levels]]
name = "rack"
count = 4
uplink = { bandwidth_bps = 200e6, latency_s = 5e-6 }
"""

COSTS = CostModel(TOPOLOGY, PROFILES)


def alone(*machines: int, model: str = "talker") -> float:
    """The slowdown of a job alone on one GPU of each of two machines."""
    return COSTS.cost(job("x", model), tuple((machine, 1) for machine in machines)).slowdown


def is_alone(running: Mapping[str, tuple[str, Allocation]], name: str, slowdown: float) -> bool:
    model, allocation = running[name]
    return slowdown == COSTS.cost(job("x", model), allocation).slowdown


def shared(*running: tuple[str, str, Allocation]) -> SharedLinks:
    links = SharedLinks(COSTS)
    for name, model, allocation in running:
        links.start(job(name, model, sum(gpus for _, gpus in allocation)), allocation)
    return links


def slowdowns(links: SharedLinks) -> dict[str, float]:
    return {name: cost.slowdown for name, cost in links.changes()}
