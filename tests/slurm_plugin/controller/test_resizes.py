"""An elastic policy through the controller over the fake Slurm: sizes change by checkpoint and requeue."""

from pathlib import Path

import pytest

from dally.jobs.job import Job
from dally.profiles.files import load_profiles
from dally.testing.worlds import racks
from slurm_plugin.client.orders import ReleaseToSlurm
from slurm_plugin.controller.journal import read_events
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.request import Request, encode
from slurm_plugin.service.release_command import release_orders
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite

FOUR = racks([[1, 1, 1, 1]])
LIMIT_S = 60_000.0


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    """Four nodes of a GPU under a policy that sizes all jobs as soon as one comes or goes."""
    return FakeSite(tmp_path, FOUR, "elastic-scaling:interval_s=1000")


def submit_elastic(site: FakeSite, gpus: int = 1) -> str:
    """A job of 1 to 4 GPUs, asked for as so many, that writes its checkpoint in a second."""
    asked = Request("", "USR1", 20, 1, 4)
    spec = SubmitSpec(
        comment=encode(asked), gpus_per_task=1, tasks=gpus, checkpoint_exit_s=1.0, time_limit_s=LIMIT_S
    )
    return site.slurm.submit(spec)


def submit_rigid(site: FakeSite) -> str:
    return site.submit("", gpus_per_task=1, tasks=2, run_time_s=50.0, time_limit_s=5e4)


def test_a_job_shrinks_for_one_that_comes_and_grows_when_it_has_gone(site: FakeSite) -> None:
    job = submit_elastic(site)
    site.run_to(10)
    assert sum(site.nodes(job).values()) == 4
    other = submit_rigid(site)
    site.run_to(30)
    assert [sum(site.nodes(each).values()) for each in (job, other)] == [2, 2]
    site.run_to(100)
    assert site.states()[other] == "COMPLETED"
    assert sum(site.nodes(job).values()) == 4
    assert site.events("stop", "resize", "migrate", "preempt") == [("stop", job), ("resize", job)] * 2


def test_a_resize_says_why_in_the_journal(site: FakeSite) -> None:
    submit_elastic(site)
    site.run_to(10)
    submit_rigid(site)
    site.run_to(30)
    (event,) = [each for each in read_events(site.folder) if each["event"] == "resize"]
    assert "2 GPUs at slowdown 0.5" in event["reason"]
    assert sum(event["gpus"].values()) == 2


def test_a_controller_that_starts_anew_goes_on_with_a_resize(site: FakeSite) -> None:
    job = submit_elastic(site)
    site.run_to(10)
    submit_rigid(site)
    site.controller.cycle()
    assert site.events("stop") == [("stop", job)]
    site.restart()
    site.run_to(30)
    assert site.events("resize", "migrate") == [("resize", job)]


def beside_another(folder: Path) -> tuple[FakeSite, str]:
    """A job of 3 GPUs on a node of 4, where another has 2 until 50 s."""
    site = FakeSite(folder, racks([[4]]), "elastic-scaling:interval_s=1000")
    submit_rigid(site)
    site.run_to(10)
    job = submit_elastic(site, 3)
    site.run_to(40)
    return site, job


def test_a_job_starts_on_what_is_free_of_a_node_and_grows(tmp_path: Path) -> None:
    site, job = beside_another(tmp_path)
    assert site.nodes(job) == {"r0m0": 2}
    site.restart()
    site.run_to(100)
    assert site.nodes(job) == {"r0m0": 4}
    assert site.events("order_refused", "start_failed", "released") == []


@pytest.mark.parametrize(("until_s", "limit_min"), [(40, 1000), (100, None)], ids=["smaller", "larger"])
def test_a_job_of_another_size_is_handed_back_as_it_was_submitted(
    tmp_path: Path, until_s: float, limit_min: int | None
) -> None:
    site, job = beside_another(tmp_path)
    site.run_to(until_s)
    site.slurm.set_node("r0m0", "drain")
    site.slurm.requeue(job)
    site.restart()
    site.run_to(until_s + 1)
    assert (site.managed(job).phase.name, site.managed(job).job.gpus) == (JobPhase.INELIGIBLE, 3)
    assert "up: r0m0 is" in site.managed(job).reason
    assert release_orders(site.slurm.jobs(), site.controller.reconciler.managed_jobs) == (
        ReleaseToSlurm(job, 1, tasks=3, limit_min=limit_min),
    )


def test_nodes_that_a_user_gives_back_are_for_others(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR)
    job = site.submit(nodes=4, gpus_per_node=1)
    site.run_to(10)
    other = site.submit(nodes=2, gpus_per_node=1)
    site.run_to(20)
    assert site.managed(other).phase.name is JobPhase.PENDING
    last = list(site.nodes(job))[2:]
    site.slurm.shrink(job, *last)
    site.run_to(30)
    assert list(site.nodes(other)) == last
    assert (site.managed(job).phase.name, site.managed(job).job.gpus) == (JobPhase.RUNNING, 2)
    assert site.events("resize", "released", "fail") == [("resize", job)]


def test_a_controller_that_was_away_meanwhile_sees_them_given_back(site: FakeSite) -> None:
    job = submit_elastic(site)
    site.run_to(10)
    site.slurm.shrink(job, *list(site.nodes(job))[1:])
    site.restart()
    site.run_to(11)
    assert sum(site.managed(job).gpus.values()) == 1
    assert site.managed(job).history.preemptions == 0


def test_a_policy_counts_a_resize_as_the_restart_that_it_is(tmp_path: Path) -> None:
    profiles = load_profiles("testbed")
    site = FakeSite(tmp_path, FOUR, profiles=profiles)
    restart = profiles.profiles[0].restart
    costs = site.controller.scheduler.state.costs
    job = Job("1", 0.0, 1, 10.0, model=profiles.models[0])
    assert costs.resize_s(job) == restart.base_s + restart.per_gpu_s
