"""Which of our reservations are ended, and when."""

import pytest

from slurm_plugin.client.slurm import Reservation, SlurmJob, State
from slurm_plugin.controller.unavailable_gpus import (
    RESERVATION_PREFIX,
    idle_reservations,
    reservation_name,
    reserved_for,
)

OURS = Reservation(f"{RESERVATION_PREFIX}7_1", ("n1",), start_s=100.0, end_s=160.0)
THEIRS = Reservation("maintenance", ("n1",), start_s=100.0, end_s=160.0)


@pytest.mark.parametrize(("now", "ended"), [(100.9, []), (101.0, [OURS.name]), (160.0, [])])
def test_an_idle_reservation_of_ours_is_ended_once_its_first_second_is_over(
    now: float, ended: list[str]
) -> None:
    assert idle_reservations([OURS, THEIRS], {}, (), {}, now) == ended


@pytest.mark.parametrize(
    ("state", "ended"), [(State.PENDING, []), (State.RUNNING, []), (State.ENDED, [OURS.name])]
)
def test_the_start_of_another_controllers_job_keeps_its_reservation(state: State, ended: list[str]) -> None:
    job = SlurmJob("7", 50.0, state)
    assert idle_reservations([OURS], {}, (), {"7": job}, 120.0) == ended


@pytest.mark.parametrize(
    ("name", "job"),
    [
        (reservation_name("17", 5.2), "17"),
        (reservation_name("17_3", 5.2, early=True), "17_3"),
        ("dally_controller_gpu.head", ""),
        ("maintenance", ""),
    ],
)
def test_which_job_a_reservation_is_for(name: str, job: str) -> None:
    assert reserved_for(Reservation(name, ("n1",), 0.0, 60.0)) == job
