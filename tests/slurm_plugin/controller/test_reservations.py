"""Jobs of a reservation run on its nodes, within its time; all other jobs run elsewhere."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from dally.plan import Migrate, Plan, Start, Wait
from dally.testing.worlds import racks
from slurm_plugin.client.slurm import Reservation
from slurm_plugin.controller.managed_job import JobPhase
from tests.slurm_plugin.worlds import FakeSite

FOUR = racks([[4, 4], [4, 4]])
FIRST, SECOND, THIRD, FOURTH = (machine.name for machine in FOUR.machines)


def reserved(folder: Path, start_s: float = 0.0, bounds_jobs: bool = True, **settings: Any) -> FakeSite:
    """A site that keeps its first two nodes for a course."""
    site = FakeSite(folder, FOUR, "srtf:backfill=easy", knowledge="limits", **settings)
    course = Reservation("course", (FIRST, SECOND), start_s, start_s + 1000, bounds_jobs=bounds_jobs)
    site.slurm.reserve(course, "alice")
    return site


def submit(site: FakeSite, reservation: str = "course", **spec: Any) -> str:
    return site.submit(reservation=reservation, **{"gpus_per_node": 4, "run_time_s": 50, **spec})


def test_jobs_of_a_reservation_use_its_nodes_and_others_do_not(tmp_path: Path) -> None:
    site = reserved(tmp_path)
    own = [submit(site) for _ in range(3)]
    others = [submit(site, "", time_limit_s=600) for _ in range(3)]
    site.run_to(10)
    assert {*site.nodes(own[0]), *site.nodes(own[1])} == {FIRST, SECOND}
    assert {*site.nodes(others[0]), *site.nodes(others[1])} == {THIRD, FOURTH}
    assert [site.managed(job).phase.name for job in (own[2], others[2])] == [JobPhase.PENDING] * 2
    site.run_to(60)
    assert {*site.nodes(own[2])} <= {FIRST, SECOND}
    assert {*site.nodes(others[2])} <= {THIRD, FOURTH}
    assert site.events("start_failed", "order_refused") == []


def test_a_job_waits_for_its_reservation_to_begin_and_then_takes_the_place_of_another(tmp_path: Path) -> None:
    site = reserved(tmp_path, start_s=100)
    for _ in range(4):
        site.submit(signal="USR1", gpus_per_node=4, run_time_s=5000, checkpoint_exit_s=1.0)
    site.run_to(1)
    own = submit(site, time_limit_s=60)
    site.run_to(50)
    assert site.managed(own).phase.name is JobPhase.INELIGIBLE
    assert "its reservation course begins on" in site.managed(own).reason
    assert site.events("stop") == []
    site.live(130, poll_s=1.0)
    assert {*site.nodes(own)} <= {FIRST, SECOND}


def test_the_reservation_of_a_job_outlives_a_start_that_failed(tmp_path: Path) -> None:
    site = reserved(tmp_path, start_timeout_s=5.0)
    job = submit(site)
    site.slurm.start_delay_s = 1000
    site.run_to(20)
    assert site.events("start_failed")
    assert {each.reservation for each in site.slurm.jobs()} == {"course"}
    site.slurm.start_delay_s = 0
    site.live(200)
    assert site.outcome()[job] == ("COMPLETED", 0)


def test_a_job_whose_reservation_is_over_says_so_and_starts_nowhere(tmp_path: Path) -> None:
    site = reserved(tmp_path)
    running = [submit(site, run_time_s=2000) for _ in range(2)]
    waits = submit(site)
    site.run_to(1500)
    assert site.states()[waits] == "RESV_DEL_HOLD"
    assert "the reservation that it asked for is over" in site.managed(waits).reason
    site.run_to(2500)
    assert site.states()[waits] == "RESV_DEL_HOLD"
    assert {site.outcome().get(job, ("COMPLETED", 0)) for job in running} == {("COMPLETED", 0)}


def test_what_a_reservation_leaves_open_stays_slurms_to_decide(tmp_path: Path) -> None:
    site = reserved(tmp_path, bounds_jobs=False)
    job = submit(site)
    site.run_to(1)
    assert site.managed(job).phase.name is JobPhase.RELEASED
    assert "reservation course" in site.managed(job).reason
    [shown] = site.slurm.jobs()
    assert shown.reservation == "course"


@pytest.mark.parametrize("target", [FIRST, FOURTH])
def test_a_running_job_does_not_move_onto_nodes_that_are_open_to_others_only(
    tmp_path: Path, target: str
) -> None:
    site = reserved(tmp_path)
    for _ in range(2):
        submit(site, run_time_s=900)
    running = submit(site, "", run_time_s=900)
    submit(site)  # for it the policy is given the nodes of the reservation
    site.run_to(1)
    move = Migrate(running, ((FOUR.machine_index[target], 4),), 0, "closer")
    with patch.object(site.controller.scheduler, "decide", return_value=Plan((move,))):
        plan = site.controller._plan_checker.decide(site.now_s)
    assert plan.decisions == (() if target == FIRST else (move,))


def test_no_start_counts_on_a_move_onto_nodes_reserved_for_others(tmp_path: Path) -> None:
    """The policy decides anew without these nodes, and gets them back with the next look at Slurm."""
    site = reserved(tmp_path)
    submit(site, run_time_s=900)
    running = [submit(site, "", run_time_s=900) for _ in range(2)]
    submit(site, nodes=2)  # for it the policy is given the nodes of the reservation
    waits = submit(site, "")
    site.run_to(1)
    state = site.controller.scheduler.state
    (target,) = (machine for machine in range(4) if state.free.on(machine))
    place = state.jobs[running[0]].allocation
    onto_it = (Migrate(running[0], ((target, 4),), 0, "closer"), Start(waits, place, 0, "then free"))
    wait = Wait(waits, 0, 9.0, "none free")

    def decide(now: float) -> Plan:
        return Plan(onto_it if state.free.on(target) else (wait,))

    with patch.object(site.controller.scheduler, "decide", decide):
        assert site.controller._plan_checker.decide(site.now_s).decisions == (wait,)
    site.controller._observe(site.now_s)
    assert state.free.on(target) == 4


def test_jobs_of_a_reservation_start_though_a_running_one_would_take_its_nodes(tmp_path: Path) -> None:
    site = reserved(tmp_path)
    running = submit(site, "", run_time_s=900)
    site.run_to(1)
    own = submit(site)
    places = [((FOUR.machine_index[name], 4),) for name in (FIRST, SECOND)]
    start, wait = Start(own, places[0], 0, "its turn"), Wait("x", 0, 9.0, "later")
    move = Migrate(running, places[1], 0, "closer")
    site.controller._observe(site.now_s)
    with patch.object(site.controller.scheduler, "decide", return_value=Plan((move, start, wait))):
        assert site.controller._plan_checker.decide(site.now_s).decisions == (start, wait)


def test_a_job_of_a_reservation_for_maintenance_is_slurms(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR, "fifo")
    site.slurm.reserve(Reservation("tests", (FIRST,), 0.0, 1000.0, maintenance=True), "alice")
    job = submit(site, "tests")
    site.run_to(1)
    assert site.managed(job).phase.name is JobPhase.RELEASED
    assert "reservation tests is for maintenance" in site.managed(job).reason


def test_a_job_that_waits_for_nodes_that_are_down_says_so_and_holds_up_nobody(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR, "fifo", features={FIRST: ("fast",), SECOND: ("fast",)})
    site.slurm.set_node(FIRST, "drain")
    pair = site.submit(nodes=2, gpus_per_node=4, constraint="fast", run_time_s=50)
    other = site.submit(gpus_per_node=4, run_time_s=50)
    site.run_to(5)
    assert site.managed(pair).phase.name is JobPhase.INELIGIBLE
    assert site.managed(pair).reason == f"too few of the nodes that it may use are up: {FIRST} is idle+drain"
    assert site.states()[other] == "RUNNING"
    site.slurm.set_node(FIRST)
    site.live(200)
    assert site.outcome()[pair] == ("COMPLETED", 0)
