"""The optimum of small instances by three ways, and that the study runs."""

from itertools import product

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings

from analysis.studies.jps import bound_s, draw_instance, main, optimum_s
from dally.policies.jps.instance import Instance
from dally.policies.jps.search import Search
from dally.profiles.files import load_profiles
from tests.dally.policies.jps.instances import BY_HAND, instances


def assignments_s(instance: Instance) -> float:
    """The least mean running time by trying each assignment of each worker, seconds; for tiny instances."""
    kinds = np.repeat(np.arange(len(instance.workers)), instance.workers)
    jobs = range(len(instance.work))
    best = np.inf
    for owners in product(jobs, repeat=len(kinds)):
        given = np.zeros(instance.speeds.shape, dtype=np.int64)
        np.add.at(given, (np.array(owners), kinds), 1)
        sizes = given.sum(axis=1)
        if (sizes >= instance.least).all() and (sizes <= instance.most).all():
            best = min(best, float(instance.times_s(given).mean()))
    return best


def test_the_optimum_of_the_instance_by_hand() -> None:
    assert optimum_s(BY_HAND) == pytest.approx(4)


@settings(max_examples=20, deadline=None)
@given(instance=instances(most_workers=5))
def test_the_optimum_is_the_best_of_all_assignments(instance: Instance) -> None:
    assert optimum_s(instance) == pytest.approx(assignments_s(instance))


@settings(max_examples=20, deadline=None)
@given(instance=instances())
def test_no_search_beats_the_optimum_and_the_bound_is_below_it(instance: Instance) -> None:
    best_s = optimum_s(instance)
    reached_s = Search(instance).guided(10).mean_s
    assert Search(instance).enumerated().mean_s >= best_s - 1e-9
    assert reached_s >= best_s - 1e-9
    assert bound_s(instance, reached_s) <= best_s + 1e-9


def test_guided_search_stays_within_the_published_distance_of_the_optimum() -> None:
    """Mean of twelve instances of four jobs on twelve workers."""
    rng = np.random.default_rng(4)
    measured, typed = load_profiles("realistic"), load_profiles("gavel")
    drawn = [draw_instance(4, 12, rng, measured, typed) for _ in range(12)]
    excess = [Search(each).guided(30).mean_s / optimum_s(each) - 1 for each in drawn]
    assert 0 <= np.mean(excess) < 0.0204


def test_the_study_prints_a_row_for_each_size_and_method() -> None:
    result = CliRunner().invoke(main, ["--seed", "1", "--instances", "1", "--most-workers", "9"])
    assert result.exit_code == 0, result.output
    assert "| 3, 9 | all categories |" in result.output
