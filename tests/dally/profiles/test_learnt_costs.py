"""Step times correct what placements are believed to cost, and say how sure that is."""

import json
from dataclasses import replace
from math import exp, log
from random import Random

import pytest

from dally.cluster.topology import Allocation
from dally.jobs.job import Job
from dally.jobs.knowledge import Known
from dally.jobs.training_plan import TrainingPlan
from dally.profiles import learnt_costs
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.profiles.gang_iteration import Split
from dally.profiles.iteration import Prediction
from dally.profiles.learnt_costs import LearntCosts
from dally.profiles.step_factors import CALCULATED, JOB_SPREAD, MEASURED, UNKNOWN, inverse
from dally.testing.worlds import racks
from tests.dally.profiles.test_plan_iteration import cluster, on

CLUSTER = racks([[8, 8], [8, 8]])
AUTHOR = load_profiles("dally")
MODEL = "bert-large"
NEAR, RACK, FAR = ((0, 8),), ((0, 4), (1, 4)), ((0, 4), (2, 4))
PLACES = (NEAR, RACK, FAR)
POOL = ("m", "v100", "")


def predicted(exposed_s: float, compute_s: float = 1.0) -> Prediction:
    return Prediction(compute_s + exposed_s, exposed_s, 0.0, None, "window", extrapolated=False, note="")


def job(name: str = "a", model: str = MODEL) -> Job:
    return Job(name, 0.0, 8, 1000.0, model=model)


def tell(
    learnt: LearntCosts,
    name: str,
    step_s: float,
    exposed_s: float,
    level: int,
    since_s: float = 0.0,
    shared: bool = False,
) -> bool:
    return learnt.observe(name, since_s, step_s, predicted(exposed_s), POOL, MEASURED, level, shared)


def test_the_inverse_of_a_matrix_is_its_inverse() -> None:
    matrix = [[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]]
    back = inverse(matrix)
    for i in range(3):
        for j in range(3):
            product = sum(matrix[i][k] * back[k][j] for k in range(3))
            assert product == pytest.approx(float(i == j), abs=1e-12)


def test_one_step_time_without_waiting_is_the_normal_conjugate_update() -> None:
    learnt = LearntCosts(3)
    tell(learnt, "a", 1.3, 0.0, 0)
    belief = learnt.belief(POOL)
    assert belief is not None
    noise = JOB_SPREAD**2 + learnt_costs.RUN_SPREAD**2
    precision = 1 / MEASURED.pace**2 + 1 / noise
    assert log(belief.pace) == pytest.approx(log(1.3) / noise / precision)
    assert belief.pace_sigma == pytest.approx(precision**-0.5)
    assert belief.waiting == (1.0, 1.0, 1.0), "it says nothing of the network"


def test_runs_of_one_job_say_less_of_its_model_than_those_of_many() -> None:
    one, many = LearntCosts(3), LearntCosts(3)
    for number in range(20):
        tell(one, "a", 1.3, 0.0, 0, since_s=number)
        tell(many, f"j{number}", 1.3, 0.0, 0)
    of_one, of_many = one.belief(POOL), many.belief(POOL)
    assert of_one is not None
    assert of_many is not None
    assert (of_one.runs, of_one.jobs, of_many.jobs) == (20, 1, 20)
    assert of_one.pace < 1.15 < 1.27 < of_many.pace
    least = (1 / MEASURED.pace**2 + 1 / JOB_SPREAD**2) ** -0.5
    assert least < of_one.pace_sigma
    assert of_many.pace_sigma < 0.04


