"""Others requeue jobs, too: nobody plays ping-pong with them, and no job is lost or runs twice."""

from pathlib import Path
from typing import Any

from dally.testing.worlds import racks
from slurm_plugin.client.slurm import Hold
from slurm_plugin.controller.journal import read_events
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.controller.requeues import PATIENCE, SOON_S, ForeignRequeues
from slurm_plugin.request import Request, encode
from slurm_plugin.service.release_command import release_orders
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import Action, FakeSite

TWO = racks([[4, 4]])


def starts(site: FakeSite, job: str) -> list[float]:
    found = read_events(site.folder)
    return [each["t"] for each in found if each["event"] == "start" and each["job"] == job]


def requeued(job: str, *times_s: float) -> list[Action]:
    return [(at_s, lambda site: site.slurm.requeue(job)) for at_s in times_s]


def test_pauses_begin_after_some_short_runs_in_a_row_and_double() -> None:
    requeues = ForeignRequeues(60.0)
    said = [requeues.note("1", 5.0, 100.0 * number) for number in range(PATIENCE + 2)]
    assert said[: PATIENCE - 1] == [""] * (PATIENCE - 1)
    assert [why.rpartition(" waits ")[2] for why in said[PATIENCE - 1 :]] == ["1 min", "2 min", "4 min"]
    last_s = 100.0 * (PATIENCE + 1)
    assert requeues.pause("1", last_s + 239.0) == (said[-1], last_s + 240.0)
    assert requeues.pause("1", last_s + 240.0) == ("", 0.0)
    assert requeues.note("1", SOON_S, 5000.0) == ""
    assert requeues.note("1", 5.0, 5010.0) == ""
    requeues.forget_all_but({"2"})
    assert not requeues.explains_release("1", 5020.0)


def test_a_job_that_others_requeue_again_and_again_is_left_out_for_a_while(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, TWO, backoff_s=60.0)
    job = site.submit(gpus_per_node=4, run_time_s=500.0)
    other = site.submit(gpus_per_node=4, run_time_s=900.0)
    site.live(65, requeued(job, 20.0, 40.0, 60.0))
    assert site.managed(job).phase.name is JobPhase.INELIGIBLE
    assert site.managed(job).reason.startswith("requeued 3 times in a row within 10 min of its start")
    site.live(110)
    assert len(starts(site, job)) == 3
    site.live(2000)
    assert site.outcome() == {job: ("COMPLETED", 3), other: ("COMPLETED", 0)}
    assert 120 <= starts(site, job)[3] <= 125


def test_a_pause_is_not_cut_short_by_a_job_that_leaves(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, TWO, backoff_s=60.0)
    job = site.submit(gpus_per_node=4, run_time_s=500.0)
    site.submit(gpus_per_node=4, run_time_s=75.0)
    site.live(2000, requeued(job, 20.0, 40.0, 60.0))
    assert 120 <= starts(site, job)[3] <= 125


def test_long_runs_are_no_ping_pong(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, TWO)
    job = site.submit(gpus_per_node=4, run_time_s=500.0)
    site.live(4000, requeued(job, 700.0, 1400.0, 2100.0, 2800.0), poll_s=30.0)
    assert site.outcome()[job][0] == "COMPLETED"
    assert not any("in a row" in event.get("reason", "") for event in read_events(site.folder))


def test_nodes_that_whoever_requeues_a_job_excludes_are_not_used(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, TWO, policy="fifo")
    job = site.submit(gpus_per_node=4, run_time_s=500.0)
    site.live(10)
    (bad,) = site.nodes(job)

    def recover(site: FakeSite) -> None:
        site.slurm.requeue(job)
        site.slurm.update(job, excluded=(bad,))

    site.live(60, [(20.0, recover)])
    assert site.states()[job] == "RUNNING"
    assert bad not in site.nodes(job)
    assert not site.events("start_failed")


def test_a_release_that_belongs_to_a_requeue_does_not_take_the_job_from_dally(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, TWO, policy="fifo")
    job = site.submit(gpus_per_node=4, run_time_s=500.0)
    filler = site.submit(gpus_per_node=4, run_time_s=500.0)
    next_one = site.submit(gpus_per_node=4, run_time_s=50.0)
    site.slurm.remember_s = 9000.0

    def recover(site: FakeSite) -> None:
        site.slurm.requeue(job)
        site.slurm.hold(job, Hold.USER)
        site.slurm.update(job, excluded=tuple(site.nodes(filler)), required_nodes=())

    site.live(30, [(20.0, recover), (26.0, lambda site: site.slurm.release(job))])
    assert site.managed(job).phase.name is not JobPhase.RELEASED
    site.live(3000, poll_s=30.0)
    assert not site.events("released")
    assert {state for state, _ in site.outcome().values()} == {"COMPLETED"}
    assert site.outcome()[next_one][0] == "COMPLETED"


def test_a_start_that_waits_for_others_is_dropped_where_its_nodes_are_excluded_meanwhile(
    tmp_path: Path,
) -> None:
    site = FakeSite(tmp_path, TWO, policy="srtf")
    long: dict[str, Any] = {"gpus_per_node": 4, "time_limit_s": 9000.0, "resumes": True, "run_time_s": 900.0}
    for _ in range(2):
        site.submit("", "USR1", 30, checkpoint_exit_s=20.0, **long)
    site.live(10)
    short = site.submit(gpus_per_node=4, run_time_s=50.0, time_limit_s=60.0)
    site.live(20)
    ((_, stopped),) = site.events("stop")
    (bad,) = site.nodes(stopped)
    site.slurm.update(short, excluded=(bad,))
    site.live(3000, poll_s=30.0)
    assert not site.events("start_failed")
    assert {state for state, _ in site.outcome().values()} == {"COMPLETED"}


