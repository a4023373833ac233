"""The controller over the fake Slurm."""

from pathlib import Path

from slurm_plugin.slurm import Hold
from slurm_plugin.tickets import Standing
from tests.slurm_plugin.worlds import Site


def test_a_job_that_fits_is_released_onto_one_machine(tmp_path: Path) -> None:
    site = Site(tmp_path)
    job = site.submit(gpus_per_node=4, run_time_s=50.0)
    site.run_to(10)
    assert site.nodes(job) == {"r0m0": 4}
    site.run_to(60)
    assert site.states() == {job: "COMPLETED"}
    assert site.events() == [("submit", job), ("start", job), ("end", job)]


def test_two_nodes_of_one_rack_are_taken_before_two_racks(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.submit(gpus_per_node=8, run_time_s=500.0)
    pair = site.submit(nodes=2, gpus_per_node=8)
    site.run_to(10)
    assert site.nodes(pair) == {"r1m0": 8, "r1m1": 8}


def test_a_job_declines_a_far_placement_until_its_timer_is_over(tmp_path: Path) -> None:
    site = Site(tmp_path, policy="dally-paper:timers=manual,machine=1,rack=2,lease_s=100")
    for _ in range(2):
        site.submit(gpus_per_node=8, run_time_s=1e6)
    blocker = site.submit(gpus_per_node=8, nodes=1, run_time_s=1e6)
    site.run_to(1)
    assert site.states()[blocker] == "RUNNING"
    site.slurm.cancel("1")
    pair = site.submit(nodes=2, gpus_per_node=8)
    site.run_to(150)
    assert site.ticket(pair).standing is Standing.WAITING
    assert "no rack has 16 free GPUs" in site.ticket(pair).why
    site.run_to(250)
    assert site.states()[pair] == "RUNNING"


def test_a_checkpointing_job_gives_way_and_goes_on(tmp_path: Path) -> None:
    site = Site(tmp_path, policy="tiresias:regroup_s=0")
    long = site.submit(nodes=4, gpus_per_node=8, signal="USR1", grace_s=30, run_time_s=5000.0)
    site.run_to(1000)
    short = site.submit(gpus_per_node=8, run_time_s=100.0)
    site.run_to(1020)
    assert site.slurm.signals == [(1000.0, long, "USR1")]
    assert site.ticket(long).standing is Standing.STOPPING
    site.run_to(1050)
    assert site.states() == {long: "PENDING", short: "RUNNING"}
    site.run_to(1200)
    assert site.states() == {long: "RUNNING", short: "COMPLETED"}


def test_a_job_without_checkpoints_keeps_its_gpus(tmp_path: Path) -> None:
    site = Site(tmp_path, policy="tiresias:regroup_s=0")
    long = site.submit(nodes=4, gpus_per_node=8, run_time_s=5000.0)
    site.run_to(1000)
    site.submit(gpus_per_node=8, run_time_s=100.0)
    site.run_to(2000)
    assert site.states()[long] == "RUNNING"
    assert not site.slurm.signals


def test_a_job_that_slurm_does_not_start_goes_back_to_waiting_and_tries_again(tmp_path: Path) -> None:
    site = Site(tmp_path, backoff_s=100.0, start_timeout_s=20.0)
    site.slurm.start_delay_s = 1e6
    job = site.submit(gpus_per_node=8, run_time_s=10.0)
    site.run_to(50)
    assert site.ticket(job).standing is Standing.ASIDE
    assert "could not start on r0m0" in site.ticket(job).why
    assert [(each.hold, each.required_nodes) for each in site.slurm.jobs()] == [(Hold.USER, ())]
    site.slurm.start_delay_s = 0.0
    site.run_to(200)
    assert site.states()[job] == "COMPLETED"


def test_a_job_held_by_an_administrator_is_left_alone_until_it_is_released(tmp_path: Path) -> None:
    site = Site(tmp_path)
    job = site.submit(gpus_per_node=8, run_time_s=10.0)
    site.slurm.hold(job, Hold.ADMIN)
    site.run_to(30)
    assert site.ticket(job).why == "held by an administrator"
    site.slurm.hold(job, Hold.NONE)
    site.run_to(60)
    assert site.states()[job] == "COMPLETED"


def test_a_job_that_somebody_releases_is_slurms(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for _ in range(4):
        site.submit(gpus_per_node=8, run_time_s=1000.0)
    job = site.submit(gpus_per_node=8, run_time_s=10.0)
    site.run_to(30)
    site.slurm.release(job)
    site.run_to(60)
    assert site.ticket(job).standing is Standing.LEFT


def test_a_cancelled_job_leaves_the_queue(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for _ in range(5):
        site.submit(gpus_per_node=8, run_time_s=1000.0)
    site.run_to(30)
    site.slurm.cancel("5")
    site.run_to(60)
    assert "5" not in site.controller.mirror.tickets
    assert not site.controller.scheduler.state.waiting


def test_a_failed_node_sends_its_job_back_into_the_queue(tmp_path: Path) -> None:
    site = Site(tmp_path)
    job = site.submit(gpus_per_node=8, run_time_s=1000.0)
    site.run_to(30)
    site.slurm.set_node("r0m0", "down")
    site.run_to(60)
    assert site.nodes(job) == {"r0m1": 8}


def test_a_drained_node_gets_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.slurm.set_node("r0m0", "drain")
    job = site.submit(gpus_per_node=8)
    site.run_to(30)
    assert site.nodes(job) == {"r0m1": 8}


def test_an_array_runs_no_more_tasks_at_once_than_it_may(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.submit(gpus_per_node=1, array=(1, 2, 3), array_throttle=2, run_time_s=100.0)
    site.run_to(50)
    assert [*site.states().values()] == ["RUNNING", "RUNNING", "PENDING"]
    site.run_to(150)
    assert [*site.states().values()] == ["COMPLETED", "COMPLETED", "RUNNING"]


def test_a_restarted_controller_goes_on_where_it_was(tmp_path: Path) -> None:
    site = Site(tmp_path)
    running = site.submit(nodes=4, gpus_per_node=8, run_time_s=300.0)
    waiting = site.submit(gpus_per_node=8, run_time_s=10.0)
    site.run_to(50)
    site.restart()
    site.run_to(60)
    assert site.ticket(running).standing is Standing.RUNNING
    assert site.controller.scheduler.state.jobs[running].since_s == 0
    assert site.controller.scheduler.state.jobs[waiting].origin_s == 0
    site.run_to(400)
    assert {*site.states().values()} == {"COMPLETED"}


def test_without_its_journal_it_learns_from_slurm_what_runs(tmp_path: Path) -> None:
    site = Site(tmp_path)
    running = site.submit(gpus_per_node=8, run_time_s=300.0)
    site.run_to(50)
    (tmp_path / "journal.sqlite").unlink()
    site.restart()
    site.run_to(60)
    assert site.ticket(running).standing is Standing.RUNNING
    assert site.controller.scheduler.state.jobs[running].since_s == 0