def test_one_job_near_and_far_tells_what_distance_costs_whatever_its_own_pace() -> None:
    """It is half as fast as predicted everywhere, and waits twice as long far away."""
    learnt = LearntCosts(3)
    for number in range(4):
        tell(learnt, "a", 2.0, 0.0, 0, since_s=10.0 * number)
        tell(learnt, "a", 2.0 * (1 + 2 * 0.8), 0.8, 2, since_s=10.0 * number + 5)
    belief = learnt.belief(POOL)
    assert belief is not None
    assert belief.waiting[2] == pytest.approx(2.0, rel=0.15)
    assert belief.waiting_sigma[2] < 0.15 < belief.waiting_sigma[1], "surest where it was"
    assert 1.2 < belief.waiting[1] < belief.waiting[2], "what is learnt of one level tells of the others"


def test_many_jobs_give_both_factors_back() -> None:
    """Jobs with a pace of their own, at all levels, with noise: within two standard deviations."""
    draws, learnt = Random(7), LearntCosts(3)
    true_w = (1.0, 1.6, 2.2)
    for number in range(120):
        level = number % 3
        exposed_s = (0.0, 0.3, 0.9)[level]
        own = exp(0.1 * draws.gauss(0, 1))
        tell(learnt, f"j{number}", own * 1.2 * (1 + true_w[level] * exposed_s), exposed_s, level)
    belief = learnt.belief(POOL)
    assert belief is not None
    assert abs(log(belief.pace / 1.2)) < 2 * belief.pace_sigma
    for level in (1, 2):
        assert abs(log(belief.waiting[level] / true_w[level])) < 2 * belief.waiting_sigma[level]
        assert belief.waiting_sigma[level] < 0.2


def test_what_others_shared_counts_less() -> None:
    alone, shared = LearntCosts(3), LearntCosts(3)
    tell(alone, "a", 4.0, 1.0, 2)
    tell(shared, "a", 4.0, 1.0, 2, shared=True)
    (one,), (other,) = alone.beliefs(), shared.beliefs()
    assert 1 < other.waiting[2] < one.waiting[2]


def test_a_job_far_off_moves_the_others_little_and_is_said_to_be_slow_once() -> None:
    learnt = LearntCosts(3)
    for number in range(30):
        tell(learnt, f"j{number}", 1.0, 0.0, 0)
    tell(learnt, "odd", 5.0, 0.0, 0)
    (belief,) = learnt.beliefs()
    assert belief.pace < 1.03
    check = learnt.newly_slower("odd")
    assert check is not None
    assert check.expected_s == pytest.approx(1.0, rel=0.02)
    assert "1 s were to be expected" in check.words
    assert learnt.newly_slower("odd") is None, "told once"
    assert learnt.newly_slower("j3") is None


def test_a_few_per_cent_slower_is_not_told_however_sure_it_is() -> None:
    learnt = LearntCosts(3)
    tell(learnt, "a", 1.0, 0.0, 0)
    check = learnt.checks["a"]
    assert not replace(check, step_s=1.09, sigma=0.001).slower
    assert replace(check, step_s=1.11, sigma=0.001).slower


def test_one_run_counts_once_and_is_checked_again_and_again() -> None:
    learnt = LearntCosts(3)
    tell(learnt, "a", 1.0, 0.0, 0)
    (before,) = learnt.beliefs()
    assert not tell(learnt, "a", 3.0, 0.0, 0)
    assert learnt.beliefs() == [before]
    assert learnt.newly_slower("a") is not None, "it has become slow since"


def test_a_snapshot_is_all_of_it() -> None:
    one, other = LearntCosts(3), LearntCosts(3)
    for number in range(5):
        tell(one, f"j{number}", 1.5, 0.2 * number, number % 3)
    other.restore(json.loads(json.dumps(one.snapshot())))
    assert other.snapshot() == one.snapshot()
    for each in (one, other):
        tell(each, "j3", 1.7, 0.4, 2, since_s=9.0)
    assert other.beliefs() == one.beliefs()


@pytest.mark.parametrize("change", [{"schema": 99}, {"levels": 2}])
def test_a_snapshot_of_another_kind_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="this"):
        LearntCosts(3).restore({**LearntCosts(3).snapshot(), **change})


