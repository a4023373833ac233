from itertools import pairwise
from math import log
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge, Known
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.profiles.iteration import Prediction
from dally.profiles.profile_error import ProfileError
from dally.testing.worlds import racks

CLUSTER = racks([[8, 8], [8, 8]])
TYPES = racks([[8, 8, 8], [8, 8, 8]], ("k80", "p100", "v100"))
AUTHOR, GAVEL = load_profiles("dally"), load_profiles("gavel")
NEAR, RACK, FAR = ((0, 8),), ((0, 4), (1, 4)), ((0, 4), (2, 4))


def waiting(exposed_s: float) -> Prediction:
    return Prediction(1.0 + exposed_s, exposed_s, exposed_s, None, "window", extrapolated=False, note="")


def test_right_profiles_are_believed_as_they_are() -> None:
    costs = CostModel(CLUSTER, AUTHOR)
    assert costs.believed(Known(Knowledge.LIMITS, seed=3)) is costs


def test_each_model_is_wrong_in_its_own_way_and_by_its_seed() -> None:
    def slowdown(model: str, seed: int) -> float:
        costs = CostModel(CLUSTER, AUTHOR)
        job = Job("a", 0.0, 8, 1.0, model=model)
        true, wrong = (
            each.cost(job, FAR).slowdown
            for each in (costs, costs.believed(Known(seed=seed, profile_error=0.5)))
        )
        return (wrong - 1) / (true - 1)

    one, *_ = off = [
        slowdown(AUTHOR.models[0], 1),
        slowdown(AUTHOR.models[0], 2),
        slowdown(AUTHOR.models[1], 1),
    ]
    assert len(set(off)) == 3
    assert slowdown(AUTHOR.models[0], 1) == one, "the same each time"


def test_each_factor_is_log_normal_with_the_stated_sigma() -> None:
    error = ProfileError(0.4, 7)
    paces = [log(error.pace(f"model-{number}", "")) for number in range(2000)]
    waits = [
        log(error.believed(waiting(0.2), f"model-{number}", "").exposed_s / 0.2) for number in range(2000)
    ]
    alone = [wait - pace for wait, pace in zip(waits, paces, strict=True)]
    for logs in (paces, alone):
        assert fmean(logs) == pytest.approx(0.0, abs=0.03)
        assert stdev(logs) == pytest.approx(0.4, rel=0.05)


def test_near_and_far_are_wrong_differently() -> None:
    error = ProfileError(0.4, 7)
    near, far = (error.believed(waiting(each), "a", "").exposed_s / each for each in (0.2, 3.0))
    assert near != pytest.approx(far)


@given(
    error=st.builds(ProfileError, st.floats(0.0, 2.0), st.integers(0, 99)),
    waits_s=st.lists(st.floats(0.0, 20.0), min_size=2, max_size=6),
)
def test_what_waits_longer_is_believed_to_wait_longer(error: ProfileError, waits_s: list[float]) -> None:
    waits_s.sort()
    believed = [error.believed(waiting(each), "a", "v100") for each in waits_s]
    for one, other in pairwise(believed):
        assert one.iteration_s <= other.iteration_s * (1 + 1e-12)
    pace = error.pace("a", "v100")
    assert all(each.iteration_s - each.exposed_s == pytest.approx(pace) for each in believed)
    assert error.believed(waiting(0.0), "a", "v100").exposed_s == 0


@given(sigma=st.floats(0.0, 1.5), seed=st.integers(0, 99), model=st.sampled_from(AUTHOR.models))
def test_no_closer_placement_is_believed_slower_and_the_best_one_stays_1(
    sigma: float, seed: int, model: str
) -> None:
    costs = CostModel(CLUSTER, AUTHOR)
    believed = costs.believed(Known(seed=seed, profile_error=sigma))
    job = Job("a", 0.0, 8, 1.0, model=model)
    true = [costs.cost(job, place).slowdown for place in (NEAR, RACK, FAR)]
    assert true == sorted(true)
    slowdowns = [believed.cost(job, place).slowdown for place in (NEAR, RACK, FAR)]
    assert slowdowns == sorted(slowdowns)
    assert slowdowns[0] == 1


@given(sigma=st.floats(0.0, 1.5), seed=st.integers(0, 99), model=st.sampled_from(GAVEL.models))
def test_no_placement_is_believed_faster_than_the_best_of_all_gpu_types(
    sigma: float, seed: int, model: str
) -> None:
    believed = CostModel(TYPES, GAVEL).believed(Known(seed=seed, profile_error=sigma))
    job = Job("a", 0.0, 4, 1.0, model=model)
    places = (((0, 4),), ((1, 4),), ((2, 4),), ((0, 2), (1, 2)), ((1, 2), (2, 2)), ((2, 2), (5, 2)))
    assert min(believed.cost(job, place).slowdown for place in places) == 1
    assert max(believed.type_speeds(job).values()) == max(believed.worker_speeds(job).values()) == 1


def test_which_gpu_type_is_faster_may_be_believed_wrongly() -> None:
    job = Job("a", 0.0, 1, 1.0, model=GAVEL.models[0])
    true = CostModel(TYPES, GAVEL)
    fastest = {
        max(speeds, key=lambda name: speeds[name])
        for seed in range(20)
        for speeds in (true.believed(Known(seed=seed, profile_error=1.0)).type_speeds(job),)
    }
    assert len(fastest) > 1


def test_restarts_cost_what_they_cost() -> None:
    job = Job("a", 0.0, 8, 1.0, model=AUTHOR.models[0])
    costs = CostModel(CLUSTER, AUTHOR)
    assert costs.believed(Known(profile_error=1.0)).restart_s(job) == costs.restart_s(job)
