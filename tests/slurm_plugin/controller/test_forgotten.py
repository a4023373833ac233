"""Starts that a killed slurmctld forgot: the nodes run on for a while, and nothing starts there meanwhile."""

from pathlib import Path

import pytest

from slurm_plugin.controller.journal import NAME
from tests.slurm_plugin.worlds import FakeSite

GAP_S = 3.0
"""Three times that, and the nodes have been asked what they run, and a start there is no longer refused."""


@pytest.mark.parametrize("delay_s", [0.0, 60.0], ids=["seen running", "not seen running"])
def test_a_job_whose_start_was_forgotten_does_not_go_back_to_its_nodes_at_once(
    tmp_path: Path, delay_s: float
) -> None:
    site = FakeSite(tmp_path, restart_gap_s=GAP_S, start_timeout_s=100.0)
    site.slurm.start_delay_s = delay_s
    job = site.submit(nodes=4, gpus_per_node=8)
    site.run_to(10)
    assert site.states() == {job: "PENDING" if delay_s else "RUNNING"}
    site.slurm.forget_start(job)
    site.slurm.start_delay_s = 0.0
    site.run_to(10 + 3 * GAP_S - 1)
    assert site.states() == {job: "PENDING"}
    site.run_to(10 + 3 * GAP_S + 1)
    assert site.states() == {job: "RUNNING"}


def test_nobody_else_starts_where_a_forgotten_run_goes_on(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, restart_gap_s=GAP_S)
    forgotten = site.submit(gpus_per_node=8)
    site.run_to(10)
    [left] = site.nodes(forgotten)
    site.slurm.forget_start(forgotten)
    others = [site.submit(gpus_per_node=8) for _ in range(3)]
    site.run_to(10 + 2 * GAP_S - 1)
    states, taken = (
        site.states(),
        [*site.nodes(forgotten), *(node for job in others for node in site.nodes(job))],
    )
    assert sorted(states.values()) == ["PENDING", "RUNNING", "RUNNING", "RUNNING"]
    assert left not in taken
    site.run_to(10 + 3 * GAP_S + 1)
    assert set(site.states().values()) == {"RUNNING"}


def test_a_requeued_job_that_took_a_while_to_end_waits_no_longer_than_others(
    tmp_path: Path,
) -> None:
    site = FakeSite(tmp_path, restart_gap_s=GAP_S)
    site.slurm.completing_s = 4.0
    job = site.submit(nodes=4, gpus_per_node=8)
    site.run_to(10)
    site.slurm.requeue(job)
    site.run_to(10 + 4 + GAP_S - 1)
    assert site.states() == {job: "PENDING"}
    site.run_to(10 + 4 + GAP_S + 1)
    assert site.states() == {job: "RUNNING"}


def test_a_job_that_is_put_back_starts_elsewhere_at_once(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, restart_gap_s=GAP_S)
    job = site.submit(nodes=2, gpus_per_node=8)
    site.run_to(10)
    site.slurm.set_node("r0m0", "down")
    site.run_to(11)
    assert site.nodes(job) == {"r1m0": 8, "r1m1": 8}


def test_a_job_that_its_user_took_back_does_not_wait_for_a_reservation_that_is_gone(tmp_path: Path) -> None:
    shared = {f"r{rack}m{node}": ("gpu", "other") for rack in range(2) for node in range(2)}
    site = FakeSite(tmp_path, partitions=shared)
    job = site.submit(gpus_per_node=8, run_time_s=400.0)
    site.run_to(100)
    site.slurm.update(job, comment="mine now")
    site.run_to(200)
    (tmp_path / NAME).unlink()
    site.restart()
    site.slurm.requeue(job)
    site.run_to(800)
    assert site.states() == {job: "COMPLETED"}