def test_its_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learnt_costs, "MOST_POOLS", 4)
    monkeypatch.setattr(learnt_costs, "MOST_JOBS", 6)
    learnt = LearntCosts(3)
    for number in range(20):
        name = (f"m{number % 10}", "", "")
        learnt.observe(f"j{number}", 0.0, 2.0, predicted(0.1), name, CALCULATED, 1, shared=False)
    assert [each.model for each in learnt.beliefs()] == ["m6", "m7", "m8", "m9"]
    assert len(learnt.snapshot()["jobs"]) <= 6
    assert len(learnt.snapshot()["believed"]) <= 4


def of_user(
    learnt: LearntCosts, user: str, pace: float, far: float, jobs: int = 8, level: int = 2
) -> tuple[float, float]:
    """His jobs tell of paces and waits so many times as predicted; what is then believed for them."""
    pool = ("m", "v100", user)
    for number in range(jobs):
        for exposed_s, place in ((0.0, 0), (1.0, level)):
            run = f"{user}{number}", float(place), pace * (1 + far * exposed_s)
            learnt.observe(*run, predicted(exposed_s), pool, MEASURED, place, shared=False)
    return learnt.pace(pool), learnt.waiting(pool, level)


STRANGER = ("m", "v100", "stranger")


@pytest.mark.parametrize("honest", [0, 1, 2, 3])
def test_one_users_lies_move_what_is_believed_of_others_nowhere_they_have_not_been(honest: int) -> None:
    for lie, far in ((0.07, 20.0), (50.0, 0.01)):
        learnt, before = LearntCosts(3), list[tuple[float, float]]()
        for number in range(honest):
            before.append(of_user(learnt, f"user{number}", 1.2, 1.5))
        of_user(learnt, "liar", lie, far, jobs=100)
        pace, waits = learnt.pace(STRANGER), learnt.waiting(STRANGER, 2)
        assert 1.0 <= pace <= 1.2
        assert 1.0 <= waits <= 1.5
        for number, (own_pace, own_waits) in enumerate(before):
            own = ("m", "v100", f"user{number}")
            assert learnt.pace(own) == pytest.approx(own_pace, rel=0.03)
            assert learnt.waiting(own, 2) == pytest.approx(own_waits, rel=0.15)


def test_a_user_learns_from_his_own_jobs_alone_as_if_he_were_alone() -> None:
    learnt = LearntCosts(3)
    pace, waits = of_user(learnt, "alice", 1.3, 2.0)
    assert pace == pytest.approx(1.25, abs=0.06)
    assert waits == pytest.approx(1.9, abs=0.2)
    assert (learnt.pace(STRANGER), learnt.waiting(STRANGER, 2)) == (1.0, 1.0)
    assert learnt.belief(STRANGER) is None


def test_what_two_users_agree_on_is_believed_of_all_and_is_where_a_third_begins() -> None:
    learnt = LearntCosts(3)
    for user in ("alice", "bob"):
        found = of_user(learnt, user, 1.3, 2.0)
    agreed = learnt.pace(STRANGER), learnt.waiting(STRANGER, 2)
    assert agreed == pytest.approx(found, rel=0.2)
    belief = learnt.belief(STRANGER)
    assert belief is not None
    assert (belief.user, belief.jobs, belief.waiting[2]) == (None, 16, agreed[1])
    learnt.observe("c", 0.0, 1.3, predicted(0.0), STRANGER, MEASURED, 0, shared=False)  # near alone
    assert learnt.waiting(STRANGER, 2) == pytest.approx(agreed[1], rel=0.1)
    taken_back = LearntCosts(3)
    taken_back.restore(json.loads(json.dumps(learnt.snapshot())))
    assert taken_back.beliefs() == learnt.beliefs()
    assert taken_back.pace(STRANGER) == learnt.pace(STRANGER)


