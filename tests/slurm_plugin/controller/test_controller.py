"""The controller over the fake Slurm."""

from pathlib import Path
from typing import Any

import pytest

from dally.testing.worlds import racks
from slurm_plugin.client.slurm import Hold
from slurm_plugin.controller.journal import read_events
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.request import Request, encode
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite

NODES = ("r0m0", "r0m1", "r1m0", "r1m1")


def test_a_job_that_fits_is_released_onto_one_machine(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    job = site.submit(gpus_per_node=4, run_time_s=50.0)
    site.run_to(10)
    assert site.nodes(job) == {"r0m0": 4}
    site.run_to(60)
    assert site.states() == {job: "COMPLETED"}
    assert site.events() == [("submit", job), ("start", job), ("end", job)]


def test_two_nodes_of_one_rack_are_taken_before_two_racks(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.submit(gpus_per_node=8, run_time_s=500.0)
    pair = site.submit(nodes=2, gpus_per_node=8)
    site.run_to(10)
    assert site.nodes(pair) == {"r1m0": 8, "r1m1": 8}


def test_a_job_declines_a_far_placement_until_its_timer_is_over(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, policy="dally:timers=manual,machine=1,rack=2,lease_s=100")
    for _ in range(2):
        site.submit(gpus_per_node=8, run_time_s=1e6)
    blocker = site.submit(gpus_per_node=8, nodes=1, run_time_s=1e6)
    site.run_to(1)
    assert site.states()[blocker] == "RUNNING"
    site.slurm.cancel("1")
    pair = site.submit(nodes=2, gpus_per_node=8)
    site.run_to(150)
    assert site.managed(pair).phase.name is JobPhase.PENDING
    assert "no rack has 16 free GPUs" in site.managed(pair).reason
    site.run_to(250)
    assert site.states()[pair] == "RUNNING"


def test_a_checkpointing_job_gives_way_and_goes_on(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, policy="tiresias:regroup_s=0,quantum_s=0")
    long = site.submit(nodes=4, gpus_per_node=8, signal="USR1", grace_s=30, run_time_s=5000.0)
    site.run_to(1000)
    short = site.submit(gpus_per_node=8, run_time_s=100.0)
    site.run_to(1020)
    assert site.slurm.signals == [(1000.0, long, "USR1")]
    assert site.managed(long).phase.name is JobPhase.STOPPING
    site.run_to(1050)
    assert site.states() == {long: "PENDING", short: "RUNNING"}
    site.run_to(1200)
    assert site.states() == {long: "RUNNING", short: "COMPLETED"}


def asked_to_stop(folder: Path, code: int | None) -> tuple[FakeSite, str, str]:
    """A job that ends with a code (None: requeues itself) 2 s after USR2, and one that wants its GPUs."""
    site = FakeSite(folder, policy="tiresias:regroup_s=0,quantum_s=0")
    ends: dict[str, Any] = {"signal": "USR2", "checkpoint_exit_s": 2.0, "checkpoint_code": code}
    long = site.submit(nodes=4, gpus_per_node=8, grace_s=30, run_time_s=5000.0, **ends)
    site.run_to(1000)
    return site, long, site.submit(gpus_per_node=8, run_time_s=100.0)


def test_a_job_that_was_stopped_loses_its_gpus_before_it_waits(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[8]]), "srsf-delay:lease_s=5,lease_restarts=0")
    site.slurm.completing_s = 0.5
    long = site.submit(gpus_per_node=8, run_time_s=40_000.0, time_limit_s=80_000.0, signal="USR1")
    site.live(100)
    site.submit(gpus_per_node=8, run_time_s=100.0, time_limit_s=200.0)
    site.live(150)
    told = [(each["event"], each["t"]) for each in read_events(tmp_path, long)]
    assert [event for event, _ in told] == ["submit", "start", "stop", "preempt", "wait"]
    assert told == sorted(told, key=lambda each: each[1])


