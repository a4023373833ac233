"""What placements cost on GPUs of several types, and copies side by side."""

from dataclasses import replace
from itertools import combinations

import pytest

from dally.cluster.topology import Allocation
from dally.jobs.job import Job, JobKind
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.profiles.gang_iteration import Split
from dally.testing.worlds import racks

GAVEL = load_profiles("gavel")
TYPES = ("k80", "p100", "v100")
TOPOLOGY = racks([[4, 4, 4], [2, 2, 2]], TYPES)
"""Machines 0 and 3 are K80s, 1 and 4 P100s, 2 and 5 V100s."""
EVEN = CostModel(TOPOLOGY, GAVEL)
BY_SPEED = CostModel(TOPOLOGY, GAVEL, Split.PROPORTIONAL)


def job(gpus: int, model: str = "transformer", gpu_type: str | None = None) -> Job:
    return Job("a", 0.0, gpus, 100.0, model=model, gpu_type=gpu_type)


def forked(gpus: int = 1, model: str = "transformer") -> Job:
    return Job("f", 0.0, gpus, 100.0, model=model, kind=JobKind.FORKED, max_copies=6)


def compute_s(gpu_type: str) -> float:
    profile = GAVEL.find("transformer", gpu_type)
    assert profile is not None
    return profile.compute.total_s


def iteration_s(costs: CostModel, allocation: Allocation) -> float:
    """Of a transformer, whose profiles say that it always communicates."""
    found = costs.prediction(job(2), allocation)
    assert found is not None
    return found.iteration_s


def test_what_stood_in_for_what_is_reported_once_and_only_where_it_was_used() -> None:
    few = ProfileSet("few", tuple(each for each in GAVEL.profiles if each.env.gpu_type == "v100"))
    costs = CostModel(TOPOLOGY, few)
    assert costs.report().stand_ins == ()
    for places in (((0, 2),), ((0, 4),), ((2, 2),)):
        costs.cost(job(sum(gpus for _, gpus in places)), places)
    (k80, _) = costs.report().stand_ins
    assert k80.startswith("no profile on GPU type k80 for transformer: that on v100 stands in")
    assert EVEN.report().stand_ins == ()


def test_jobs_whose_types_were_profiled_with_other_batches_compare_with_one_batch() -> None:
    """The V100 was profiled with twice the batch; with the K80's it takes half of its own time."""
    known = {each.env.gpu_type: each for each in GAVEL.profiles if each.model.name == "transformer"}
    larger = replace(known["v100"], model=replace(known["v100"].model, local_batch=128))
    costs = CostModel(TOPOLOGY, ProfileSet("two", (known["k80"], larger)))
    speeds = costs.worker_speeds(job(1))
    assert speeds["k80"] == pytest.approx(compute_s("v100") / 2 / compute_s("k80"))


def test_one_gpu_runs_at_the_speed_of_its_type() -> None:
    for machine, gpu_type in enumerate(TYPES):
        cost = EVEN.cost(job(1), ((machine, 1),))
        assert cost.slowdown == pytest.approx(compute_s(gpu_type) / compute_s("v100"))


def test_a_mixed_gang_that_splits_evenly_runs_at_its_slowest_types_pace() -> None:
    mixed = ((3, 1), (5, 1))
    assert iteration_s(EVEN, mixed) == iteration_s(EVEN, ((0, 1), (3, 1))), "as on K80s alone"
    assert EVEN.cost(job(2), mixed).slowdown > EVEN.cost(job(2), ((2, 1), (5, 1))).slowdown


def test_a_mixed_gang_that_splits_by_speed_computes_for_the_harmonic_mean_of_its_gpus() -> None:
    mixed = ((3, 1), (4, 2), (5, 1))
    wanted_s = 4 / (1 / compute_s("k80") + 2 / compute_s("p100") + 1 / compute_s("v100"))
    found = BY_SPEED.prediction(job(4), mixed)
    assert found is not None
    assert found.iteration_s - found.exposed_s == pytest.approx(wanted_s)
    assert BY_SPEED.cost(job(4), mixed).slowdown < EVEN.cost(job(4), mixed).slowdown