def test_one_user_with_very_many_models_makes_nobody_elses_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learnt_costs, "MOST_POOLS", 6)
    learnt = LearntCosts(3)
    of_user(learnt, "alice", 1.3, 2.0)
    for number in range(50):
        name = (f"m{number}", "v100", "mallory")
        learnt.observe(f"x{number}", 0.0, 2.0, predicted(0.1), name, MEASURED, 1, shared=False)
    assert {belief.user for belief in learnt.beliefs()} == {"alice", "mallory"}
    assert len(learnt.beliefs()) == 6


# Costs that rest on it.


def costs() -> CostModel:
    return CostModel(CLUSTER, AUTHOR, learns=True)


def slowdown(model: CostModel, place: Allocation, asked: Job | None = None) -> float:
    return model.cost(asked or job(), place).slowdown


def test_costs_are_as_before_until_something_is_learnt() -> None:
    before, now = CostModel(CLUSTER, AUTHOR), costs()
    assert [before.cost(job(), place) for place in PLACES] == [now.cost(job(), place) for place in PLACES]
    assert before.believed(Known()) is before


def test_jobs_that_are_slower_far_away_than_predicted_make_distance_dearer_for_their_model_alone() -> None:
    true, believed = CostModel(CLUSTER, AUTHOR), costs()
    others = job(model="vgg11")
    near, far = (true.prediction(job(), place) for place in (NEAR, FAR))
    assert near is not None
    assert far is not None
    before = [slowdown(believed, FAR), slowdown(believed, FAR, others)]
    for number in range(10):
        believed.learn(job(f"n{number}"), NEAR, 0.0, near.iteration_s)
        believed.learn(job(f"f{number}"), FAR, 0.0, far.iteration_s + far.exposed_s)
    wanted = (far.iteration_s + far.exposed_s) / near.iteration_s
    assert slowdown(believed, FAR) == pytest.approx(wanted, rel=0.15)
    assert slowdown(believed, FAR) > before[0]
    assert slowdown(believed, FAR, others) == before[1]
    assert believed.revision > 0


def test_wrong_profiles_come_right() -> None:
    true = CostModel(CLUSTER, AUTHOR)
    believed = true.believed(Known(seed=3, profile_error=1.0, learns_costs=True))
    wrong = {place: slowdown(believed, place) for place in PLACES}
    for number in range(30):
        for place in PLACES:
            found = true.prediction(job(), place)
            assert found is not None
            believed.learn(job(f"{number} {place}"), place, 0.0, found.iteration_s)
    for place in PLACES[1:]:
        off = abs(log(wrong[place] / slowdown(true, place)))
        assert abs(log(slowdown(believed, place) / slowdown(true, place))) < 0.25 * off + 0.02


def test_the_price_of_distance_is_learnt_of_a_model_without_a_profile() -> None:
    believed = CostModel(CLUSTER, None, assumed_slowdown=1.25, learns=True)
    stranger = job(model="mine")
    assert slowdown(believed, FAR, stranger) == pytest.approx(1.5625), "two machines, two levels"
    for number in range(10):
        believed.learn(job(f"n{number}", "mine"), NEAR, 0.0, 0.5)
        believed.learn(job(f"f{number}", "mine"), FAR, 0.0, 0.5 * 3)
    assert slowdown(believed, FAR, stranger) == pytest.approx(3.0, rel=0.2)
    assert slowdown(believed, FAR, job(model="other")) == pytest.approx(1.5625)
    belief = believed.belief(stranger, "")
    assert belief is not None
    assert not belief.predicted


