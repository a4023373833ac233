"""A lazy sequence of jobs is a sequence like any other, and holds none of them."""

import pytest

from dally.jobs.job import Job
from dally.traces import assign_models, load_trace
from dally.traces.workload import LazyJobs, changed

THREE = LazyJobs(3, lambda number: Job(f"j{number}", number, 1, 10))


def test_it_is_indexed_sliced_and_iterated() -> None:
    assert [job.job_id for job in THREE] == ["j0", "j1", "j2"]
    assert THREE[-1].submit_s == 2
    assert [job.job_id for job in THREE[1:]] == ["j1", "j2"]
    assert list(THREE) == THREE
    with pytest.raises(IndexError):
        THREE[3]


def test_what_is_changed_stays_lazy_and_what_was_held_stays_held() -> None:
    doubled = changed(THREE, lambda job: Job(job.job_id, 2 * job.submit_s, 1, 10))
    assert isinstance(doubled, LazyJobs)
    assert [job.submit_s for job in doubled] == [0, 2, 4]
    assert changed(list(THREE), lambda job: job) == tuple(THREE)


def test_a_generated_workload_is_lazy_with_models_too() -> None:
    jobs = assign_models(load_trace("philly-like:jobs=10").jobs, "a=1", 0)
    assert isinstance(jobs, LazyJobs)
    assert {job.model for job in jobs} == {"a"}
