"""Managed jobs: which job is which, and which has ended to be requeued."""

from dataclasses import replace

import pytest

from dally.jobs.job import CHECKPOINTED, Job
from slurm_plugin.client.slurm import SlurmJob, State
from slurm_plugin.controller.managed_job import (
    AnyPhase,
    ManagedJob,
    RunInterval,
    RunningPhase,
    StoppingPhase,
    StopPurpose,
    checkpointed,
)
from slurm_plugin.request import Request

INTERVAL = RunInterval(6.0, 7.0, 0.5, 6.0)
STOPPING = StoppingPhase(8.0, "3 needs its GPUs", {"n1": 8}, INTERVAL, StopPurpose.PREEMPT, ("3",))
MANAGED = ManagedJob(
    Job("7", 5.0, 8, 100.0), Request(model="vgg11", signal="USR1", tag="ab"), STOPPING, submit_s=5.0
)


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
        (STOPPING, "FAILED", CHECKPOINTED, True),
        (STOPPING, "CANCELLED", CHECKPOINTED, False),
        (STOPPING, "FAILED", 1, False),
        (RunningPhase(6.0, "they are free", {"n1": 8}, INTERVAL), "FAILED", CHECKPOINTED, False),
    ],
)
def test_only_a_job_asked_to_stop_is_put_back_after_it_ended(
    phase: AnyPhase, state_name: str, exit_code: int, expected: bool
) -> None:
    job = SlurmJob("7", 5.0, State.ENDED, state_name, exit_code=exit_code)
    assert checkpointed(replace(MANAGED, phase=phase), job) is expected