def test_a_faster_gpu_type_far_away_makes_distance_no_cheaper_without_a_profile() -> None:
    """On b all takes half the time, and distance costs both types the same: twice."""
    cluster = racks([[8, 8], [8, 8]], ("a", "b"))
    near_a, far_a, near_b, far_b = ((0, 8),), ((0, 4), (2, 4)), ((1, 8),), ((1, 4), (3, 4))
    model = CostModel(cluster, None, assumed_slowdown=1.25, learns=True)
    stranger = job(model="mine")
    before = slowdown(model, far_a, stranger)
    for number in range(10):
        model.learn(job(f"a{number}", "mine"), near_a, 0.0, 1.0)
        model.learn(job(f"b{number}", "mine"), far_b, 0.0, 0.5 * 2.0)
    assert slowdown(model, far_a, stranger) == pytest.approx(before, rel=0.01), "no type was near and far"
    for number in range(10):
        model.learn(job(f"c{number}", "mine"), near_b, 0.0, 0.5)
    assert slowdown(model, far_a, stranger) == pytest.approx(2.0, rel=0.1)
    model.learn(job("mixed", "mine"), ((0, 4), (1, 4)), 0.0, 9.0)
    assert model.learnt is not None
    assert not model.learnt.has_told("mixed"), "whose pace it went at, nobody knows"
    again = CostModel(cluster, None, assumed_slowdown=1.25, learns=True)
    assert model.learnt is not None
    assert again.learnt is not None
    again.learnt.restore(json.loads(json.dumps(model.learnt.snapshot())))
    for each in (model, again):
        each.learn(job("d", "mine"), far_a, 0.0, 1.4)
    assert slowdown(again, far_a, stranger) == slowdown(model, far_a, stranger)


@pytest.mark.parametrize("gpu_types", [[], ["", "a", "b"]])
def test_factors_that_are_not_of_their_gpu_types_are_refused(gpu_types: list[str]) -> None:
    learnt = LearntCosts(3)
    tell(learnt, "a", 1.0, 0.5, 1)
    said = learnt.snapshot()
    said["pools"][0][-1] = gpu_types
    with pytest.raises(ValueError, match="for other levels and GPU types"):
        LearntCosts(3).restore(said)


@pytest.mark.parametrize("split", Split)
def test_a_gang_over_several_gpu_types_tells_of_the_slowest_unless_split_by_speed(split: Split) -> None:
    gavel, cluster = load_profiles("gavel"), racks([[4, 4], [4, 4]], ("v100", "p100"))
    model = CostModel(cluster, gavel, split, learns=True)
    asked, mixed = job(model="resnet-50"), ((0, 4), (1, 4))
    found = model.prediction(asked, mixed)
    assert found is not None
    for number in range(20):
        model.learn(job(f"j{number}", "resnet-50"), mixed, 0.0, 1.5 * found.iteration_s)
    told = [belief for gpu_type in ("p100", "v100") if (belief := model.belief(asked, gpu_type))]
    assert len(told) == (split is Split.EVEN)
    for belief in told:
        now = model.prediction(asked, mixed)
        assert now is not None
        assert belief.pace > 1.1
        assert now.iteration_s == pytest.approx(1.5 * found.iteration_s, rel=0.1)


def test_what_is_assumed_is_the_same_with_learning_and_without_and_grows_with_machines() -> None:
    cluster, stranger = racks([[2, 2, 2, 2], [8]]), job(model="x")
    on_two, on_four = ((3, 2), (4, 6)), ((0, 2), (1, 2), (2, 2), (3, 2))
    for learns in (False, True):
        costs = CostModel(cluster, None, assumed_slowdown=1.25, learns=learns)
        found = [costs.cost(stranger, place).slowdown for place in (on_two, on_four)]
        assert found == pytest.approx([1.25**2, 1 + 0.25 * 2 * 3 / 4])


def test_a_job_without_a_name_teaches_only_of_itself() -> None:
    believed = CostModel(CLUSTER, None, assumed_slowdown=1.25, learns=True)
    for number in range(4):
        believed.learn(job("a", ""), NEAR, 10.0 * number, 1.0)
        believed.learn(job("a", ""), FAR, 10.0 * number + 5, 4.0)
    assert slowdown(believed, FAR, job("a", "")) > 2
    assert slowdown(believed, FAR, job("b", "")) == pytest.approx(1.5625)


