"""A live run is simulated with what its schedulers knew, and Slurm set as it was."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge
from dally.policies.slurm.policy import SlurmKnobs
from testbed.fidelity.live_run import read_live_run
from testbed.fidelity.simulated_run import load_again, policy_again
from tests.testbed.fidelity.live_folders import Change, live_folder

JOBS = [Job("j0", 0.0, 2, 100.0, model="resnet18"), Job("j1", 1.0, 2, 50.0, model="resnet18")]


@pytest.mark.parametrize(("limit_s", "knowledge"), [(600.0, Knowledge.LIMITS), (None, Knowledge.EXACT)])
def test_schedulers_know_the_limits_that_slurm_knew_if_the_run_tells_them(
    limit_s: float | None, knowledge: Knowledge, tmp_path: Path
) -> None:
    jobs = [replace(job, time_limit_s=limit_s) for job in JOBS]
    run = read_live_run(live_folder(tmp_path / "run", jobs, Change()))
    assert load_again(run, contention=False).knows.knowledge is knowledge


def test_slurms_own_scheduler_is_set_as_in_the_run(tmp_path: Path) -> None:
    folder = live_folder(tmp_path / "run", JOBS, Change(), "slurm")
    facts = json.loads((folder / "run.json").read_text())
    facts |= {"scheduler": {"SchedulerParameters": "bf_interval=1"}}
    (folder / "run.json").write_text(json.dumps(facts))
    knobs = policy_again(read_live_run(folder)).knobs
    assert isinstance(knobs, SlurmKnobs)
    assert (knobs.bf_interval_s, knobs.placement) == (1.0, "tree")
