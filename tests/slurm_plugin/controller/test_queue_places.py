"""Jobs keep their place in the queue, whatever is found out about them meanwhile."""

from pathlib import Path

import pytest

from dally.testing.worlds import racks
from slurm_plugin.client.slurm import Reservation
from slurm_plugin.controller.controller import ControllerMode
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.service.report import report
from tests.slurm_plugin.worlds import FakeSite

TWO = racks([[4, 4]])


def waiting_pair(folder: Path, limit_s: float | None = None) -> tuple[FakeSite, str, str]:
    """Two jobs that wait for a node each, one of which comes free after the other."""
    site = FakeSite(folder, TWO, "fifo")
    for run_time_s in (100, 200):
        site.submit(gpus_per_node=4, run_time_s=run_time_s, time_limit_s=300)
    older = site.submit(gpus_per_node=4, run_time_s=1000, time_limit_s=limit_s)
    younger = site.submit(gpus_per_node=4, run_time_s=1000, time_limit_s=1100)
    site.run_to(10)
    return site, older, younger


def test_a_job_that_may_use_fewer_nodes_from_now_on_stays_before_its_younger_neighbour(
    tmp_path: Path,
) -> None:
    site, older, younger = waiting_pair(tmp_path, limit_s=4000)
    second = TWO.machines[1].name
    site.slurm.reserve(Reservation("tomorrow", (second,), 3000.0, 9000.0), "root")
    site.run_to(20)
    assert site.managed(older).job.machines == frozenset({TWO.machines[0].name})
    assert site.managed(younger).job.machines is None
    site.run_to(150)
    assert [site.states()[job] for job in (older, younger)] == ["RUNNING", "PENDING"]


@pytest.mark.parametrize("by_person", [False, True])
def test_only_a_person_who_holds_a_job_makes_it_lose_its_place(tmp_path: Path, by_person: bool) -> None:
    site, older, younger = waiting_pair(tmp_path, limit_s=4000)
    everywhere = tuple(machine.name for machine in TWO.machines)
    if by_person:
        site.slurm.hold(older)
    else:
        site.slurm.reserve(Reservation("soon", everywhere, 3000.0, 9000.0), "root")
    site.run_to(20)
    assert site.managed(older).phase.name is JobPhase.INELIGIBLE
    if by_person:
        site.slurm.release(older)
    else:
        site.slurm.update(older, time_limit_s=1200)
    site.run_to(150)
    assert [site.states()[job] for job in (older, younger)] == (
        ["PENDING", "RUNNING"] if by_person else ["RUNNING", "PENDING"]
    )


@pytest.mark.parametrize("restarts_at_s", [15.0, 25.0])
def test_a_job_that_a_person_held_comes_last_after_a_restart_too(
    tmp_path: Path, restarts_at_s: float
) -> None:
    site, older, younger = waiting_pair(tmp_path, limit_s=1100)
    site.slurm.hold(older)
    actions = [(20.0, lambda site: site.slurm.release(older)), (restarts_at_s, FakeSite.restart)]
    site.live(150, actions)
    assert [site.states()[job] for job in (older, younger)] == ["PENDING", "RUNNING"]


def test_a_job_that_waits_for_a_limit_keeps_its_place_over_a_restart(tmp_path: Path) -> None:
    site, older, younger = waiting_pair(tmp_path, limit_s=1100)
    site.slurm.total_licenses["matlab"] = 0
    site.slurm.update(older, licenses="matlab")
    site.run_to(20)
    assert site.managed(older).phase.name is JobPhase.INELIGIBLE
    site.restart()
    site.run_to(30)
    site.slurm.total_licenses["matlab"] = 1
    site.run_to(150)
    assert [site.states()[job] for job in (older, younger)] == ["RUNNING", "PENDING"]


def test_new_jobs_after_a_restart_get_no_place_of_one_that_waits_for_a_limit(tmp_path: Path) -> None:
    site, _, younger = waiting_pair(tmp_path, limit_s=1100)
    site.slurm.total_licenses["matlab"] = 0
    site.slurm.update(younger, licenses="matlab")
    site.run_to(20)
    assert site.managed(younger).phase.name is JobPhase.INELIGIBLE
    site.restart()
    newest = site.submit(gpus_per_node=4, run_time_s=1000, time_limit_s=1100)
    site.run_to(30)
    site.slurm.total_licenses["matlab"] = 1
    site.run_to(40)
    orders = [site.controller.scheduler.state.jobs[job].order for job in (younger, newest)]
    assert orders == sorted(set(orders))


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("by_person", [False, True])
def test_a_wait_goes_on_while_nodes_or_licences_are_away_and_begins_anew_after_a_hold(
    tmp_path: Path, by_person: bool, limited: bool
) -> None:
    site, _, job = waiting_pair(tmp_path)
    site.slurm.total_licenses["matlab"] = 0
    since_s = site.managed(job).history.origin_s
    if by_person:
        site.slurm.hold(job)
        site.run_to(20)
        if limited:
            site.slurm.update(job, licenses="matlab")
        site.slurm.release(job)
        since_s = 20.0
    elif limited:
        site.slurm.update(job, licenses="matlab")
    site.run_to(30)
    nodes = [machine.name for machine in TWO.machines]
    for node in nodes:
        site.slurm.set_node(node, "drain")
    site.run_to(40)
    why = (
        "it asks for 1 of licence matlab, and 0 are free"
        if limited
        else "too few of the nodes that it may use"
    )
    assert site.managed(job).reason.startswith(why)
    for node in nodes:
        site.slurm.set_node(node, "")
    site.slurm.total_licenses["matlab"] = 1
    site.run_to(50)
    assert site.managed(job).phase.name is JobPhase.PENDING
    assert site.controller.scheduler.state.jobs[job].origin_s == pytest.approx(since_s, abs=5)
    assert site.managed(job).history.origin_s == pytest.approx(since_s, abs=5)


def test_a_controller_that_drains_says_so_of_the_jobs_that_wait(tmp_path: Path) -> None:
    site, older, _ = waiting_pair(tmp_path)
    site.mode = ControllerMode(drain=True)
    site.restart()
    site.run_to(20)
    [shown] = [each for each in report(site.controller, "fifo", ("gpu",)).jobs if each["job"] == older]
    assert shown["reason"] == "the controller drains: it starts no jobs"


def test_the_controller_rests_while_a_job_is_in_its_grace(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, TWO, "srsf-delay", knowledge="limits", poll_s=2.0)
    for _ in range(2):
        site.submit(signal="USR1", grace_s=60, gpus_per_node=4, run_time_s=9e4, time_limit_s=1e5)
    site.run_to(4000)
    site.submit(gpus_per_node=4, run_time_s=50, time_limit_s=60)
    site.controller.cycle()
    assert site.events("stop")
    for _ in range(5):
        site.now_s += 1.0
        assert site.controller.cycle() >= site.now_s + site.config.poll_s