def test_the_step_of_another_batch_is_compared_with_a_prediction_for_it() -> None:
    pollux = load_profiles("pollux")
    model = CostModel(racks([[4, 4]], ("t4",)), pollux, learns=True)
    asked = Job("a", 0.0, 4, 1000.0, model="bert")
    local = model._profile_batch(asked)
    assert local
    twice = Job("b", 0.0, 4, 1000.0, model="bert", batch=8 * local)
    found = model.prediction(twice, ((0, 4),))
    assert found is not None
    model.learn(asked, ((0, 4),), 0.0, found.iteration_s, samples=8.0 * local)
    assert model.learnt is not None
    assert model.learnt.checks["a"].expected_s == pytest.approx(found.iteration_s)


def test_an_unknown_pool_is_vaguer_than_a_measured_one() -> None:
    assert UNKNOWN.waiting > CALCULATED.waiting > MEASURED.waiting


class TestPlans:
    """Jobs that go by a plan are corrected, too, each plan by itself."""

    PLANNED = Job(
        "p",
        0.0,
        8,
        1000.0,
        model="llama3-8b",
        batch=64,
        plan=TrainingPlan.parse("tp=4,dp=2,sequence=4096"),
    )
    TOPOLOGY = cluster("h100 a100 h100 a100")

    def seconds(self, costs: CostModel, place: Allocation, job: Job = PLANNED, stretch: float = 1.0) -> float:
        found = costs.prediction(job, place, stretch)
        assert found is not None
        return found.iteration_s

    @pytest.mark.parametrize(("place", "level"), [(on(0), 0), (on(0, 1, each=4), 1), (on(0, 8, each=4), 2)])
    def test_it_is_corrected_at_its_level(self, place: Allocation, level: int) -> None:
        """What is learnt where it runs counts there most, and what was remembered everywhere is forgotten."""
        plain, costs = CostModel(self.TOPOLOGY), CostModel(self.TOPOLOGY, learns=True)
        places = (on(0), on(0, 1, each=4), on(0, 8, each=4))
        for each in places:
            costs.cost(self.PLANNED, each)
            assert self.seconds(costs, each) == self.seconds(plain, each)
        others = replace(self.PLANNED, plan=TrainingPlan.parse("tp=2,dp=4,sequence=4096"))
        other_s, mixed_s = self.seconds(costs, on(0), others), self.seconds(costs, on(0, 4, each=4))
        for number in range(30):
            one = replace(self.PLANNED, job_id=f"p{number}")
            costs.learn(one, place, 0.0, 1.5 * self.seconds(plain, place))
        assert self.seconds(costs, place) == pytest.approx(1.5 * self.seconds(plain, place), rel=0.05)
        belief = costs.belief(self.PLANNED, "h100")
        assert belief is not None
        assert belief.model == "llama3-8b tp=4,dp=2,micro=1,sequence=4096"
        assert (belief.runs, belief.jobs) == (30, 30)
        assert costs.belief(self.PLANNED, "a100") is None
        least = min(range(3), key=lambda each: belief.waiting_sigma[each])
        assert belief.waiting_sigma[level] == belief.waiting_sigma[least]
        best_s = min(self.seconds(costs, each) for each in costs._idle.best_placements(self.PLANNED.gang))
        for each in places:
            found = costs.cost(self.PLANNED, each)
            assert found.slowdown == pytest.approx(self.seconds(costs, each) / best_s), "no cost is of before"
        speeds = costs.type_speeds(self.PLANNED)
        assert speeds["h100"] == pytest.approx(best_s / self.seconds(costs, on(0)))
        assert self.seconds(costs, on(0), others) == other_s, "another plan's jobs are another matter"
        assert self.seconds(costs, on(0, 4, each=4)) >= mixed_s

    def test_a_fresh_model_that_is_told_the_same_says_the_same(self) -> None:
        """Of nothing that was asked before something old is remembered."""
        asked, fresh = CostModel(self.TOPOLOGY, learns=True), CostModel(self.TOPOLOGY, learns=True)
        places = (on(0), on(4), on(0, 1, each=4), on(0, 8, each=4), on(0, 4, each=4))

        def said(costs: CostModel) -> list[object]:
            costed = [costs.cost(self.PLANNED, place) for place in places]
            stretched = [costs.stretched(self.PLANNED, place, 2.0) for place in places]
            speeds = costs.type_speeds(self.PLANNED), costs.worker_speeds(self.PLANNED)
            return [costed, stretched, speeds, costs.ideal(self.PLANNED, 8)]

        before = said(asked)
        for costs in (asked, fresh):
            costs.learn(self.PLANNED, on(0, 8, each=4), 0.0, 40.0)
        assert said(asked) == said(fresh) != before

    def test_hidden_profiles_hide_plans_and_distance_is_learnt_without(self) -> None:
        true = CostModel(self.TOPOLOGY, assumed_slowdown=1.2)
        blind = true.believed(Known(hides_profiles=True, learns_costs=True))
        far = on(0, 8, each=4)
        assert blind.basis(self.PLANNED)[0] == "no profile"
        assert true.basis(self.PLANNED)[0] == "plan"
        assert blind.prediction(self.PLANNED, far) is None
        assert blind.report().models_by_plan == ()
        before = blind.cost(self.PLANNED, far).slowdown
        for number in range(20):
            one = replace(self.PLANNED, job_id=f"p{number}")
            blind.learn(one, on(0), 0.0, 1.0)
            blind.learn(one, far, 1.0, 3.0)
        assert blind.cost(self.PLANNED, far).slowdown > before + 0.5
        belief = blind.belief(self.PLANNED, "h100")
        assert belief is not None
        assert (belief.model, belief.gpu_type) == ("llama3-8b", "8 GPUs")


