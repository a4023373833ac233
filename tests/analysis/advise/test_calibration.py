"""The simulation of today's scheduler is held against the real starts."""

from pathlib import Path

import pytest

from analysis.advise.calibration import calibrate
from analysis.advise.simulated import Task, run
from tests.analysis.advise.histories import Row, site

ROWS = [Row(0, 0, 100, 8), Row(10, 100, 50, 8), Row(20, 180, 50, 8)]
"""Each needs the whole cluster: simulated waits are 0, 90 and 130 s, the last really started 30 s later."""

SLURM = "slurm:switch_wait_s=0"


def test_errors_are_those_of_the_starts(tmp_path: Path) -> None:
    here = site(tmp_path, ROWS)
    found = calibrate(here.history, [run(here, Task(SLURM))])
    assert found.wait_s == pytest.approx([0, 90, 130])
    assert found.real_wait_s == pytest.approx([0, 90, 160])
    assert found.error_s == pytest.approx(10)
    assert found.bias_s == pytest.approx(-10)
    assert found.mean_error == pytest.approx(-10 / (250 / 3 + 200 / 3))
    assert found.close == pytest.approx(2 / 3)


def test_the_closest_simulation_stands_for_today(tmp_path: Path) -> None:
    here = site(tmp_path, [Row(0, 0, 100, 8), Row(10, 150, 50, 8), Row(20, 100, 50, 8)])
    found = calibrate(here.history, [run(here, Task(policy)) for policy in ("fifo", "sjf", SLURM)])
    assert [each.policy for each in found.tried] == ["fifo", "sjf", SLURM]
    assert found.policy == "fifo"


def test_of_those_about_as_close_the_one_with_the_shortest_waits_stands_for_today(tmp_path: Path) -> None:
    here = site(tmp_path, [Row(0, 0, 100, 8), Row(10, 130, 100, 8), Row(20, 150, 60, 8)])
    found = calibrate(here.history, [run(here, Task(policy)) for policy in ("fifo", "sjf")])
    assert [each.error_s for each in found.tried] == pytest.approx([80 / 3, 80 / 3])
    assert [each.wait_s for each in found.tried] == pytest.approx([90, 230 / 3])
    assert found.policy == "sjf"


def test_jobs_without_a_start_are_simulated_but_not_compared(tmp_path: Path) -> None:
    here = site(tmp_path, [Row(50, 0, 100, 8), Row(60, 150, 50, 8)])
    found = calibrate(here.history, [run(here, Task(SLURM))])
    assert (found.jobs, list(found.wait_s), list(found.real_wait_s)) == (2, [90], [90])
