from collections import Counter

import pytest

from dally.errors import InputError
from dally.jobs.job import Job
from dally.traces import assign_models, parse_mix

JOBS = [Job(f"j{at}", 0, 1, 1) for at in range(20_000)]


def test_shares_follow_the_normalised_weights() -> None:
    counts = Counter(job.model for job in assign_models(JOBS, "resnet50=3,bert-large=1", 1))
    assert counts["resnet50"] / len(JOBS) == pytest.approx(0.75, abs=0.01)
    assert sum(counts.values()) == len(JOBS)


def test_a_jobs_model_does_not_depend_on_other_jobs_or_the_order_of_the_mix() -> None:
    everything = assign_models(JOBS, "a=1,b=2", 5)
    assert assign_models(JOBS[50:60], "b=2,a=1", 5) == everything[50:60]
    assert assign_models(JOBS, "a=1,b=2", 6) != everything


def test_draws_are_the_same_in_every_version() -> None:
    assert "".join(job.model for job in assign_models(JOBS[:16], "a=1,b=1,c=1", 0)) == "abacccaaaacbaaaa"


def test_a_job_that_names_a_model_keeps_it() -> None:
    assert assign_models([Job("a", 0, 1, 1, model="own")], "b=1")[0].model == "own"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' must be like resnet50=0.3"),
        ("a", "'a' must be like"),
        ("=1", "'=1' must be like"),
        ("a=x", "weight of a is 'x', must be a positive number"),
        ("a=0", "weight of a is '0'"),
        ("a=nan", "weight of a is 'nan'"),
        ("a=inf", "weight of a is 'inf'"),
        ("a=1,a=2", "a is given twice"),
    ],
)
def test_a_wrong_mix_is_an_error(text: str, message: str) -> None:
    with pytest.raises(InputError, match=r"^model mix: ") as caught:
        parse_mix(text)
    assert message in str(caught.value)
