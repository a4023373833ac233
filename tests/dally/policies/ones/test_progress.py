"""What ONES sees of a job's training."""

from math import log

import pytest

from dally.jobs.job import Job
from dally.policies.ones.progress import Training
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.state import JobState
from dally.testing.worlds import racks


def test_a_job_without_learning_has_ten_epochs_of_its_duration_and_no_metric() -> None:
    training = Training.of(JobState(Job("a", 0.0, 1, 500.0), 0, 0.0), CostModel(racks([[1]])))
    assert (training.epochs, training.epoch_size) == (10, 50.0)
    assert training.features(0.25) == pytest.approx([log(50), 0, 2.5, 0, 0])


def test_learning_says_epochs_and_the_metric_of_the_phases_that_ended() -> None:
    costs = CostModel(racks([[1]]), load_profiles("pollux"))
    training = Training.of(JobState(Job("a", 0.0, 1, 500.0, model="bert"), 0, 0.0), costs)
    assert (training.epochs, training.epoch_size) == (2, 88644.0)
    assert training.features(0.4)[1:] == pytest.approx([0, 0.8, 0, 0])
    assert training.features(0.5)[1:] == pytest.approx([86.709, 1.0, 0, 86.709], rel=1e-3)


def test_the_raw_size_of_an_epoch_can_be_asked_for() -> None:
    training = Training(10, 5000.0, (), ())
    assert training.features(0.5, log_size=False)[0] == 5000
    assert training.history()[0][0][0] == pytest.approx(log(5000))


def test_a_job_with_epochs_of_its_own_learns_in_each_as_its_model_does() -> None:
    """The model tells its metric after one epoch of two; a job of eight has told both by its second."""
    costs = CostModel(racks([[1]]), load_profiles("pollux"))
    job = Job("a", 0.0, 1, 800.0, model="bert", epochs=8, epoch_samples=3600)
    training = Training.of(JobState(job, 0, 0.0), costs)
    assert (training.epochs, training.epoch_size, list(training.reported_at)) == (8, 3600, [1.0, 2.0])
    assert training.features(0.125)[-1] == pytest.approx(86.709, rel=1e-3)
    assert training.features(0.25)[-1] == training.features(0.9)[-1], "how far it is stays to be guessed"
