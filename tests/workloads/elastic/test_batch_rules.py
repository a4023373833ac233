"""Batches and learning rates by ONES's rule."""

import pytest

from dally.jobs.job import Job, JobKind
from dally.jobs.progress import ProgressReport, ReportedProgress, Throughput
from dally.profiles.goodput import Batching, batches
from dally.profiles.reported_speeds import reported_speeds
from dally.profiles.schema import Learning
from workloads.elastic.batch_rules import BatchSize, LearningRateRamp, Tuning, most_ranks, size_on
from workloads.settings import BatchRule, Elastic


def linear(
    tmp_path_factory: pytest.TempPathFactory, max_batch: int | None = None, max_lr: float | None = None
) -> Elastic:
    ranks = tmp_path_factory.mktemp("job") / "ranks"
    return Elastic(ranks, rule=BatchRule.LINEAR, max_batch=max_batch, max_lr=max_lr)


def test_keep_holds_the_batch_and_leaves_the_learning_rate(tmp_path_factory: pytest.TempPathFactory) -> None:
    keep = Elastic(tmp_path_factory.mktemp("job") / "ranks")
    assert [size_on(keep, 32, 0.05, ranks) for ranks in (1, 3)] == [BatchSize(32), BatchSize(32)]
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
    ramp = LearningRateRamp(0.1, 0.3, since=10, steps=4)
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


OWN, MOST, NOISE = 64, 512, 400.0


def measured(tuning: Tuning, per_sample_s: float, per_step_s: float) -> None:
    """Steps on two ranks and on four."""
    for ranks in (2, 4):
        for _ in range(20):
            tuning.note(ranks, OWN, per_sample_s * OWN / ranks + per_step_s)


def test_while_nothing_is_known_the_batch_is_its_own() -> None:
    tuning = Tuning()
    assert tuning.best(OWN, MOST, 4, NOISE) == OWN
    measured(tuning, 0.001, 0.1)
    assert tuning.best(OWN, MOST, 4, None) == OWN
    assert tuning.best(OWN, OWN, 4, NOISE) == OWN


def test_steps_that_cost_much_each_are_worth_larger_batches_and_on_more_ranks_still_larger() -> None:
    dear, cheap = Tuning(), Tuning()
    measured(dear, 0.001, 0.1)
    measured(cheap, 0.001, 0.0)
    assert cheap.best(OWN, MOST, 4, NOISE) == OWN
    assert OWN < dear.best(OWN, MOST, 1, NOISE) < dear.best(OWN, MOST, 8, NOISE) <= MOST
    assert dear.best(OWN, MOST, 8, 10.0) < dear.best(OWN, MOST, 8, NOISE)


def test_it_is_the_batch_by_which_the_policy_plans() -> None:
    per_sample_s, per_step_s = 0.001, 0.1
    tuning = Tuning()
    measured(tuning, per_sample_s, per_step_s)
    steps_s = {ranks: per_sample_s * OWN / ranks + per_step_s for ranks in (2, 4)}
    throughputs = tuple(
        Throughput("h100", ranks, OWN, OWN * 20, step_s * 20) for ranks, step_s in steps_s.items()
    )
    report = ProgressReport(0.0, 100.0, 10_000.0, OWN, 1000.0, MOST, noise=NOISE)
    speeds = reported_speeds(ReportedProgress(report, 0.0, 0.0, throughputs, batch=OWN))
    assert speeds is not None
    assert speeds.learning is not None
    job = Job("a", 0.0, 2, 1.0, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=8)
    best = tuning.best(OWN, MOST, 8, NOISE)
    planned = speeds.learning_slowdown(job, ("h100",), ("h100",), 8, speeds.learning, Batching.GOODPUT)
    progress = tuning.gain(best, OWN, NOISE) * OWN / (per_sample_s * best / 8 + per_step_s)
    asked = OWN / (per_sample_s * OWN / 2 + per_step_s)
    assert asked / progress == pytest.approx(planned, rel=0.01)


def test_what_was_measured_is_taken_back() -> None:
    tuning, other = Tuning(), Tuning()
    measured(tuning, 0.001, 0.1)
    other.restore(tuning.plain())
    assert other.best(OWN, MOST, 8, NOISE) == tuning.best(OWN, MOST, 8, NOISE) > OWN


def test_the_learning_rate_goes_with_what_a_step_is_worth(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("job") / "ranks"
    rule = Elastic(folder, rule=BatchRule.GOODPUT, max_batch=MOST)
    tuning = Tuning()
    assert size_on(rule, OWN, 0.05, 4) == BatchSize(OWN, 0.05)
    measured(tuning, 0.001, 0.1)
    size = size_on(rule, OWN, 0.05, 6, (tuning, NOISE))
    assert size.batch == tuning.best(OWN, MOST, 6, NOISE) > OWN
    assert size.lr is not None
    gain = size.batch / OWN * (NOISE + OWN) / (NOISE + size.batch)
    assert size.lr == pytest.approx(0.05 * gain)
    assert most_ranks(rule, OWN, 0.05) == OWN
