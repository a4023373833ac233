"""How models learn, out of validation tables: noise scales that explain the measured paces."""

from pathlib import Path

import pytest

from dally.errors import InputError
from dally.profiles.goodput import mean_efficiency
from dally.profiles.imports.pollux import MODELS, TrainingCourse, fit_noise, learn, read_courses
from tests.dally.profiles.test_profile_imports import TABLES


def course(batch: int, noises: list[float], epoch: float = 100.0) -> TrainingCourse:
    """What would be measured with a batch if 10 was tuned and the noise scale were so in each epoch."""
    paces = [batch / 10 * (noise + 10) / (noise + batch) for noise in noises]
    iterations = [sum(epoch / pace for pace in paces[: count + 1]) for count in range(len(paces))]
    progress = [epoch * (count + 1) for count in range(len(paces))]
    return TrainingCourse(progress, iterations, [0.1 * (count + 1) for count in range(len(paces))])


def test_the_noise_scale_behind_the_paces_is_found() -> None:
    noises = [50.0, 200.0, 1000.0]
    learning = learn({batch: course(batch, noises) for batch in (10, 40, 160)}, most_local_batch=20)
    assert learning.noise == pytest.approx(noises, rel=1e-3)
    assert learning.done == pytest.approx([1 / 3, 2 / 3, 1])
    assert learning.metric == pytest.approx([0.1, 0.2, 0.3])
    assert (learning.batch, learning.most_batch, learning.epochs, learning.samples) == (10, 160, 3, 3000)
    assert mean_efficiency(learning, 160) == pytest.approx(300 / (course(160, noises).iterations[-1] * 16))


def test_epochs_are_put_together_to_twenty_phases() -> None:
    learning = learn({batch: course(batch, [100.0] * 45) for batch in (10, 20)}, 20)
    assert len(learning.done) == 20
    assert learning.noise == pytest.approx([100.0] * 20, rel=1e-3)


def test_a_batch_that_costs_nothing_has_the_largest_noise_scale() -> None:
    assert fit_noise(10, {20: 2.1, 40: 4.2}) > 1e6


@pytest.mark.parametrize("text", ["progress,iteration\n1,1\n", "progress,iteration,metric\n1,1,good\n"])
def test_a_table_of_another_kind_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="has no validation-BATCH"):
        read_courses(tmp_path)
    (tmp_path / "validation-10.csv").write_text(text)
    with pytest.raises(InputError, match=r"validation-10.csv must have numbers in progress, iteration"):
        read_courses(tmp_path)


@pytest.mark.trace
@pytest.mark.skipif(not TABLES.is_dir(), reason="no published tables in ../shared/throughputs")
@pytest.mark.parametrize("model", MODELS)
def test_published_batches_are_worth_what_was_measured(model: str) -> None:
    courses = read_courses(TABLES / "pollux" / "traces" / model)
    learning = learn(courses, 1)
    for batch, measured in courses.items():
        worth = learning.samples / (measured.iterations[learning.epochs - 1] * batch)
        assert mean_efficiency(learning, batch) == pytest.approx(worth, abs=0.025)
