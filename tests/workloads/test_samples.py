"""The order of samples is the same for all numbers of ranks, and samples depend on their index alone."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.registry import WORKLOADS
from workloads.samples import Synthetic, share, take
from workloads.shares import local_batches
from workloads.task import make_task

COUNTS = st.integers(1, 50)


@given(st.integers(0, 200), st.integers(20, 60), st.lists(st.floats(0.2, 2), min_size=1, max_size=4))
def test_ranks_share_every_batch_without_gap_or_overlap(start: int, count: int, weights: list[float]) -> None:
    batch = take(start, count, 37, seed=1)
    parts = local_batches(count, len(weights), weights)
    shares = [share(batch, rank, parts) for rank in range(len(parts))]
    assert list(chain(*shares)) == batch
    assert tuple(map(len, shares)) == parts


@given(st.lists(COUNTS, min_size=1, max_size=10), COUNTS)
def test_the_order_does_not_depend_on_how_it_is_taken(counts: list[int], samples: int) -> None:
    taken: list[int] = []
    for count in counts:
        taken += take(len(taken), count, samples, seed=3)
    assert taken == take(0, sum(counts), samples, seed=3)


def test_every_epoch_has_every_sample_once_in_an_order_of_its_own() -> None:
    first, second = take(0, 50, 50, seed=5), take(50, 50, 50, seed=5)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert first != take(0, 50, 50, seed=6)


@pytest.mark.parametrize("name", ["resnet18", "gpt2", "ncf"])
def test_a_sample_depends_on_its_index_and_the_seed_alone(name: str) -> None:
    source = Synthetic(make_task(WORKLOADS[name]), seed=7)
    together = source.draw([5, 6, 7])
    single = source.draw([6])
    other = Synthetic(make_task(WORKLOADS[name]), seed=8).draw([6])
    for part in (0, 1):
        assert np.array_equal(together[part][1:2], single[part])
    assert not np.array_equal(single[0], other[0])


@pytest.mark.parametrize("name", WORKLOADS)
def test_made_up_samples_are_what_the_model_takes(name: str) -> None:
    task = make_task(WORKLOADS[name])
    for array, wanted in zip(Synthetic(task, 0).draw(range(64)), (task.inputs, task.targets), strict=True):
        assert array.shape == (64, *wanted.shape)
        assert array.dtype == wanted.dtype
        assert array.min() >= 0
        assert np.all(array.max(axis=0) < wanted.limits)
        assert len(np.unique(array)) > min(min(wanted.limits), 64) / 2
