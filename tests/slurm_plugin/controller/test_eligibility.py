"""What keeps a job from starting whatever is free, in the words that its user reads."""

from collections import Counter
from pathlib import Path

import pytest

from dally.jobs.job import CHECKPOINTED, Job
from slurm_plugin.client.slurm import Hold, SlurmJob, State
from slurm_plugin.controller.eligibility import ineligible_reason
from slurm_plugin.controller.managed_job import NEW, IneligiblePhase, JobPhase, ManagedJob
from slurm_plugin.request import Request
from tests.slurm_plugin.fake import FakeSlurm
from tests.slurm_plugin.fake_job import FakeJob
from tests.slurm_plugin.worlds import Site

WAITS = "waits for jobs it depends on"


def ended(job_id: str, how: str, exit_code: int = 0, array_id: str = "") -> SlurmJob:
    return SlurmJob(job_id, 1.0, State.ENDED, how, exit_code=exit_code, array_id=array_id)


def said(dependency: str, *others: SlurmJob, why: str = NEW, reason: str = "JobHeldUser") -> str:
    """Why a held job with a dependency may not start."""
    managed = ManagedJob(Job("9", 5.0, 8, 100.0), Request(), IneligiblePhase(7.0, why))
    job = SlurmJob("9", 5.0, State.PENDING, "PENDING", reason, Hold.USER, dependency=dependency)
    jobs = {other.job_id: other for other in (*others, job)}
    return ineligible_reason(managed, job, managed.request, Counter(), 10.0, jobs)


@pytest.mark.parametrize(
    ("dependency", "other"),
    [
        ("afterok:1(unfulfilled)", ended("1", "FAILED", 1)),
        ("afterok:1(unfulfilled)", ended("1", "CANCELLED")),
        ("afterany:3(unfulfilled),afterok:1(unfulfilled)", ended("1", "TIMEOUT")),
        ("afternotok:1(unfulfilled)", ended("1", "COMPLETED")),
        ("afterok:1_*(unfulfilled)", ended("1_4", "FAILED", 1, array_id="1")),
    ],
)
def test_a_dependency_that_can_never_be_satisfied_is_told_as_slurm_calls_it(
    dependency: str, other: SlurmJob
) -> None:
    why = said(dependency, other)
    assert why.startswith("DependencyNeverSatisfied: it waits for after")
    assert why.endswith(f"and job {other.job_id} is {other.state_name}")
    assert said(dependency, why=why) == why, "Slurm has forgotten the job it waits for"


@pytest.mark.parametrize(
    ("dependency", "reason"),
    [("afterok:1(failed)", "JobHeldUser"), ("afterok:1", "DependencyNeverSatisfied")],
)
def test_what_slurm_itself_says_of_a_dependency_counts(dependency: str, reason: str) -> None:
    assert said(dependency, reason=reason).startswith("DependencyNeverSatisfied: ")


@pytest.mark.parametrize(
    ("dependency", "other"),
    [
        ("afterok:1(unfulfilled)", SlurmJob("1", 1.0, State.RUNNING, "RUNNING")),
        ("afterok:1(unfulfilled)", ended("12", "FAILED", 1)),
        ("afterok:1(unfulfilled)", ended("1", "FAILED", CHECKPOINTED)),
        ("afterok:1(unfulfilled)?afterok:2(unfulfilled)", ended("1", "FAILED", 1)),
        ("afterany:1(unfulfilled)", ended("1", "FAILED", 1)),
        ("singleton(unfulfilled)", ended("1", "FAILED", 1)),
    ],
)
def test_a_dependency_that_may_still_be_satisfied_is_waited_for(dependency: str, other: SlurmJob) -> None:
    assert said(dependency, other) == WAITS


class Strict(FakeSlurm):
    """A Slurm whose partition allows less time than a job asks for."""

    def _try_to_start(self, job: FakeJob) -> str:
        return "PartitionTimeLimit" if job.spec.time_limit_s == 1e6 else super()._try_to_start(job)


def test_a_job_beyond_its_partitions_time_is_slurms_own_and_does_not_bounce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.slurm_plugin.worlds.FakeSlurm", Strict)
    site = Site(tmp_path)
    job = site.submit(gpus_per_node=8, time_limit_s=1e6)
    other = site.submit(nodes=4, gpus_per_node=8, run_time_s=50.0, time_limit_s=100.0)
    site.run_to(5000)
    assert site.managed(job).phase.name is JobPhase.RELEASED
    assert "PartitionTimeLimit" in site.managed(job).reason
    assert site.events("start_failed") == []
    (shown,) = (each for each in site.slurm.jobs() if each.job_id == job)
    assert (shown.hold, shown.required_nodes, shown.reason) == (Hold.NONE, (), "PartitionTimeLimit")
    assert site.events("end") == [("end", other)]
