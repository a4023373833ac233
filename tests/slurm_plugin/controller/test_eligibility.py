"""What keeps a job from starting whatever is free, in the words that its user reads."""

from collections import Counter
from collections.abc import Iterator

import pytest

from dally.jobs.job import CHECKPOINTED, Job
from slurm_plugin.client.slurm import Hold, SlurmJob, State
from slurm_plugin.controller.eligibility import SeenJobs, ineligible_reason, never_satisfied, satisfied
from slurm_plugin.controller.managed_job import NEW, IneligiblePhase, ManagedJob
from slurm_plugin.request import Request

WAITS = "waits for jobs it depends on"


def ended(job_id: str, how: str, exit_code: int = 0, array_id: str = "") -> SlurmJob:
    return SlurmJob(job_id, 1.0, State.ENDED, how, exit_code=exit_code, array_id=array_id)


def said(dependency: str, *others: SlurmJob, why: str = NEW, reason: str = "JobHeldUser") -> str:
    """Why a held job with a dependency may not start."""
    managed = ManagedJob(Job("9", 5.0, 8, 100.0), Request(), IneligiblePhase(7.0, why))
    hold = Hold.ADMIN if reason == "JobHeldAdmin" else Hold.USER
    job = SlurmJob("9", 5.0, State.PENDING, "PENDING", reason, hold, dependency=dependency)
    jobs = {other.job_id: other for other in (*others, job)}
    return ineligible_reason(managed, job, Counter(), 10.0, SeenJobs(jobs))


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


def test_a_dependency_of_100_kb_is_told_in_short() -> None:
    """Each task of an array has a reason, and all of them are on the pages and in the journal."""
    long = ",".join(f"afterany:{number}(unfulfilled)" for number in range(2, 5000))
    assert len(said(f"{long},afterok:1(unfulfilled)", ended("1", "FAILED", 1))) < 300


@pytest.mark.parametrize(
    ("dependency", "reason"),
    [
        ("afterok:1(failed)", "JobHeldUser"),
        ("afterok:1(failed)", "JobHeldAdmin"),
        ("afterok:1", "DependencyNeverSatisfied"),
    ],
)
def test_what_slurm_itself_says_of_a_dependency_counts(dependency: str, reason: str) -> None:
    assert said(dependency, reason=reason).startswith("DependencyNeverSatisfied: ")


def test_of_dependencies_any_of_which_is_enough_one_may_fail() -> None:
    assert said("afterok:1(failed)?afterany:2(unfulfilled)", ended("2", "FAILED", 1)) == ""


def test_a_hold_that_slurm_left_behind_is_told_from_an_administrators() -> None:
    assert said("afterok:2(unfulfilled)", reason="JobHeldAdmin") == "held by an administrator"
    never = said("afterok:1(failed)", reason="JobHeldAdmin")
    left = said("afterok:2(unfulfilled)", reason="JobHeldAdmin", why=never)
    assert left == "Slurm holds it since its dependency could not come; an administrator can release it"
    assert said("", reason="JobHeldAdmin", why=left) == left


@pytest.mark.parametrize(
    ("dependency", "other"),
    [
        ("afterok:1(unfulfilled)", SlurmJob("1", 1.0, State.RUNNING, "RUNNING")),
        ("afterok:1(unfulfilled)", ended("12", "FAILED", 1)),
        ("afterok:1(unfulfilled)", ended("1", "FAILED", CHECKPOINTED)),
        ("afterok:1(unfulfilled)?afterok:2(unfulfilled)", ended("1", "FAILED", 1)),
        ("afterany:1(unfulfilled)", ended("1", "FAILED", CHECKPOINTED)),
        ("afterok:1(unfulfilled),afterok:2(unfulfilled)", ended("1", "COMPLETED")),
        ("afterok:1_*(unfulfilled)", ended("1_4", "COMPLETED", array_id="1")),
        ("after:1+5(unfulfilled)", ended("1", "COMPLETED")),
        ("after:1(unfulfilled)", SlurmJob("1", 1.0, State.PENDING, "PENDING")),
        ("afterany:1_*(unfulfilled)", SlurmJob("1_4", 1.0, State.RUNNING, "RUNNING", array_id="1")),
        ("afterany:1_*(unfulfilled)", ended("1", "COMPLETED")),
        ("singleton(unfulfilled)", SlurmJob("1", 7.0, State.PENDING, "PENDING")),
        ("singleton(unfulfilled)", SlurmJob("12", 1.0, State.RUNNING, "RUNNING")),
    ],
)
def test_a_dependency_that_may_still_be_satisfied_is_waited_for(dependency: str, other: SlurmJob) -> None:
    assert said(dependency, other) == WAITS


@pytest.mark.parametrize(
    ("dependency", "others"),
    [
        ("afterok:1(unfulfilled)", [ended("1", "COMPLETED")]),
        ("afterok:1_4(unfulfilled)", [ended("1_4", "COMPLETED", array_id="1")]),
        ("afternotok:1(unfulfilled)", [ended("1", "CANCELLED")]),
        ("afterany:1(unfulfilled)", [ended("1", "FAILED", 1)]),
        ("afterok:1(unfulfilled)?afterok:2(unfulfilled)", [ended("2", "COMPLETED")]),
        ("afterok:1(unfulfilled),afterany:2", [ended("1", "COMPLETED"), ended("2", "FAILED", 1)]),
        ("after:1(unfulfilled)", [SlurmJob("1", 1.0, State.RUNNING, "RUNNING")]),
        ("afterany:1_*(unfulfilled)", [ended("1_4", "FAILED", 1, array_id="1")]),
        ("singleton(unfulfilled)", [ended("1", "FAILED", 1), SlurmJob("12", 1.0, State.PENDING, "PENDING")]),
        (
            "singleton(unfulfilled)",
            [
                SlurmJob("1", 1.0, State.RUNNING, "RUNNING", job_name="b"),
                SlurmJob("2", 1.0, State.RUNNING, user="b"),
            ],
        ),
    ],
)
def test_a_dependency_counts_as_satisfied_before_slurm_looks_at_it(
    dependency: str, others: list[SlurmJob]
) -> None:
    assert said(dependency, *others) == ""


class Array(list[SlurmJob]):
    """The tasks of one array, and how often somebody went through them."""

    walks = 0

    def __iter__(self) -> Iterator[SlurmJob]:
        self.walks += 1
        return super().__iter__()


@pytest.mark.parametrize("form", ["afterok:{}_*", "afternotok:{}_*", "afterany:{}_*"])
@pytest.mark.parametrize("own", ["", ",afterok:{}"])
def test_however_many_jobs_wait_for_an_array_its_tasks_are_gone_through_once(form: str, own: str) -> None:
    arrays = {array: Array([SlurmJob(f"{array}_1", 1.0, State.PENDING, "PENDING")]) for array in "12"}
    seen = SeenJobs({})
    seen.tasks_of = dict[str, list[SlurmJob]](arrays)
    for number in range(50):
        dependency = ",".join(map(form.format, arrays)) + own.format(100 + number)
        job = SlurmJob(f"{number}", 1.0, State.PENDING, dependency=dependency)
        managed = ManagedJob(Job(job.job_id, 5.0, 8, 100.0), Request(), IneligiblePhase(7.0, NEW))
        assert not satisfied(job, seen)
        assert not never_satisfied(managed, job, seen)
    assert all(tasks.walks <= 1 for tasks in arrays.values())
