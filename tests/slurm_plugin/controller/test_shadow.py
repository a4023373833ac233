"""Shadow mode watches plain jobs that Slurm starts, says what it would have done, and touches nothing."""

from pathlib import Path
from typing import Any

from slurm_plugin.client.slurm import Hold
from slurm_plugin.controller.controller import ControllerMode
from slurm_plugin.controller.managed_job import JobPhase
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite


def shadow(folder: Path) -> FakeSite:
    site = FakeSite(folder, mode=ControllerMode(shadow=True))
    site.slurm.breaks_after = 0  # any order fails
    return site


def plain(site: FakeSite, held: bool = False, **spec: Any) -> str:
    return site.slurm.submit(SubmitSpec(held=held, **spec))


def test_jobs_that_slurm_starts_run_for_the_policy_too(tmp_path: Path) -> None:
    site = shadow(tmp_path)
    jobs = [plain(site, gpus_per_node=8, run_time_s=100.0) for _ in range(5)]
    site.live(50.0)
    assert [site.managed(job).phase.name for job in jobs] == [*[JobPhase.RUNNING] * 4, JobPhase.PENDING]
    site.live(300.0)
    assert {*site.states().values()} == {"COMPLETED"}
    assert not site.controller.scheduler.state.jobs
    assert [job for kind, job in site.events("start")] == jobs
    assert not site.events("released", "fail", "start_failed")


def test_it_says_once_what_it_would_do(tmp_path: Path) -> None:
    site = shadow(tmp_path)
    site.slurm.start_delay_s = 60.0
    job = plain(site, gpus_per_node=8, run_time_s=20.0)
    site.live(100.0)
    assert site.events("would_start", "start", "end") == [("would_start", job), ("start", job), ("end", job)]


def test_a_job_that_its_user_holds_is_not_waiting_for_the_policy(tmp_path: Path) -> None:
    site = shadow(tmp_path)
    job = plain(site, held=True, gpus_per_node=8)
    site.live(20.0)
    assert site.managed(job).reason == "held by its user"
    site.slurm.release(job)
    site.live(40.0)
    assert site.managed(job).phase.name is JobPhase.RUNNING


def test_a_job_that_waits_for_dally_stays_held(tmp_path: Path) -> None:
    site = shadow(tmp_path)
    job = site.submit(gpus_per_node=8)
    site.live(20.0)
    assert site.managed(job).phase.name is JobPhase.PENDING
    assert [each.hold for each in site.slurm.jobs()] == [Hold.USER]
    assert site.events("would_start") == [("would_start", job)]


def test_jobs_of_other_partitions_are_none_of_its_business(tmp_path: Path) -> None:
    site = shadow(tmp_path)
    plain(site, gpus_per_node=8, partition="cpu")
    site.live(20.0)
    assert not site.controller.reconciler.managed_jobs


def test_draining_starts_nothing_and_lets_what_runs_run(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    running = site.submit(gpus_per_node=8, run_time_s=50.0)
    site.run_to(10)
    site.controller._mode.drain = True
    waiting = site.submit(gpus_per_node=8, run_time_s=50.0)
    site.live(100.0)
    assert site.states() == {running: "COMPLETED", waiting: "PENDING"}
    site.controller._mode.drain = False
    site.live(200.0)
    assert site.states()[waiting] == "COMPLETED"
