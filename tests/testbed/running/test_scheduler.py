"""Simulated Slurm is set as the real one was."""

from pathlib import Path
from typing import Any

import pytest

from dally.policies.registry import parse_policy
from testbed.running.scheduler import read_scheduler, set_alike
from tests.testbed.running.fakes import FakeTestbedCluster


def knobs(parameters: str, spec: str = "slurm") -> Any:
    settings = {"SchedulerType": "sched/backfill", "SchedulerParameters": parameters}
    return set_alike(parse_policy(spec), settings).knobs


def test_the_settings_are_those_that_slurm_shows(tmp_path: Path) -> None:
    shown = {"SchedulerParameters": "bf_interval=1,x=2", "SchedulerType": "sched/backfill"}
    assert read_scheduler(FakeTestbedCluster(tmp_path)) == shown


def test_periods_and_counts_are_taken_in_seconds() -> None:
    said = knobs("bf_interval=7,bf_resolution=120,bf_window=60,bf_max_job_test=9,bf_job_part_count_reserve=3")
    assert (said.bf_interval_s, said.bf_resolution_s, said.bf_window_s) == (7.0, 120.0, 3600.0)
    assert (said.bf_max_job_test, said.bf_job_part_count_reserve) == (9, 3)


def test_what_is_not_set_is_as_slurm_has_it() -> None:
    said = knobs("(null)")
    assert (said.bf_interval_s, said.bf_resolution_s, said.bf_window_s) == (30.0, 60.0, 86_400.0)
    assert (said.bf_max_job_test, said.bf_job_part_count_reserve) == (500, 0), "promises to all"
    assert (said.scheduler, said.placement) == ("backfill", "tree")


@pytest.mark.parametrize(("parameters", "wait_s"), [("x=1", 300.0), ("max_switch_wait=60", 60.0)])
def test_no_job_waits_for_a_switch_longer_than_max_switch_wait(parameters: str, wait_s: float) -> None:
    assert knobs(parameters, "slurm:switch_wait_s=900").switch_wait_s == wait_s
    assert knobs(parameters, "slurm:switch_wait_s=20").switch_wait_s == 20.0


def test_scheduling_without_backfill_is_simulated_without() -> None:
    settings = {"SchedulerType": "sched/builtin", "SchedulerParameters": ""}
    assert set_alike(parse_policy("slurm"), settings).knobs.scheduler == "builtin"


def test_other_policies_stay_as_they_are() -> None:
    policy = parse_policy("srsf-delay:lease_s=90")
    assert set_alike(policy, {"SchedulerParameters": "bf_interval=1"}) is policy