def test_a_job_that_slurm_preempts_for_one_of_its_own_runs_once_afterwards(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[4]]), policy="fifo")
    site.slurm.remember_s = 9000.0
    job = site.submit(gpus_per_node=4, run_time_s=500.0)
    site.live(10)
    own = site.slurm.submit(SubmitSpec(gpus_per_node=4, run_time_s=100.0, held=False, qos="high"))
    site.live(2000, requeued(job, 20.0))
    assert site.outcome() == {job: ("COMPLETED", 1), own: ("COMPLETED", 0)}
    assert not site.events("start_failed", "stop")
    assert len(starts(site, job)) == 2


def test_a_requeued_job_that_others_start_at_once_is_still_dallys(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, TWO, policy="fifo")
    site.slurm.remember_s = 9000.0
    job = site.submit(gpus_per_node=4, run_time_s=500.0)

    def requeue(site: FakeSite) -> None:
        site.slurm.requeue(job)
        site.slurm.hold(job, Hold.USER)
        site.slurm.update(job, excluded=("r0m0", "r0m1"))

    def start(site: FakeSite) -> None:
        assert site.managed(job).phase.name is JobPhase.INELIGIBLE
        site.slurm.update(job, excluded=("r0m0",))
        site.slurm.release(job)
        assert site.states()[job] == "RUNNING"

    site.live(40, [(20.0, requeue), (30.0, start)])
    assert site.managed(job).phase.name is JobPhase.RUNNING
    site.live(3000, poll_s=30.0)
    assert site.outcome() == {job: ("COMPLETED", 1)}
    assert not site.events("released")


def test_who_requeues_a_job_to_be_held_has_it_held_until_the_release(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, TWO, restart_gap_s=3.0)
    site.slurm.completing_s = 2.0
    job = site.submit(gpus_per_node=4, run_time_s=500.0)
    site.run_to(50)
    site.slurm.requeue_held(job)
    site.run_to(300)
    assert site.managed(job).reason == "requeued and held; `scontrol release` lets it start again"
    assert release_orders(site.slurm.jobs(), {job: site.managed(job)}) == ()
    site.restart()
    site.run_to(1000)
    assert site.outcome() == {job: ("PENDING", 1)}
    site.slurm.release(job)
    site.run_to(1002)
    assert site.managed(job).phase.name is JobPhase.RUNNING
    site.slurm.requeue(job)
    site.run_to(1520)
    assert site.outcome() == {job: ("COMPLETED", 2)}


def test_a_job_that_starts_just_then_is_held_too(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, TWO, start_timeout_s=100.0)
    job = site.submit(gpus_per_node=4, run_time_s=500.0)
    site.controller.cycle()
    assert site.managed(job).phase.name is JobPhase.RUNNING
    site.slurm.requeue(job)
    site.slurm.start_delay_s = 5.0
    site.run_to(2)
    assert site.managed(job).phase.name is JobPhase.STARTING
    site.now_s = 10.0
    site.slurm.jobs()
    site.slurm.requeue_held(job)
    site.run_to(300)
    assert site.managed(job).phase.name is JobPhase.INELIGIBLE
    assert site.outcome() == {job: ("PENDING", 2)}


def test_what_dally_itself_requeues_is_not_taken_for_held(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[4]]), "srtf")
    site.slurm.completing_s = 2.0
    stopped = site.submit(gpus_per_node=4, run_time_s=900.0, time_limit_s=2000, signal="USR1", grace_s=5)
    site.run_to(50)
    first = site.submit(gpus_per_node=4, run_time_s=50.0, time_limit_s=60)
    site.run_to(200)
    assert site.outcome() == {stopped: ("RUNNING", 1), first: ("COMPLETED", 0)}
    site.slurm.forget_start(stopped)
    site.run_to(250)
    assert site.outcome()[stopped] == ("RUNNING", 1)


def test_a_job_of_slurms_own_that_is_requeued_to_be_held_stays_so(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, TWO)
    site.slurm.set_node("r0m0", "drain")
    site.slurm.set_node("r0m1", "drain")
    job = site.submit(gpus_per_node=4, run_time_s=500.0)
    site.run_to(10)
    site.slurm.release(job)
    site.run_to(20)
    site.slurm.set_node("r0m1")
    site.run_to(30)
    assert site.managed(job).phase.name is JobPhase.RELEASED
    assert site.states() == {job: "RUNNING"}
    site.slurm.requeue_held(job)
    site.run_to(300)
    assert site.states() == {job: "PENDING"}
    site.slurm.release(job)
    site.run_to(310)
    assert site.states() == {job: "RUNNING"}


def test_its_user_holds_and_releases_it_through_job_submit_lua(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, TWO)
    job = site.submit(gpus_per_node=4, run_time_s=500.0)
    site.run_to(50)
    site.slurm.requeue_held(job)
    site.run_to(60)
    site.slurm.update(job, comment=encode(Request(held=True)))
    site.run_to(70)
    assert site.managed(job).reason == "held by its user"
    site.slurm.update(job, comment=encode(Request()))
    site.run_to(80)
    assert site.states() == {job: "RUNNING"}
