"""Batches and learning rates by ONES's rule."""

import pytest

from dally.profiles.goodput import Batching, batches
from dally.profiles.schema import Learning
from workloads.elastic.rules import Ramp, Size, most_ranks, size_on
from workloads.settings import BatchRule, Elastic


def linear(
    tmp_path_factory: pytest.TempPathFactory, max_batch: int | None = None, max_lr: float | None = None
) -> Elastic:
    ranks = tmp_path_factory.mktemp("job") / "ranks"
    return Elastic(ranks, rule=BatchRule.LINEAR, max_batch=max_batch, max_lr=max_lr)


def test_keep_holds_the_batch_and_leaves_the_learning_rate(tmp_path_factory: pytest.TempPathFactory) -> None:
    keep = Elastic(tmp_path_factory.mktemp("job") / "ranks")
    assert [size_on(keep, 32, 0.05, ranks) for ranks in (1, 3)] == [Size(32), Size(32)]
    assert most_ranks(keep, 32, 0.05) == 32


def test_linear_grows_both_till_the_highest_learning_rate(tmp_path_factory: pytest.TempPathFactory) -> None:
    rule = linear(tmp_path_factory, max_lr=0.15)
    sizes = [size_on(rule, 32, 0.05, ranks) for ranks in (1, 2, 3, 4, 5)]
    assert [size.batch for size in sizes] == [32, 64, 96, 96, 95]  # 96 // 5 * 5
    assert [size.lr for size in sizes] == pytest.approx([0.05, 0.1, 0.15, 0.15, 0.15])
    assert most_ranks(rule, 32, 0.05) == 96


def test_the_largest_batch_holds_the_learning_rate_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    rule = linear(tmp_path_factory, max_batch=48)
    size = size_on(rule, 32, 0.1, 4)
    assert size.batch == 48
    assert size.lr == pytest.approx(0.15)
    assert most_ranks(linear(tmp_path_factory), 32, 0.1) == float("inf")


def test_a_ramp_is_straight_and_ends() -> None:
    ramp = Ramp(0.1, 0.3, since=10, steps=4)
    assert [ramp.at(done) for done in (10, 11, 13, 14, 99)] == pytest.approx([0.15, 0.2, 0.3, 0.3, 0.3])


def test_a_batch_of_four_ranks_is_a_quarter_on_one_and_twice_as_large_on_eight(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    ranks = tmp_path_factory.mktemp("job") / "ranks"
    rule = Elastic(ranks, rule=BatchRule.LINEAR, max_batch=192, asked_ranks=4)
    sizes = [size_on(rule, 128, 0.4, ranks) for ranks in (1, 4, 8)]
    assert [size.lr for size in sizes] == pytest.approx([0.1, 0.4, 0.6])
    learning = Learning(128, 192, 192, 1, 1e6, (1.0,), (100.0,), (0.0,))
    assert [size.batch for size in sizes] == [32, 128, 192]
    planned = [batches(learning, Batching.LINEAR, 128, 4, gpus)[0] for gpus in (1, 4, 8)]
    assert planned == [size.batch for size in sizes], "as the policy plans it"