def test_a_pool_that_is_given_up_corrects_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learnt_costs, "MOST_POOLS", 1)
    costs, plain = CostModel(CLUSTER, AUTHOR, learns=True), CostModel(CLUSTER, AUTHOR)
    costs.learn(job(), FAR, 0.0, 60.0)
    assert costs.cost(job(), RACK) != plain.cost(job(), RACK)
    revision = costs.revision
    costs.learn(job("b", "vgg11"), FAR, 0.0, 1e-3)
    assert costs.belief(job(), "v100") is None
    assert costs.cost(job(), RACK) == plain.cost(job(), RACK)
    assert costs.revision > revision


def test_a_job_that_names_no_model_learns_for_itself_and_takes_it_along() -> None:
    """Many of them do not crowd out what models have taught, and none has another one's speeds."""
    mixed = racks([[8], [4, 4]], ("a", "b"))
    costs = CostModel(mixed, assumed_slowdown=1.2, learns=True)
    one, two = job("one", ""), job("two", "")
    assert costs.group(one) == costs.group(two)
    place = next(place for place in costs._idle.best_placements(one.gang))
    before = costs.type_speeds(two)
    costs.learn(one, place, 0.0, 1.0)
    assert costs.group(one) != costs.group(two)
    assert costs.type_speeds(two) == before
    assert costs.learnt is not None
    assert len(costs.learnt.beliefs()) == 1
    costs.learnt.left("one")
    assert costs.learnt.beliefs() == []


@pytest.mark.parametrize("step_s", [5e-324, 1e-300, 1e-9, 1e9, 1e18])
@pytest.mark.parametrize("model", [MODEL, "", "unheard"])
def test_step_times_that_cannot_be_harm_nothing(step_s: float, model: str) -> None:
    costs = CostModel(CLUSTER, AUTHOR, assumed_slowdown=1.2, learns=True)
    before = costs.cost(job("good", model), FAR).slowdown
    for number in range(60):
        costs.learn(job("odd", model), PLACES[number % 3], float(number), step_s)
    assert costs.learnt is not None
    assert costs.learnt.beliefs() == []
    assert costs.cost(job("good", model), FAR).slowdown == before
