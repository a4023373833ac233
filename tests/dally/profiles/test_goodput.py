"""What batches are worth, and how jobs with batches that vary run."""

from dataclasses import replace
from itertools import pairwise

import pytest

from dally.cluster.topology import Allocation
from dally.jobs.job import Job, JobKind
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.profiles.goodput import Batching, batches, efficiency, mean_efficiency, phase
from dally.profiles.schema import Learning
from dally.testing.worlds import racks

LEARNING = Learning(100, 1600, 200, 2, 50_000.0, (0.25, 1.0), (100.0, 1500.0), (0.5, 0.9))
"""A batch of 400 is worth 0.4 in the first quarter, and 1600 / 1900 later."""
CIFAR = next(each for each in load_profiles("pollux").profiles if each.model.name == "cifar10")
PROFILE = replace(
    CIFAR,
    learning=LEARNING,
    model=replace(CIFAR.model, local_batch=100),
    compute=replace(CIFAR.compute, bwd_s=0.2, fixed_s=0.1, other_batches=()),
    tiers={},
)
"""0.1 s and 1 ms a sample; nothing is known of its communication."""
JOB = Job("a", 0.0, 4, 1000.0, model="cifar10", batch=400, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=16)
PROFILES = ProfileSet("one", (PROFILE,))
TOPOLOGY = racks([[16]], ("t4",))


def slowdown(batching: Batching, gpus: int, done: float = 0.0, job: Job = JOB) -> float:
    place: Allocation = ((0, gpus),)
    return CostModel(TOPOLOGY, PROFILES, batching=batching).cost(job, place, done).slowdown


def test_a_phase_begins_where_the_one_before_ends() -> None:
    assert [phase(LEARNING, done) for done in (0, 0.2, 0.25, 0.9, 1.0)] == [0, 0, 1, 1, 1]


def test_a_sample_is_worth_less_in_larger_batches_and_more_as_the_noise_grows() -> None:
    assert efficiency(LEARNING, 100, 0) == 1
    assert efficiency(LEARNING, 400, 0) == pytest.approx(200 / 500)
    assert efficiency(LEARNING, 400, 1) == pytest.approx(1600 / 1900)
    assert mean_efficiency(LEARNING, 400) == pytest.approx(1 / (0.25 / 0.4 + 0.75 * 1900 / 1600))


def test_batches_stay_go_with_the_gpus_or_are_chosen() -> None:
    assert batches(LEARNING, Batching.FIXED, 400, 4, 8) == (400,)
    assert batches(LEARNING, Batching.LINEAR, 400, 4, 8) == (800,)
    assert batches(LEARNING, Batching.LINEAR, 400, 4, 1) == (100,)
    assert batches(LEARNING, Batching.LINEAR, 400, 4, 64) == (1600,), "no more than trains well"
    chosen = batches(LEARNING, Batching.GOODPUT, 400, 4, 8)
    assert (min(chosen), max(chosen)) == (100, 1600)
    assert all(ratio < 1.2 for ratio in (b / a for a, b in pairwise(chosen)))


def test_a_fixed_batch_on_more_gpus_computes_less_on_each() -> None:
    """0.2 s on four GPUs; 0.1 + 0.05 s on eight, 0.1 + 0.4 s in two parts of 200 on one: 0.6 s."""
    assert slowdown(Batching.FIXED, 4) == pytest.approx(1)
    assert slowdown(Batching.FIXED, 8) == pytest.approx(0.15 / 0.2)
    assert slowdown(Batching.FIXED, 1) == pytest.approx(0.6 / 0.2)


def test_a_jobs_own_batch_counts_though_it_is_rigid() -> None:
    """200 on each GPU: 0.3 s, which is its best."""
    rigid = Job("r", 0.0, 2, 1000.0, model="cifar10", batch=400)
    costs = CostModel(TOPOLOGY, PROFILES)
    found = costs.prediction(rigid, ((0, 2),))
    assert found
    assert found.iteration_s == pytest.approx(0.3)
    assert costs.cost(rigid, ((0, 2),)).slowdown == pytest.approx(1)


def test_a_batch_that_grows_with_the_gpus_keeps_its_pace_and_loses_worth() -> None:
    """Steps of 800 take as long as those of 400 and are worth 2 * (1600 / 2300) / mean of 400."""
    mean = mean_efficiency(LEARNING, 400)
    assert slowdown(Batching.LINEAR, 8, done=0.5) == pytest.approx(mean / 2 / (1600 / 2300))
    assert slowdown(Batching.LINEAR, 8, done=0.0) == pytest.approx(mean / 2 / (200 / 900))


def test_its_own_batch_takes_its_duration_over_all_phases() -> None:
    parts = ((0.25, 0.0), (0.75, 0.5))
    assert sum(part * slowdown(Batching.LINEAR, 4, done) for part, done in parts) == pytest.approx(1)


def test_the_chosen_batch_is_never_worse() -> None:
    for gpus in (1, 2, 4, 8, 16):
        for done in (0.0, 0.5):
            best = slowdown(Batching.GOODPUT, gpus, done)
            assert best <= slowdown(Batching.LINEAR, gpus, done) * 1.01


def test_costs_change_at_the_end_of_phases_where_the_batch_varies() -> None:
    costs = CostModel(TOPOLOGY, PROFILES, batching=Batching.LINEAR)
    assert [costs.changes_at(JOB, done) for done in (0, 0.1, 0.25, 0.8)] == [0.25, 0.25, 1.0, 1.0]
    assert costs.changes_at(replace(JOB, kind=JobKind.RIGID, min_gpus=None, max_gpus=None), 0) == 1
    assert CostModel(TOPOLOGY, PROFILES).changes_at(JOB, 0) == 1
    assert CostModel(TOPOLOGY, batching=Batching.LINEAR).changes_at(JOB, 0) == 1, "nothing is known of it"
