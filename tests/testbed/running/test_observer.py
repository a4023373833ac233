"""The observer writes down what changes, and takes what it wrote as seen."""

from pathlib import Path

import pytest

from testbed.running.observer import GONE_S, Observer, job_comment, read_observations
from tests.testbed.running.fakes import FakeTestbedCluster, running_job, shown_job

RUN = "demo-fifo-1"


class PollClock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def cluster(tmp_path: Path) -> FakeTestbedCluster:
    return FakeTestbedCluster(tmp_path)


def observer(cluster: FakeTestbedCluster, clock: PollClock) -> Observer:
    return Observer(cluster, RUN, ["a", "b"], cluster.folder / "observed.jsonl", clock)


def names(cluster: FakeTestbedCluster) -> list[tuple[str, str]]:
    return [
        (observed.job, observed.name) for observed in read_observations(cluster.folder / "observed.jsonl")
    ]


def test_only_changes_are_written_down(cluster: FakeTestbedCluster) -> None:
    eye = observer(cluster, PollClock())
    cluster.queue[7] = shown_job(7, job_comment(RUN, 1))
    eye.poll()
    eye.poll()
    cluster.queue[7] = running_job(7, job_comment(RUN, 1), 1001, "r1h1", 2)
    eye.poll()
    assert names(cluster) == [("b", "PENDING"), ("b", "RUNNING")]
    assert eye.last["b"].gpus == {"r1h1": 2}


def test_jobs_of_others_are_not_seen(cluster: FakeTestbedCluster) -> None:
    eye = observer(cluster, PollClock())
    comments = (
        "",
        f"testbed:{RUN}x:1",
        job_comment("other", 1),
        job_comment(RUN, 2),
        f"x{job_comment(RUN, 1)}",
        f"{job_comment(RUN, 1)}0",
    )
    cluster.queue = {number: shown_job(number, comment) for number, comment in enumerate(comments, 1)}
    eye.poll()
    assert names(cluster) == []


def test_a_job_that_dally_sbatch_submitted_is_known_too(cluster: FakeTestbedCluster) -> None:
    eye = observer(cluster, PollClock())
    cluster.queue[7] = shown_job(7, f"dally:model=x&tag=1 {job_comment(RUN, 0)}")
    eye.poll()
    assert names(cluster) == [("a", "PENDING")]


def test_another_observer_goes_on_where_the_first_was(cluster: FakeTestbedCluster) -> None:
    cluster.queue[7] = shown_job(7, job_comment(RUN, 1))
    observer(cluster, PollClock()).poll()
    observer(cluster, PollClock()).poll()
    assert names(cluster) == [("b", "PENDING")]


def test_a_slurm_that_does_not_answer_changes_nothing(cluster: FakeTestbedCluster) -> None:
    eye = observer(cluster, PollClock())
    cluster.queue[7] = shown_job(7, job_comment(RUN, 1))
    eye.poll()
    cluster.answers = False
    assert not eye.poll()
    assert "contact" in eye.failure
    assert names(cluster) == [("b", "PENDING")]


def test_a_job_that_slurm_shows_no_more_is_gone_after_a_while(cluster: FakeTestbedCluster) -> None:
    clock = PollClock()
    eye = observer(cluster, clock)
    eye.expect("a", "3", 990.0)
    eye.poll()
    assert not eye.last["a"].ended
    clock.now_s += GONE_S
    eye.poll()
    assert (eye.last["a"].ended, eye.last["a"].name) == (True, "GONE")
