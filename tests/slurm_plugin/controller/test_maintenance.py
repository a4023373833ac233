"""Before a maintenance jobs on its nodes write their checkpoints, and go on elsewhere or afterwards."""

from pathlib import Path
from typing import Any

import pytest

from dally.testing.worlds import racks
from slurm_plugin.client.slurm import Reservation
from slurm_plugin.controller.journal import read_events
from tests.slurm_plugin.worlds import FakeSite

TWO = racks([[4, 4]])
TRAINING: dict[str, Any] = {
    "gpus_per_node": 4,
    "checkpoint_exit_s": 1.0,
    "resumes": True,
    "run_time_s": 3000.0,
    "time_limit_s": 7200.0,
}


def reserve(site: FakeSite, *nodes: str, start_s: float = 500.0, maintenance: bool = True) -> None:
    site.slurm.reserve(Reservation("power", nodes, start_s, start_s + 1000.0, maintenance), "root")


def stops(site: FakeSite) -> list[tuple[str, float]]:
    return [(event["job"], event["t"]) for event in read_events(site.folder) if event["event"] == "stop"]


def test_a_job_leaves_before_its_nodes_are_maintained_and_ends_later(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[4]]), policy="fifo")
    job = site.submit("", "USR1", 20, **TRAINING)
    site.live(10)
    reserve(site, "r0m0")
    site.live(600)
    ((stopped, at_s),) = stops(site)
    assert stopped == job
    assert 500 - 20 - 30 <= at_s < 500 - 20
    assert "in reservations before its time limit ends: power " in site.managed(job).reason
    site.live(9000, poll_s=60.0)
    assert site.outcome() == {job: ("COMPLETED", 1)}


def test_it_goes_on_elsewhere_at_once_if_it_may(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, TWO, policy="fifo")
    job = site.submit("", "USR1", 20, **TRAINING)
    site.live(10)
    (node,) = site.nodes(job)
    reserve(site, node)
    site.live(499)
    assert site.states()[job] == "RUNNING"
    assert set(site.nodes(job)) == {"r0m0", "r0m1"} - {node}
    site.live(9000, poll_s=60.0)
    assert site.outcome() == {job: ("COMPLETED", 1)}


@pytest.mark.parametrize(
    "changes",
    [
        {"time_limit_s": 400.0, "run_time_s": 300.0},
        {"requeue": False},
        {"signal": ""},
        {"on": "r0m1"},
        {"maintenance": False},
        {"start_s": 10.0},
    ],
    ids=["ends-before", "no-requeue", "no-signal", "elsewhere", "another-reservation", "begun"],
)
def test_other_jobs_run_on(tmp_path: Path, changes: dict[str, Any]) -> None:
    site = FakeSite(tmp_path, TWO, policy="fifo")
    asked = {**TRAINING, **{key: value for key, value in changes.items() if key in TRAINING | {"requeue": 1}}}
    job = site.submit("", changes.get("signal", "USR1"), 20, **asked)
    site.live(10)
    assert set(site.nodes(job)) == {"r0m0"}
    reserve(
        site,
        changes.get("on", "r0m0"),
        start_s=changes.get("start_s", 500.0),
        maintenance=changes.get("maintenance", True),
    )
    site.live(5000, poll_s=60.0)
    assert not stops(site)
    assert site.outcome() == {job: ("COMPLETED", 0)}
