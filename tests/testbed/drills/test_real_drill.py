"""A drill on a real Slurm with real jobs: the controller is killed again and again."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dally.jobs.job import Job
from testbed.drills.catalogue import DRILLS, kill_controller
from testbed.drills.drill import hold_drill
from testbed.drills.report import write_report
from testbed.drills.workload import WIDE
from tests.patience import LONGEST_S

KILLS = 2


@pytest.mark.slurm
def test_no_job_is_lost_when_the_controller_is_killed(tmp_path: Path) -> None:
    drill = next(drill for drill in DRILLS if drill.name == "controller-kill")

    shorter = replace(
        drill,
        breaks=partial(kill_controller, kills=KILLS),
        back_within_s=LONGEST_S,
        shows={"controller_starts": KILLS + 1},
    )
    # The longer one trains through both kills, however long a busy machine takes to start a controller.
    jobs = [Job(WIDE, 0.0, 2, 60.0, model="mobilenetv3"), Job("b", 1.0, 1, 6.0, model="mobilenetv3")]
    outcome = hold_drill(shorter, tmp_path, 1, lambda: False, jobs)
    assert [check for check in outcome.checks if not check.passed] == []
    write_report(tmp_path, [outcome])
    assert json.loads((tmp_path / "drills.json").read_text())["passed"]
    assert len(outcome.faults) == KILLS
