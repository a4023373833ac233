"""Tickets: which job is which, and their way into the journal and back."""

import json
from dataclasses import replace
from math import inf

import pytest

from dally.jobs.job import CHECKPOINTED, Job
from dally.state import Past
from slurm_plugin.client.slurm import SlurmJob, State
from slurm_plugin.controller.tickets import (
    Standing,
    Stretch,
    Ticket,
    checkpointed,
    from_data,
    to_data,
)
from slurm_plugin.request import Request

TICKET = Ticket(
    Job("7", 5.0, 8, 100.0, gpus_per_machine=4),
    Request(model="vgg11", signal="USR1", tag="ab"),
    Standing.RUNNING,
    "rack has 8 free GPUs",
    6.0,
    gpus={"n1": 4, "n2": 4},
    past=Past(5.0, preemptions=1),
    stretch=Stretch(6.0, 7.0, 0.5, 6.0),
    left_nodes=("n3",),
    left_s=4.0,
    submit_s=5.0,
    min_nodes=2,
    by=("3",),
    hold_back=True,
)


def test_a_ticket_comes_back_from_json_as_it_was() -> None:
    for ticket in (TICKET, replace(TICKET, until_s=8.0, standing=Standing.ASIDE, stretch=None, left_s=-inf)):
        assert from_data(json.loads(json.dumps(to_data(ticket), allow_nan=False))) == ticket


def test_a_running_job_without_its_stretch_is_refused() -> None:
    with pytest.raises(ValueError, match="its stretch is None"):
        from_data(to_data(replace(TICKET, stretch=None)))


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
    assert TICKET.same_as(job, tag) is same


@pytest.mark.parametrize(
    ("standing", "state_name", "exit_code", "expected"),
    [
        (Standing.STOPPING, "FAILED", CHECKPOINTED, True),
        (Standing.STOPPING, "CANCELLED", CHECKPOINTED, False),
        (Standing.STOPPING, "FAILED", 1, False),
        (Standing.RUNNING, "FAILED", CHECKPOINTED, False),
    ],
)
def test_only_a_job_asked_to_stop_is_put_back_after_it_ended(
    standing: Standing, state_name: str, exit_code: int, expected: bool
) -> None:
    job = SlurmJob("7", 5.0, State.ENDED, state_name, exit_code=exit_code)
    assert checkpointed(replace(TICKET, standing=standing), job) is expected