def test_how_the_batch_is_split_says_nothing_of_a_gang_of_one_type() -> None:
    for place in (((0, 4),), ((2, 1), (5, 1))):
        request = job(sum(gpus for _, gpus in place))
        assert BY_SPEED.cost(request, place) == EVEN.cost(request, place)


def test_type_speeds_are_those_of_the_closest_placement_and_the_fastest_has_1() -> None:
    speeds = EVEN.type_speeds(job(4))
    assert [*speeds] == [*TYPES]
    assert max(speeds.values()) == speeds["v100"] == 1
    assert speeds["k80"] == pytest.approx(1 / EVEN.cost(job(4), ((0, 4),)).slowdown)


def test_only_types_that_can_hold_the_gang_and_that_it_accepts_have_a_speed() -> None:
    assert EVEN.type_speeds(job(7)) == {}
    assert EVEN.type_speeds(job(4, gpu_type="p100")) == {"p100": 1}
    assert [*EVEN.type_speeds(forked(4))] == [*TYPES]
    assert EVEN.type_speeds(forked(5)) == {}


def test_worker_speeds_are_of_compute_alone() -> None:
    speeds = EVEN.worker_speeds(job(6))
    assert speeds == pytest.approx({name: compute_s("v100") / compute_s(name) for name in TYPES})
    assert EVEN.worker_speeds(job(6, gpu_type="k80")) == {"k80": 1}


@pytest.mark.parametrize("model", ["", "unheard-of"])
def test_without_a_profile_all_types_are_alike(model: str) -> None:
    assert EVEN.type_speeds(job(2, model)) == dict.fromkeys(TYPES, 1)
    assert EVEN.worker_speeds(job(2, model)) == dict.fromkeys(TYPES, 1)


def test_the_speeds_of_copies_add_up_and_their_waiting_counts_by_speed() -> None:
    request = forked(2)
    places = ((0, 2), (1, 2), (2, 2))
    alone = [EVEN.cost(request, (place,)) for place in places]
    speeds = [1 / cost.slowdown for cost in alone]
    together = EVEN.cost(request, places)
    assert together.slowdown == pytest.approx(1 / sum(speeds))
    assert together.slowdown < 1
    waiting = sum(cost.exposed * speed for cost, speed in zip(alone, speeds, strict=True))
    assert together.exposed == pytest.approx(waiting / sum(speeds))


def test_a_single_copy_costs_what_a_gang_does() -> None:
    assert EVEN.cost(forked(2), ((2, 2),)) == EVEN.cost(job(2), ((2, 2),))


def test_copies_without_a_profile_are_as_fast_as_they_are_many() -> None:
    assert EVEN.cost(forked(1, ""), ((0, 1), (1, 1), (2, 1))).slowdown == pytest.approx(1 / 3)
    alike = CostModel(racks([[1, 1]]))
    assert alike.cost(forked(1), ((0, 1), (1, 1))).slowdown == 0.5


def elastic(gpus: int, model: str = "transformer", most: int = 8) -> Job:
    kind = JobKind.ELASTIC
    return Job("e", 0.0, gpus, 100.0, model=model, kind=kind, min_gpus=1, max_gpus=most)


def test_an_elastic_job_on_its_own_number_of_gpus_costs_what_a_rigid_one_does() -> None:
    assert EVEN.cost(elastic(4), ((2, 2), (5, 2))) == EVEN.cost(job(4), ((2, 2), (5, 2)))


def test_an_elastic_jobs_compute_goes_with_the_batch_of_each_gpu_and_its_communication_stays() -> None:
    wide, narrow = EVEN.prediction(elastic(2), ((2, 4),)), EVEN.prediction(elastic(8), ((2, 4),))
    same = EVEN.prediction(job(4), ((2, 4),))
    assert wide is not None
    assert narrow is not None
    assert same is not None
    assert wide.iteration_s - wide.exposed_s == pytest.approx(compute_s("v100") / 2)
    assert narrow.iteration_s - narrow.exposed_s == pytest.approx(compute_s("v100") * 2)
    assert wide.comm_s == pytest.approx(same.comm_s) == narrow.comm_s
    assert wide.exposed_s > same.exposed_s > narrow.exposed_s, "less compute hides less of it"