def test_while_a_job_leaves_for_another_the_policy_is_not_asked_again_at_once(tmp_path: Path) -> None:
    """The other counts on free GPUs, too; these are kept for it, so that the policy would stop more jobs."""
    site = FakeSite(tmp_path, racks([[8, 8]]), "srsf-delay:lease_s=5,lease_restarts=0")
    saves: dict[str, Any] = {"signal": "USR1", "grace_s": 60, "checkpoint_exit_s": 30.0}
    for _ in range(2):
        site.submit(gpus_per_node=5, run_time_s=40_000.0, time_limit_s=80_000.0, **saves)
    site.run_to(100)
    site.submit(gpus_per_node=8, run_time_s=100.0, time_limit_s=200.0)
    for _ in range(3):
        assert site.controller.cycle() >= site.now_s + site.config.poll_s
        site.now_s += 1
    assert site.events("stop") == [("stop", "1")]


@pytest.mark.parametrize("code", [85, 128 + 12, None], ids=["its word", "the signal", "its own requeue"])
def test_a_job_that_leaves_as_it_was_asked_to_is_put_back_once_and_goes_on(
    tmp_path: Path, code: int | None
) -> None:
    site, long, short = asked_to_stop(tmp_path, code)
    site.live(1060)
    assert site.outcome() == {long: ("PENDING", 1), short: ("RUNNING", 0)}
    assert [job.hold for job in site.slurm.jobs() if job.job_id == long] == [Hold.USER]
    site.live(1200)
    assert site.outcome() == {long: ("RUNNING", 1), short: ("COMPLETED", 0)}
    assert site.events("preempt", "fail", "requeue_failed", "end") == [("preempt", long), ("end", short)]


@pytest.mark.parametrize("code", [1, 128 + 10, 128 + 9], ids=["an error", "another signal", "a kill"])
def test_a_job_that_fails_while_it_is_asked_to_stop_has_failed(tmp_path: Path, code: int) -> None:
    site, long, short = asked_to_stop(tmp_path, code)
    site.live(1200)
    assert site.outcome() == {long: ("FAILED", 0), short: ("COMPLETED", 0)}


