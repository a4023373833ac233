"""What a new job is expected to take, by those like it that ended."""

import json

import pytest

from dally.job import Job
from dally.mechanisms.claims.history import History
from dally.state import JobState


def state(name: str, user: str = "", model: str = "", gpus: int = 1, ran_s: float = 0.0) -> JobState:
    job = Job(name, 0.0, gpus, 1.0, user=user, model=model)
    return JobState(job, order=0, origin_s=0.0, run_before_s=ran_s)


def after(*ended: JobState) -> History:
    history = History(unknown_s=3600.0)
    for job in ended:
        history.arrived(job)
        history.ended(job)
    return history


def expected_s(history: History, job: JobState) -> float:
    history.arrived(job)
    return history.expected_s(job)


PAST = (
    state("a", "ann", "vgg", 8, ran_s=1000.0),
    state("b", "ann", "vgg", 1, ran_s=10.0),
    state("c", "ann", "bert", 4, ran_s=1.0),
)


@pytest.mark.parametrize(
    ("like", "seconds"),
    [
        (state("n", "ann", "vgg", 8), 1000.0),
        (state("n", "ann", "vgg", 2), 100.0),
        (state("n", "ann", "gpt", 8), (1000 * 10 * 1) ** (1 / 3)),
        (state("n", "bob", "bert", 4), 1.0),
        (state("n", "bob", "bert", 2), 3600.0),
    ],
    ids=["all alike", "user and model", "user", "model and GPUs", "nobody"],
)
def test_the_most_telling_past_counts_by_its_geometric_mean(like: JobState, seconds: float) -> None:
    assert expected_s(after(*PAST), like) == pytest.approx(seconds)


def test_newer_jobs_count_more_than_old_ones() -> None:
    old = [state(f"o{number}", "ann", ran_s=10.0) for number in range(100)]
    new = [state(f"n{number}", "ann", ran_s=1000.0) for number in range(10)]
    assert 500 < expected_s(after(*old, *new), state("next", "ann")) < 1000


def test_what_is_expected_of_a_job_stays_while_others_end() -> None:
    history = after(state("a", "ann", ran_s=10.0))
    waiting = state("waits", "ann")
    assert expected_s(history, waiting) == pytest.approx(10.0)
    later = state("b", "ann", ran_s=1000.0)
    history.arrived(later)
    history.ended(later)
    assert history.expected_s(waiting) == pytest.approx(10.0)
    restored = History(unknown_s=3600.0)
    restored.restore(json.loads(json.dumps(history.snapshot())))
    assert expected_s(restored, waiting) == history.expected_s(waiting)
    assert expected_s(restored, state("new", "ann")) == pytest.approx(100.0)


def test_a_job_that_left_teaches_nothing() -> None:
    history = History(unknown_s=3600.0)
    gone = state("gone", "ann", ran_s=5.0)
    history.arrived(gone)
    history.left(gone)
    assert expected_s(history, state("next", "ann")) == pytest.approx(3600.0)
    assert list(history.snapshot()["expected_s"]) == ["next"]
