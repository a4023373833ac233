"""One step of the evolution: what must hold of the survivors, and that good schedules win."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.policies.ones.evolution import IDLE, evolve
from dally.policies.ones.job_arrays import JobArrays
from dally.policies.ones.knobs import OnesKnobs
from tests.dally.policies.ones.job_arrays import arrays, job_arrays

KNOBS = OnesKnobs(candidates=6)


@settings(max_examples=40, deadline=None)
@given(jobs=job_arrays(), seed=st.integers(0, 9))
def test_survivors_keep_to_sizes_and_capacity(jobs: JobArrays, seed: int) -> None:
    rng = np.random.default_rng(seed)
    generation = evolve(rng.integers(-1, 12, (6, 16)), jobs, KNOBS, rng)
    counts = generation.counts
    assert (counts.sum(1) <= jobs.capacity).all()
    assert (counts <= jobs.most).all()
    assert ((counts == 0) | (counts >= jobs.least)).all()
    assert (counts % jobs.step == 0).all()
    assert (np.diff(generation.scores) >= 0).all()
    for number, each in zip(jobs.numbers, counts.T, strict=True):
        assert ((generation.genes == number).sum(1) == each).all()
    assert ((generation.genes == IDLE).sum(1) == 16 - counts.sum(1)).all()


@settings(max_examples=20, deadline=None)
@given(jobs=job_arrays(), seed=st.integers(0, 9))
def test_no_gpu_stays_idle_that_somebody_could_use(jobs: JobArrays, seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = evolve(np.full((6, 16), IDLE), jobs, KNOBS, rng).counts
    idle = jobs.capacity - counts.sum(1, keepdims=True)
    more = np.where(counts == 0, jobs.least, jobs.step)
    assert ((idle < more) | (counts + more > jobs.most)).all()


def test_the_same_draws_give_the_same_survivors() -> None:
    jobs = arrays(capacity=8, least=[1] * 5, most=[4] * 5, left_s=[100.0, 200.0, 300.0, 400.0, 500.0])
    one, other = (evolve(np.full((6, 8), IDLE), jobs, KNOBS, np.random.default_rng([3, 1])) for _ in range(2))
    assert one.genes.tolist() == other.genes.tolist()


def test_jobs_that_are_gone_leave_their_gpus_to_others() -> None:
    jobs = arrays(capacity=4, least=[1], most=[4], numbers=[7])
    generation = evolve(np.array([[3, 3, 7, 7]] * 6), jobs, KNOBS, np.random.default_rng(0))
    assert (generation.genes == 7).all()


def test_short_jobs_take_the_place_of_a_long_one_after_a_few_steps() -> None:
    """Four GPUs, one job with much left that holds them all, and two with little."""
    jobs = arrays(capacity=4, least=[4, 2, 2], most=[4, 2, 2], left_s=[9000.0, 10.0, 20.0])
    genes = np.zeros((6, 4), np.int64)
    for step in range(8):
        generation = evolve(genes, jobs, KNOBS, np.random.default_rng([0, step]))
        genes = generation.genes
    assert generation.counts[0].tolist() == [0, 2, 2]


def test_what_is_stays_where_nothing_is_worth_a_change() -> None:
    """All GPUs are held, alike jobs wait, and the last candidates know nothing of who runs."""
    jobs = arrays(4, [2] * 4, [2] * 4, left_s=[50.0] * 4, held=[0, 2, 0, 2], restart_s=10.0)
    generation = evolve(np.full((6, 4), IDLE), jobs, KNOBS, np.random.default_rng(0))
    assert generation.counts[0].tolist() == [0, 2, 0, 2]