def test_a_job_that_nobody_asked_to_stop_has_failed_if_the_signal_ends_it(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    job = site.submit(gpus_per_node=8, signal="USR2", run_time_s=10.0, exit_code=128 + 12)
    site.live(100)
    assert site.outcome() == {job: ("FAILED", 0)}


def test_a_job_that_requeues_itself_unasked_waits_for_dally_again(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    job = site.submit(gpus_per_node=8, signal="USR2", run_time_s=1000.0)
    site.live(100)
    site.slurm.requeue(job)
    site.live(130)
    assert site.outcome() == {job: ("RUNNING", 1)}
    assert site.events("fail", "released") == [("fail", job)]


def test_a_job_without_checkpoints_keeps_its_gpus(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, policy="tiresias:regroup_s=0,quantum_s=0")
    long = site.submit(nodes=4, gpus_per_node=8, run_time_s=5000.0)
    site.run_to(1000)
    site.submit(gpus_per_node=8, run_time_s=100.0)
    site.run_to(2000)
    assert site.states()[long] == "RUNNING"
    assert not site.slurm.signals


def test_a_job_that_slurm_does_not_start_goes_back_to_waiting_and_tries_again(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, backoff_s=100.0, start_timeout_s=20.0)
    site.slurm.start_delay_s = 1e6
    job = site.submit(gpus_per_node=8, run_time_s=10.0)
    site.run_to(90)
    assert site.managed(job).phase.name is JobPhase.INELIGIBLE
    tries = [event["reason"] for event in read_events(tmp_path) if event["event"] == "start_failed"]
    assert tries == [f"could not start on {node}: it did not start in time" for node in NODES]
    assert [(each.hold, each.required_nodes) for each in site.slurm.jobs()] == [(Hold.USER, ())]
    site.slurm.start_delay_s = 0.0
    site.run_to(200)
    assert site.states()[job] == "COMPLETED"


def test_a_job_held_by_an_administrator_is_left_alone_until_it_is_released(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    job = site.submit(gpus_per_node=8, run_time_s=10.0)
    site.slurm.hold(job, Hold.ADMIN)
    site.run_to(30)
    assert site.managed(job).reason == "held by an administrator"
    site.slurm.hold(job, Hold.NONE)
    site.run_to(60)
    assert site.states()[job] == "COMPLETED"


def test_a_job_that_somebody_releases_is_slurms(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    for _ in range(4):
        site.submit(gpus_per_node=8, run_time_s=1000.0)
    job = site.submit(gpus_per_node=8, run_time_s=10.0)
    site.run_to(30)
    site.slurm.release(job)
    site.run_to(60)
    assert site.managed(job).phase.name is JobPhase.RELEASED


def test_a_hold_that_ended_before_the_first_look_at_the_job_makes_it_no_job_of_slurms(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.submit(nodes=4, gpus_per_node=8, run_time_s=30.0)
    site.run_to(10)
    held = SubmitSpec(gpus_per_node=8, run_time_s=10.0, comment=encode(Request(held=True)))
    job = site.slurm.submit(held)
    site.slurm.release(job)
    site.run_to(20)
    assert site.managed(job).phase.name is JobPhase.PENDING
    site.run_to(60)
    assert site.states()[job] == "COMPLETED"


def test_a_job_that_slurm_starts_as_its_user_releases_it_is_dallys(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    held = SubmitSpec(gpus_per_node=8, run_time_s=100.0, comment=encode(Request(held=True)))
    job = site.slurm.submit(held)
    site.run_to(10)
    assert site.managed(job).reason == "held by its user"
    site.slurm.release(job)
    site.run_to(20)
    assert site.managed(job).phase.name is JobPhase.RUNNING
    assert site.controller.scheduler.state.free.total() == 24
    site.run_to(200)
    assert site.states()[job] == "COMPLETED"


def test_a_cancelled_job_leaves_the_queue(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    for _ in range(5):
        site.submit(gpus_per_node=8, run_time_s=1000.0)
    site.run_to(30)
    site.slurm.cancel("5")
    site.run_to(60)
    assert "5" not in site.controller.reconciler.managed_jobs
    assert not site.controller.scheduler.state.waiting


def test_a_failed_node_sends_its_job_back_into_the_queue(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    job = site.submit(gpus_per_node=8, run_time_s=1000.0)
    site.run_to(30)
    site.slurm.set_node("r0m0", "down")
    site.run_to(60)
    assert site.nodes(job) == {"r0m1": 8}


def test_a_drained_node_gets_nothing(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.slurm.set_node("r0m0", "drain")
    job = site.submit(gpus_per_node=8)
    site.run_to(30)
    assert site.nodes(job) == {"r0m1": 8}


def test_an_array_runs_no_more_tasks_at_once_than_it_may(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.submit(gpus_per_node=1, array=(1, 2, 3), array_throttle=2, run_time_s=100.0)
    site.run_to(50)
    assert [*site.states().values()] == ["RUNNING", "RUNNING", "PENDING"]
    site.run_to(150)
    assert [*site.states().values()] == ["COMPLETED", "COMPLETED", "RUNNING"]


def test_a_restarted_controller_goes_on_where_it_was(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    running = site.submit(nodes=4, gpus_per_node=8, run_time_s=300.0)
    waiting = site.submit(gpus_per_node=8, run_time_s=10.0)
    site.run_to(50)
    site.restart()
    site.run_to(60)
    assert site.managed(running).phase.name is JobPhase.RUNNING
    assert site.controller.scheduler.state.jobs[running].since_s == 0
    assert site.controller.scheduler.state.jobs[waiting].origin_s == 0
    site.run_to(400)
    assert {*site.states().values()} == {"COMPLETED"}


def test_without_its_journal_it_learns_from_slurm_what_runs(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    running = site.submit(gpus_per_node=8, run_time_s=300.0)
    site.run_to(50)
    (tmp_path / "journal.sqlite").unlink()
    site.restart()
    site.run_to(60)
    assert site.managed(running).phase.name is JobPhase.RUNNING
    assert site.controller.scheduler.state.jobs[running].since_s == 0


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
def test_slurms_clock_may_be_an_hour_off(tmp_path: Path, ahead_s: float) -> None:
    site = FakeSite(tmp_path, slurm_ahead_s=ahead_s)
    began_s = site.now_s
    for _ in range(2):
        site.submit(nodes=4, gpus_per_node=8, run_time_s=100.0)
    site.live(began_s + 20)
    assert site.managed("1").phase.name is JobPhase.RUNNING
    assert 0 <= site.controller.scheduler.state.jobs["1"].run_s(site.now_s) <= 20
    site.slurm.requeue("1")
    site.live(began_s + 400)
    assert {*site.states().values()} == {"COMPLETED"}


def test_a_job_asked_for_more_than_the_cluster_has_is_handed_to_slurm_as_it_was(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    job = site.submit(nodes=5, gpus_per_node=8)
    site.live(20)
    assert [(each.hold, each.min_nodes) for each in site.slurm.jobs()] == [(Hold.NONE, 5)]
    assert "; Slurm schedules it" in site.managed(job).reason


def test_a_job_handed_back_is_not_released_again_when_its_user_holds_it(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    job = site.submit(nodes=5, gpus_per_node=8)
    site.live(20)
    site.slurm.hold(job, Hold.USER)
    site.live(60)
    assert [each.hold for each in site.slurm.jobs()] == [Hold.USER]


def test_a_job_that_became_unplaceable_goes_back_with_the_nodes_it_asked_for(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, backoff_s=1000.0)
    site.slurm.start_delay_s = 1e6
    site.submit(gpus=16)
    site.live(50)
    assert site.managed("1").phase.name is JobPhase.INELIGIBLE
    assert [each.min_nodes for each in site.slurm.jobs()] == [2]  # what it was given
    site.slurm.update("1", partition="other")
    site.live(60)
    assert [(each.hold, each.min_nodes) for each in site.slurm.jobs()] == [(Hold.NONE, 1)]


def test_what_an_administrator_changes_counts(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.submit(nodes=4, gpus_per_node=8, run_time_s=100.0)
    site.live(20)
    waiting = site.submit(nodes=4, gpus_per_node=8, run_time_s=1e6)
    site.live(30)
    site.slurm.update(waiting, nodes=1, gpus_per_node=4)
    site.live(150)
    assert site.nodes(waiting) == {"r0m0": 4}
    assert site.controller.scheduler.state.jobs[waiting].job.gpus == 4


def test_a_comment_edited_while_it_runs_changes_nothing(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    job = site.submit(gpus_per_node=8, run_time_s=100.0, tag="ab")
    site.live(20)
    site.slurm.update(job, comment="no longer")
    site.live(40)
    assert site.managed(job).phase.name is JobPhase.RUNNING
    assert not site.events("end", "released")


def test_a_running_job_that_cannot_be_put_back_keeps_its_gpus(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, policy="tiresias:regroup_s=0,quantum_s=0")
    long = site.submit(nodes=4, gpus_per_node=8, signal="USR1", run_time_s=1000.0)
    site.live(200)
    site.slurm.refuse[long] = "Requested operation is presently disabled"
    short = site.submit(gpus_per_node=8, run_time_s=50.0)
    site.live(2000)
    assert site.outcome() == {long: ("COMPLETED", 0), short: ("COMPLETED", 0)}
    assert site.events("requeue_failed", "stop") == [("stop", long), ("requeue_failed", long)]


def test_a_job_is_not_preempted_more_often_than_the_site_allows(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, policy="tiresias:regroup_s=0,quantum_s=0", max_requeues=1)
    long = site.submit(nodes=4, gpus_per_node=8, signal="USR1", run_time_s=1000.0)
    site.live(200)
    site.submit(gpus_per_node=8, run_time_s=50.0)
    site.live(400)
    assert site.outcome()[long] == ("RUNNING", 1)
    site.submit(gpus_per_node=8, run_time_s=50.0)
    site.live(2000)
    assert site.outcome()[long] == ("COMPLETED", 1)


def test_a_long_grace_is_cut_to_the_longest(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, longest_grace_s=30)
    job = site.submit(gpus_per_node=8, signal="USR1", grace_s=86_400)
    site.live(20)
    assert site.managed(job).request.grace_s == 30


def test_a_refused_job_backs_off_longer_each_time_and_keeps_nobody_from_starting(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, backoff_s=100.0)
    bad = site.submit(gpus_per_node=8)
    site.slurm.refuse[bad] = "No."
    others = [site.submit(gpus_per_node=8, run_time_s=50.0) for _ in range(8)]
    site.live(9000, poll_s=60.0)
    assert {site.states()[job] for job in site.states() if job in others} <= {"COMPLETED"}
    assert len(site.events("end")) == 8
    waits = [e["again_in_s"] for e in read_events(tmp_path) if e["event"] == "start_failed"]
    assert waits[:6] == [100, 200, 400, 800, 1600, 3200]
    assert len(site.events("order_refused")) == 1


def test_a_task_aside_for_another_reason_takes_no_slot_of_its_array(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.submit(gpus_per_node=1, array=(1, 2, 3), array_throttle=1, run_time_s=50.0)
    site.slurm.hold("1_1", Hold.ADMIN)
    site.live(20)
    assert site.states() == {"1_1": "PENDING", "1_2": "RUNNING", "1_3": "PENDING"}


def test_an_ended_job_that_slurm_has_forgotten_is_gone(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.submit(gpus_per_node=8, run_time_s=50.0)
    site.live(20)
    site.now_s = 1000.0
    site.restart()
    site.live(1020)
    assert not site.controller.scheduler.state.jobs
    assert not site.controller.reconciler.managed_jobs


def test_without_its_journal_a_job_tied_to_nodes_is_held_again(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.slurm.start_delay_s = 1e6
    job = site.submit(gpus_per_node=8, run_time_s=10.0)
    site.live(5)
    (tmp_path / "journal.sqlite").unlink()
    site.slurm.start_delay_s = 0.0
    site.slurm.set_node("r0m0", "drain")
    site.restart()
    site.live(60)
    assert site.states() == {job: "COMPLETED"}


def test_a_start_that_slurm_calls_hopeless_gives_its_gpus_back_at_once(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, start_timeout_s=1000.0)
    site.slurm.start_delay_s = 1e6
    job = site.submit(gpus_per_node=8)
    site.controller.cycle()
    assert site.managed(job).phase.name is JobPhase.STARTING
    site.slurm._jobs[job].reason = "QOSMaxGRESPerUser"
    site.controller.cycle()
    assert site.managed(job).phase.name is JobPhase.INELIGIBLE
    assert site.controller.scheduler.state.free.total() == 32


@pytest.mark.parametrize(
    ("assumed", "nodes"), [(1.25, {"r0m0": 8, "r0m1": 8}), (1.0, {"r0m1": 8, "r1m0": 8})]
)
def test_a_gang_without_a_profile_waits_for_close_gpus_unless_the_site_says_otherwise(
    tmp_path: Path, assumed: float, nodes: dict[str, int]
) -> None:
    site = FakeSite(tmp_path, policy="srsf-delay", assumed_slowdown=assumed)
    for moment, run_time_s in enumerate((100.0, 30.0, 30.0, 9000.0), start=1):
        site.submit(gpus_per_node=8, run_time_s=run_time_s, time_limit_s=run_time_s)
        site.run_to(5 * moment)
    gang = site.submit(nodes=2, gpus_per_node=8, run_time_s=3000.0, time_limit_s=4000.0)
    site.run_to(200)
    assert site.nodes(gang) == nodes


def test_a_gang_does_not_wait_for_nodes_that_are_drained(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, policy="srsf-delay", assumed_slowdown=1.25)
    for name in ("r0m0", "r1m0"):
        site.slurm.set_node(name, "drain")
    gang = site.submit(nodes=2, gpus_per_node=8, run_time_s=3000.0, time_limit_s=4000.0)
    site.run_to(30)
    assert site.nodes(gang) == {"r0m1": 8, "r1m1": 8}
