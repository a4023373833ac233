"""Which of our fences are ended, and when."""

import pytest

from slurm_plugin.client.slurm import Reservation
from slurm_plugin.controller.withheld import FENCE, idle_fences

OURS = Reservation(f"{FENCE}7_1", ("n1",), start_s=100.0, end_s=160.0)
THEIRS = Reservation("maintenance", ("n1",), start_s=100.0, end_s=160.0)


@pytest.mark.parametrize(("now", "ended"), [(100.9, []), (101.0, [OURS.name]), (160.0, [])])
def test_an_idle_fence_of_ours_is_ended_once_its_first_second_is_over(now: float, ended: list[str]) -> None:
    assert idle_fences([OURS, THEIRS], {}, now) == ended
