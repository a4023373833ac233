"""The operators of the evolution on candidates small enough to write down."""

from dataclasses import replace

import numpy as np
import pytest

from dally.policies.ones.operators import count_gpus, crossover, lay_out, middles, mutate, pad, score, trim
from tests.dally.policies.ones.job_arrays import arrays

GENES = np.array([[0, 1, 0, 2], [2, 2, 1, 1]])
"""Two candidates of two jobs on four GPUs; 2 is idle."""


def test_gpus_and_their_mean_places_are_counted_by_job() -> None:
    counts = count_gpus(GENES, 2)
    assert counts.tolist() == [[2, 1], [0, 2]]
    assert middles(GENES, counts).tolist() == [[1.0, 1.0], [np.inf, 2.5]]


def test_reordering_makes_blocks_in_the_order_of_their_middles() -> None:
    genes = np.array([[1, 0, 1, 2, 0, 0]])
    counts = count_gpus(genes, 2)
    assert lay_out(counts, middles(genes, counts), 6).tolist() == [[1, 1, 0, 0, 0, 2]]


def test_trimming_keeps_to_limits_and_drops_who_has_too_few() -> None:
    jobs = arrays(capacity=8, least=[1, 3, 2], most=[4, 4, 4], limit=[2, 4, 4], step=[1, 1, 2])
    assert trim(np.array([[3, 2, 3]]), np.array([[0.0, 1.0, 2.0]]), jobs).tolist() == [[2, 0, 2]]


def test_trimming_drops_who_lies_last_when_gpus_are_gone() -> None:
    jobs = arrays(capacity=3, least=[1, 1], most=[4, 4])
    assert trim(np.array([[2, 2]]), np.array([[5.0, 1.0]]), jobs).tolist() == [[0, 2]]


def test_padding_gives_to_new_jobs_in_order_then_up_to_limits_by_work_left_then_beyond() -> None:
    """Of 7 GPUs the new job gets 1, the short one its limit of 2, the long one 2, the short one 2 more."""
    jobs = arrays(7, [1, 1, 1], [4, 4, 1], [2, 2, 1], new=[False, False, True], left_s=[900.0, 100.0, 0.0])
    assert pad(np.zeros((1, 3), np.int64), jobs).tolist() == [[2, 4, 1]]


def test_padding_in_turns_gives_all_their_fewest_first_and_doubles_from_there() -> None:
    """Of 8 GPUs both get 1 and then 2; the short one 4, and what is left."""
    jobs = arrays(8, [1, 1], [8, 8], left_s=[900.0, 100.0])
    assert pad(np.zeros((1, 2), np.int64), jobs).tolist() == [[4, 4]]
    assert pad(np.zeros((1, 2), np.int64), replace(jobs, capacity=7)).tolist() == [[3, 4]]
    assert pad(np.zeros((1, 2), np.int64), jobs, in_turns=False).tolist() == [[0, 8]]


def test_padding_gives_whole_gangs_or_nothing() -> None:
    jobs = arrays(capacity=5, least=[4, 4, 1], most=[4, 4, 1], new=[True, True, True])
    assert pad(np.zeros((2, 3), np.int64), jobs).tolist() == [[4, 0, 1]] * 2


def test_padding_keeps_shares_whole() -> None:
    jobs = arrays(capacity=5, least=[2], most=[8], step=[2])
    assert pad(np.array([[2]]), jobs).tolist() == [[4]]


@pytest.mark.parametrize(("exchanged", "children"), [(0.0, {(0, 0, 0), (1, 1, 1)}), (0.5, None)])
def test_a_crossover_exchanges_genes_gpu_by_gpu(
    exchanged: float, children: set[tuple[int, ...]] | None
) -> None:
    parents = np.array([[0, 0, 0], [1, 1, 1]])
    found = crossover(parents, exchanged, np.random.default_rng(1))
    assert found.sum(0).tolist() == [1, 1, 1]
    assert children is None or {tuple(child) for child in found.tolist()} == children


def test_a_mutation_removes_old_jobs_only() -> None:
    jobs = arrays(capacity=4, least=[1, 1], most=[4, 4], new=[True, False])
    assert mutate(GENES, jobs, 1.0, np.random.default_rng(0)).tolist() == [[0, 2, 0, 2], [2, 2, 2, 2]]
    assert mutate(GENES, jobs, 0.0, np.random.default_rng(0)).tolist() == GENES.tolist()


def test_the_score_is_gpu_seconds_left_of_all_or_of_those_that_run() -> None:
    """A job whose speed is its GPUs has its work left in GPU-seconds, on however many; the last is rigid."""
    jobs = arrays(capacity=4, least=[1, 1, 2], most=[4, 4, 2], left_s=[100.0, 40.0, 10.0])
    counts = np.array([[3, 1, 0], [0, 2, 0], [0, 0, 2]])
    assert score(counts, jobs).tolist() == [140.0, 140.0, 150.0]
    assert score(counts, jobs, of_all=False).tolist() == [140.0, 40.0, 10.0]


def test_the_score_counts_what_changes_of_running_jobs_cost() -> None:
    """A resize costs 3 s on the new GPUs, a stop 10 s on the old ones; who waits starts for nothing."""
    jobs = arrays(8, [1, 1, 1], [4, 4, 4], left_s=[0.0] * 3, held=[2, 4, 0], resize_s=3.0, restart_s=10.0)
    assert score(np.array([[2, 4, 2], [3, 4, 0], [2, 0, 4]]), jobs).tolist() == [0.0, 9.0, 40.0]
