import pytest

from dally.jobs.job import Job
from dally.scheduling.likeness import by_history, stem


@pytest.mark.parametrize(
    ("one", "other"),
    [("train-17", "train-18"), ("lr0.01", "lr0.1"), ("bert_3_seed42", "bert_4_seed7"), ("a1b2", "a10b20")],
)
def test_names_that_differ_in_numbers_are_alike(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def test_other_names_are_not() -> None:
    assert len({stem(name) for name in ("train-1", "eval-1", "train", "train-", "1-train")}) == 5


def test_groups_are_nested_and_names_are_asked_only_of_jobs_that_have_one() -> None:
    named = by_history(Job("j", 0, 4, 1.0, user="u", job_name="train-1"))
    assert named[:3] == by_history(Job("k", 0, 4, 1.0, user="u"))
    assert named[0] == ()
    assert len(named) == 4
