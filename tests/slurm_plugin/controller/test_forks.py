"""GPU types, copies and open sizes through the controller over the fake Slurm."""

from pathlib import Path

import pytest

from dally.profiles.files import load_profiles
from dally.testing.worlds import NIC, racks
from slurm_plugin.client.orders import ReleaseToSlurm
from slurm_plugin.controller.journal import NAME
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.service.release_command import release_orders
from tests.slurm_plugin.worlds import FakeSite

TYPES = racks([[2, 2, 2]], ("k80", "p100", "v100"), depth=2)
GAVEL = load_profiles("gavel")
EVERYWHERE = {"r0m0": 2, "r0m1": 2, "r0m2": 2}
GRACE_S = 20


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    """A node each of K80s, P100s and V100s, under HadarE with slots of a minute."""
    return FakeSite(tmp_path, TYPES, "hadar-e:round_s=60", GAVEL)


def submit_forked(site: FakeSite) -> str:
    return site.submit(
        "resnet-50", "USR1", GRACE_S, gpus_per_node=2, copies=3, tasks_per_node=2, time_limit_s=5e4
    )


def submit_typed(site: FakeSite) -> str:
    """A job that accepts a V100 only, and is worth more for each GPU."""
    return site.submit("resnet-50", gpus_per_node=1, gpu_type="v100", run_time_s=90.0, time_limit_s=5e4)


def test_a_forked_job_gets_a_copy_on_each_node_with_its_gpus_and_tasks(site: FakeSite) -> None:
    job = submit_forked(site)
    site.run_to(5)
    assert site.nodes(job) == EVERYWHERE
    (shown,) = site.slurm.jobs()
    assert (shown.min_nodes, shown.tasks) == (3, 6)
    life = site.controller.scheduler.state.jobs[job]
    assert life.copies == 3
    assert life.speed > 1.0


def test_copies_lose_what_averaging_takes_as_in_a_simulation(tmp_path: Path) -> None:
    """Of a slot of 60 s, `overhead_s` and 43 ms for 400 MB at 200 Gb/s: the profiles tell no sizes."""
    speeds = []
    for overhead_s in (0, 10):
        site = FakeSite(
            tmp_path / str(overhead_s), TYPES, f"hadar-e:round_s=60,overhead_s={overhead_s}", GAVEL
        )
        job = submit_forked(site)
        site.run_to(5)
        assert site.controller.scheduler.state.jobs[job].copies == 3
        speeds.append(site.controller.scheduler.state.jobs[job].speed)
    transfer_s = 2 * 2 * 2 / 3 * 8 * 400e6 / NIC.bandwidth_bps
    assert speeds[1] / speeds[0] == pytest.approx((50 - transfer_s) / (60 - transfer_s))


def test_another_number_of_copies_is_a_checkpoint_and_a_start_elsewhere(site: FakeSite) -> None:
    job = submit_forked(site)
    site.run_to(5)
    typed = submit_typed(site)
    site.run_to(100)
    assert site.nodes(typed) == {"r0m2": 1}
    assert site.nodes(job) == {"r0m0": 2, "r0m1": 2}
    assert site.slurm.signals == [(60.0, job, "USR1")]
    assert site.managed(job).history.preemptions == 1
    assert ("migrate", job) in site.events()


def test_what_a_round_decided_is_done_as_soon_as_those_who_must_leave_have_left(site: FakeSite) -> None:
    job = submit_forked(site)
    site.run_to(5)
    typed = submit_typed(site)
    site.run_to(60 + GRACE_S)
    assert {site.managed(each).phase.name for each in (job, typed)} == {JobPhase.RUNNING}


def test_copies_come_back_when_nodes_are_free_again(site: FakeSite) -> None:
    job = submit_forked(site)
    site.run_to(5)
    typed = submit_typed(site)
    site.run_to(400)
    assert site.states()[typed] == "COMPLETED"
    assert site.nodes(job) == EVERYWHERE


def test_a_controller_that_starts_anew_knows_the_copies(site: FakeSite) -> None:
    job = submit_forked(site)
    site.run_to(5)
    site.restart()
    site.run_to(50)
    assert site.controller.scheduler.state.jobs[job].copies == 3
    assert site.states() == {job: "RUNNING"}


def test_without_its_journal_a_job_that_waits_still_asks_for_one_copy(site: FakeSite) -> None:
    job = submit_forked(site)
    site.run_to(5)
    site.slurm.requeue(job)
    (site.folder / NAME).unlink()
    site.restart()
    site.run_to(100)
    assert site.managed(job).job.gpus == 2
    assert site.nodes(job) == EVERYWHERE


def test_a_forked_job_is_handed_back_as_one_copy(site: FakeSite) -> None:
    job = submit_forked(site)
    site.run_to(5)
    site.slurm.requeue(job)
    managed_jobs = site.controller.reconciler.managed_jobs
    for known in (managed_jobs, {}):
        assert (
            release_orders(site.slurm.jobs(), known) == (ReleaseToSlurm(job, 1, tasks=2, exact=True),)
            or known
        )
    site.run_to(6)
    assert site.slurm.run([ReleaseToSlurm(job, 1, tasks=2, exact=True)]) is not None


def test_a_job_that_counts_its_gpus_otherwise_has_no_copies(site: FakeSite) -> None:
    job = site.submit("resnet-50", gpus=2, copies=3)
    site.run_to(5)
    assert site.managed(job).phase.name is JobPhase.RELEASED
    assert "its copies' GPUs are not counted" in site.managed(job).reason


def test_a_gang_lies_on_two_types(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, TYPES, "hadar:round_s=60", GAVEL)
    job = site.submit("resnet-50", nodes=3, gpus_per_node=2)
    site.run_to(5)
    assert site.nodes(job) == EVERYWHERE
    state = site.controller.scheduler.state
    assert state.topology.by_type(state.jobs[job].allocation) == {"k80": 2, "p100": 2, "v100": 2}
