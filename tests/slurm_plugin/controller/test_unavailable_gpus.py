"""Which of our reservations are ended, and when."""

import pytest

from slurm_plugin.client.slurm import Reservation
from slurm_plugin.controller.unavailable_gpus import RESERVATION_PREFIX, idle_reservations

OURS = Reservation(f"{RESERVATION_PREFIX}7_1", ("n1",), start_s=100.0, end_s=160.0)
THEIRS = Reservation("maintenance", ("n1",), start_s=100.0, end_s=160.0)


@pytest.mark.parametrize(("now", "ended"), [(100.9, []), (101.0, [OURS.name]), (160.0, [])])
def test_an_idle_reservation_of_ours_is_ended_once_its_first_second_is_over(
    now: float, ended: list[str]
) -> None:
    assert idle_reservations([OURS, THEIRS], {}, (), now) == ended
