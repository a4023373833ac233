"""Managed jobs: which job is which, and their way into the journal and back."""

import json
from dataclasses import replace
from math import inf

import pytest

from dally.jobs.job import CHECKPOINTED, Job
from dally.state import JobHistory
from slurm_plugin.client.slurm import SlurmJob, State
from slurm_plugin.controller.managed_job import (
    JobPhase,
    ManagedJob,
    RunInterval,
    checkpointed,
    job_from_data,
    job_to_data,
)
from slurm_plugin.request import Request

MANAGED = ManagedJob(
    Job("7", 5.0, 8, 100.0, gpus_per_machine=4),
    Request(model="vgg11", signal="USR1", tag="ab"),
    JobPhase.RUNNING,
    "rack has 8 free GPUs",
    6.0,
    gpus={"n1": 4, "n2": 4},
    history=JobHistory(5.0, preemptions=1),
    interval=RunInterval(6.0, 7.0, 0.5, 6.0),
    left_nodes=("n3",),
    left_s=4.0,
    submit_s=5.0,
    min_nodes=2,
    preempted_for=("3",),
    rehold=True,
)


def test_a_managed_job_comes_back_from_json_as_it_was() -> None:
    for managed in (
        MANAGED,
        replace(MANAGED, until_s=8.0, phase=JobPhase.INELIGIBLE, interval=None, left_s=-inf),
    ):
        assert job_from_data(json.loads(json.dumps(job_to_data(managed), allow_nan=False))) == managed


def test_a_running_job_without_its_stretch_is_refused() -> None:
    with pytest.raises(ValueError, match="its interval is None"):
        job_from_data(job_to_data(replace(MANAGED, interval=None)))


@pytest.mark.parametrize(
    ("submit_s", "restarts", "tag", "same"),
    [
        (5.0, 0, "ab", True),
        (5.0, 0, "", True),  # its user has changed the comment
        (5.0, 0, "cd", True),
        (9.0, 1, "ab", True),
        (9.0, 0, "ab", True),  # requeued, by a Slurm that does not count it
        (9.0, 1, "", True),
        (9.0, 0, "", False),
        (9.0, 0, "cd", False),
        (9.0, 1, "cd", False),
    ],
)
def test_a_number_given_again_is_another_job(submit_s: float, restarts: int, tag: str, same: bool) -> None:
    job = SlurmJob("7", submit_s, State.PENDING, restarts=restarts)
    assert MANAGED.same_as(job, tag) is same


@pytest.mark.parametrize(
    ("phase", "state_name", "exit_code", "expected"),
    [
        (JobPhase.STOPPING, "FAILED", CHECKPOINTED, True),
        (JobPhase.STOPPING, "CANCELLED", CHECKPOINTED, False),
        (JobPhase.STOPPING, "FAILED", 1, False),
        (JobPhase.RUNNING, "FAILED", CHECKPOINTED, False),
    ],
)
def test_only_a_job_asked_to_stop_is_put_back_after_it_ended(
    phase: JobPhase, state_name: str, exit_code: int, expected: bool
) -> None:
    job = SlurmJob("7", 5.0, State.ENDED, state_name, exit_code=exit_code)
    assert checkpointed(replace(MANAGED, phase=phase), job) is expected
