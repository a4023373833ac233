"""Just after a restart of slurmctld a job that has ended may show as running: it is not put back then."""

from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.controller.actuator import TOLD_LATE_S
from tests.slurm_plugin.worlds import FakeSite

ALL: dict[str, Any] = {"nodes": 4, "gpus_per_node": 8, "time_limit_s": 9000.0}
LEASE_S = GRACE_S = 20.0


def stopping(folder: Path, booted_s: float, run_time_s: float) -> tuple[FakeSite, str]:
    """A job that goes on after its signal, until its grace is over; another one waits for its GPUs."""
    site = FakeSite(folder, policy=f"dally:lease_s={LEASE_S:g}")
    job = site.submit("", "USR1", int(GRACE_S), run_time_s=run_time_s, **ALL)
    site.live(1)
    site.submit("", "USR1", int(GRACE_S), run_time_s=500.0, **ALL)
    site.slurm.booted = booted_s
    site.live(LEASE_S + GRACE_S + 6)
    return site, job


@pytest.mark.parametrize("told_after_s", [25.0, 55.0], ids=["at the second try", "at the fourth try"])
def test_a_job_that_ended_meanwhile_does_not_run_again(tmp_path: Path, told_after_s: float) -> None:
    site, job = stopping(tmp_path, booted_s=30.0, run_time_s=30.0 + told_after_s)
    assert (site.states()[job], site.events("preempt")) == ("RUNNING", [])
    site.live(100)
    assert (site.states()[job], site.events("preempt")) == ("COMPLETED", [])


def test_one_that_runs_on_is_put_back_when_all_nodes_could_tell(tmp_path: Path) -> None:
    site, job = stopping(tmp_path, booted_s=30.0, run_time_s=1000.0)
    assert site.states()[job] == "RUNNING"
    site.live(30 + TOLD_LATE_S + 6)
    assert site.events("preempt") == [("preempt", job)]


@pytest.mark.parametrize("booted_s", [0.0, -3000.0, 5000.0])
def test_a_slurmctld_that_was_up_before_or_has_another_clock_changes_nothing(
    tmp_path: Path, booted_s: float
) -> None:
    site, job = stopping(tmp_path, booted_s, run_time_s=1000.0)
    assert site.events("preempt") == [("preempt", job)]