def test_an_elastic_job_is_compared_with_the_gpus_it_asked_for() -> None:
    alone = iteration_s(EVEN, ((2, 2),))
    wide = EVEN.prediction(elastic(2), ((2, 4),))
    assert wide is not None
    assert EVEN.cost(elastic(2), ((2, 4),)).slowdown == pytest.approx(wide.iteration_s / alone)
    assert EVEN.cost(elastic(2), ((2, 1),)).slowdown > 1


@pytest.mark.parametrize("model", ["", "unheard-of"])
def test_an_elastic_job_without_a_profile_is_as_fast_as_its_gpus_are_many(model: str) -> None:
    assert EVEN.cost(elastic(2, model), ((2, 4),)).slowdown == 0.5
    assert EVEN.cost(elastic(2, model), ((2, 1),)).slowdown == 2
    assert CostModel(racks([[4]])).cost(elastic(1, ""), ((0, 4),)).slowdown == 0.25


def test_the_ideal_cost_is_that_of_the_closest_placement_on_the_best_type() -> None:
    assert EVEN.ideal(job(4), 4).slowdown == pytest.approx(1)
    assert EVEN.ideal(elastic(2), 4) == EVEN.cost(elastic(2), ((2, 4),))


ASSUMED = CostModel(racks([[4, 4], [4, 4]]), load_profiles("gavel"), assumed_slowdown=1.5)


@pytest.mark.parametrize("model", ["", "nobody-knows"])
def test_without_a_profile_each_level_farther_than_need_be_is_assumed_to_cost_the_same(model: str) -> None:
    gang = job(4, model)
    costs = [ASSUMED.cost(gang, where) for where in (((0, 4),), ((0, 2), (1, 2)), ((0, 2), (2, 2)))]
    assert [cost.slowdown for cost in costs] == [1.0, 1.5, 2.25]
    assert [cost.exposed for cost in costs] == pytest.approx([0, 1 / 3, 1 - 1 / 2.25])
    assert all(cost.extrapolated for cost in costs)


def test_what_a_large_gang_cannot_avoid_is_not_assumed_to_cost_it_anything() -> None:
    assert ASSUMED.cost(job(8, ""), ((0, 4), (1, 4))).slowdown == 1.0
    assert ASSUMED.cost(job(16, ""), ((0, 4), (1, 4), (2, 4), (3, 4))).slowdown == 1.0


def test_a_profile_wins_over_what_is_assumed() -> None:
    apart = ((0, 2), (2, 2))
    measured = CostModel(racks([[4, 4], [4, 4]]), load_profiles("gavel"))
    assert ASSUMED.cost(job(4), apart) == measured.cost(job(4), apart)
    assert ASSUMED.knows(job(4))
    assert not ASSUMED.knows(job(4, "nobody-knows"))


def test_distance_costs_nothing_without_profile_or_assumption() -> None:
    costs = CostModel(racks([[4, 4], [4, 4]]), load_profiles("gavel"))
    assert costs.cost(job(4, ""), ((0, 2), (2, 2))).slowdown == 1.0


def test_what_is_remembered_of_gangs_does_not_grow_with_the_machines_that_they_accept() -> None:
    topology = racks([[4] * 12, [4] * 12])
    costs = CostModel(topology, load_profiles("dally"))
    names = [machine.name for machine in topology.machines]
    first = None
    for pair in combinations(names, 2):
        job = Job("j", 0.0, 8, 100.0, model="resnet50", machines=frozenset(pair))
        costs.best_level(job.gang)
        allocation = tuple(sorted((topology.machine_index[name], 4) for name in pair))
        cost = costs.cost(job, allocation)
        first = first or (job, allocation, cost)
    assert len(costs._costs) <= 256
    assert first is not None
    assert costs.cost(*first[:2]) == first[2]
