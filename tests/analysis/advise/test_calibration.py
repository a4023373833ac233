"""The simulation of today's scheduler is held against the real starts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.advise.calibration import CHANCE, calibrate
from analysis.advise.simulated import SimulationTask, run
from tests.analysis.advise.histories import Row, site

ROWS = [Row(0, 0, 100, 8), Row(10, 100, 50, 8), Row(20, 180, 50, 8)]
"""Each needs the whole cluster: simulated waits are 0, 90 and 130 s, the last really started 30 s later."""

SLURM = "slurm:switch_wait_s=0"


def test_errors_are_those_of_the_starts(tmp_path: Path) -> None:
    here = site(tmp_path, ROWS)
    found = calibrate(here.history, [run(here, SimulationTask(SLURM))])
    assert found.wait_s == pytest.approx([0, 90, 130])
    assert found.real_wait_s == pytest.approx([0, 90, 160])
    assert found.error_s == pytest.approx(10)
    assert found.bias_s == pytest.approx(-10)
    assert found.mean_error == pytest.approx(-10 / (250 / 3 + 200 / 3))
    assert found.close == pytest.approx(2 / 3)


def test_the_closest_simulation_stands_for_today(tmp_path: Path) -> None:
    here = site(tmp_path, [Row(0, 0, 100, 8), Row(10, 150, 50, 8), Row(20, 100, 50, 8)])
    found = calibrate(here.history, [run(here, SimulationTask(policy)) for policy in ("fifo", "sjf", SLURM)])
    assert [each.policy for each in found.tried] == ["fifo", "sjf", SLURM]
    assert found.policy == "fifo"


def test_of_those_about_as_close_the_one_with_the_shortest_waits_stands_for_today(tmp_path: Path) -> None:
    here = site(tmp_path, [Row(0, 0, 100, 8), Row(10, 130, 100, 8), Row(20, 150, 60, 8)])
    found = calibrate(here.history, [run(here, SimulationTask(policy)) for policy in ("fifo", "sjf")])
    assert [each.error_s for each in found.tried] == pytest.approx([80 / 3, 80 / 3])
    assert [each.wait_s for each in found.tried] == pytest.approx([90, 230 / 3])
    assert found.policy == "sjf"


def test_jobs_without_a_start_are_simulated_but_not_compared(tmp_path: Path) -> None:
    here = site(tmp_path, [Row(50, 0, 100, 8), Row(60, 150, 50, 8)])
    found = calibrate(here.history, [run(here, SimulationTask(SLURM))])
    assert (found.jobs, list(found.wait_s), list(found.real_wait_s)) == (2, [90], [90])


@pytest.mark.parametrize(
    ("wait_s", "real_wait_s", "unexplained", "resembles"),
    [
        ([0, 100], [0, 100], 0, True),
        ([0, 80], [0, 100], 0.2, True),
        ([0, 200], [0, 100], 0.5, True),
        ([100, 0], [0, 100], 1, False),
        ([0, 0], [0, 100], 1, False),
        ([0, 0], [0, 0], 0, True),
        ([0, 0], [1, 3], 1, True),
    ],
)
def test_what_real_and_simulated_waits_have_not_in_common_is_unexplained(
    tmp_path: Path, wait_s: list[float], real_wait_s: list[float], unexplained: float, resembles: bool
) -> None:
    here = site(tmp_path, [Row(0, 0, 1000, 8), Row(0, 1000, 1000, 8)])
    found = replace(
        calibrate(here.history, [run(here, SimulationTask(SLURM))]),
        wait_s=np.array(wait_s, dtype=float),
        real_wait_s=np.array(real_wait_s, dtype=float),
    )
    assert found.unexplained == pytest.approx(unexplained)
    assert found.resembles == resembles


def test_waits_dealt_out_by_chance_do_not_resemble(tmp_path: Path) -> None:
    here, random = site(tmp_path, [Row(0, 0, 100, 8)]), np.random.default_rng(1)
    waits_s = random.exponential(1000.0, (2, 20_000))
    base = calibrate(here.history, [run(here, SimulationTask(SLURM))])
    found = replace(base, wait_s=waits_s[0], real_wait_s=waits_s[1], run_s=np.full(20_000, 100.0))
    assert found.unexplained == pytest.approx(CHANCE, abs=0.01)
    assert not found.resembles
