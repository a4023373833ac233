"""Time limits of jobs that a policy lets run slower than they asked, over the fake Slurm."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dally.jobs.job import Job
from dally.policies.registry import policy_names
from dally.profiles.files import load_profiles
from dally.testing.worlds import racks
from slurm_plugin.client.slurm import Partition, Reservation
from slurm_plugin.controller.journal import read_events
from tests.slurm_plugin.worlds import FakeSite

HOUR_S = 3600.0
ONE_NODE = racks([[8]])
TYPES = racks([[2, 2, 2]], ("k80", "p100", "v100"), depth=2)


def by_gpus(gpus: Mapping[str, int]) -> float:
    """An hour on four GPUs, and in proportion on more or fewer."""
    return HOUR_S * 4 / sum(gpus.values())


def elastic(site: FakeSite, signal: str = "USR1", **more: Any) -> str:
    """A job of an hour with a limit of two that asks for four GPUs and takes one to eight."""
    asked = {"gpus_per_task": 1, "tasks": 4, "run_time_s": by_gpus, "time_limit_s": 2 * HOUR_S, **more}
    return site.submit("", signal, 60, least=1, most=8, checkpoint_exit_s=1.0, resumes=True, **asked)


def limits(site: FakeSite) -> dict[str, float | None]:
    """Each job's time limit in hours, as Slurm shows it."""
    return {job.job_id: job.time_limit_s and job.time_limit_s / HOUR_S for job in site.slurm.jobs()}


def ends(site: FakeSite) -> set[str]:
    """How the jobs ended."""
    site.slurm.remember_s = 1e9
    site.run_to(100 * HOUR_S)
    return set(site.states().values())


@pytest.mark.parametrize("longest_h", [1000.0, 2.0], ids=["no-maxtime", "maxtime-2h"])
@pytest.mark.parametrize("policy", policy_names())
def test_eight_elastic_jobs_on_one_node_end_completed(tmp_path: Path, policy: str, longest_h: float) -> None:
    site = FakeSite(tmp_path, ONE_NODE, policy)
    site.slurm.rules["gpu"] = Partition("gpu", longest_h * HOUR_S)
    for _ in range(8):
        elastic(site)
    assert ends(site) == {"COMPLETED"}


def test_the_limit_grows_as_far_as_the_job_is_slower_and_is_its_own_again_elsewhere(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, ONE_NODE, "elastic-scaling:interval_s=1000")
    jobs = [elastic(site) for _ in range(8)]
    site.run_to(HOUR_S)
    assert limits(site) == dict.fromkeys(jobs, 8.0)
    for job in jobs[:7]:
        site.slurm.cancel(job)
    site.run_to(1.2 * HOUR_S)
    assert limits(site)[jobs[7]] == 2.0
    assert site.managed(jobs[7]).job.time_limit_s == 2 * HOUR_S


def test_no_limit_goes_beyond_what_the_partition_allows(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, ONE_NODE, "elastic-scaling:interval_s=1000")
    site.slurm.rules["gpu"] = Partition("gpu", 3 * HOUR_S)
    jobs = [elastic(site) for _ in range(8)]
    site.run_to(HOUR_S)
    assert limits(site) == dict.fromkeys(jobs, 3.0)


def test_no_limit_goes_beyond_the_beginning_of_a_reservation(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, ONE_NODE, "elastic-scaling:interval_s=1000")
    site.slurm.reserve(Reservation("power", ("r0m0",), 5 * HOUR_S, 6 * HOUR_S), "root")
    jobs = [elastic(site) for _ in range(8)]
    site.run_to(HOUR_S)
    assert set(site.states().values()) == {"RUNNING"}
    assert all(2.0 < (limits(site)[job] or 0.0) <= 5.0 for job in jobs)
    assert not site.events("start_failed")


def test_no_limit_goes_beyond_the_deadline_at_which_slurm_cancels_the_job(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, ONE_NODE, "elastic-scaling:interval_s=1000")
    jobs = [elastic(site, deadline_s=5 * HOUR_S) for _ in range(8)]
    site.run_to(HOUR_S)
    assert set(site.states().values()) == {"RUNNING"}
    assert all(2.0 < (limits(site)[job] or 0.0) <= 5.0 for job in jobs)


def test_a_job_whose_limit_comes_too_early_is_asked_for_its_checkpoint_before(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, ONE_NODE, "jps")
    site.slurm.rules["gpu"] = Partition("gpu", 2 * HOUR_S)
    jobs = [elastic(site) for _ in range(8)]
    site.run_to(2 * HOUR_S)
    stops = [event for event in read_events(tmp_path) if event["event"] == "stop"]
    assert {(event["job"], event["t"]) for event in stops} == {(job, 2 * HOUR_S - 90) for job in jobs}
    assert {event["reason"] for event in stops} == {
        "its time limit of 2 h ends before it is done; it goes on later"
    }


def test_without_checkpoints_a_job_is_given_no_size_for_which_there_is_no_time(
    tmp_path: Path,
) -> None:
    site = FakeSite(tmp_path, ONE_NODE, "elastic-scaling:interval_s=1000")
    site.slurm.rules["gpu"] = Partition("gpu", 2 * HOUR_S)
    for _ in range(8):
        elastic(site, signal="")
    site.run_to(60)
    sizes = [sum(job.gpus.values()) for job in site.slurm.jobs() if job.gpus]
    assert sum(sizes) == 8
    assert min(sizes) >= 4
    assert ends(site) == {"COMPLETED"}


def test_a_job_that_had_the_time_it_asked_for_ends_at_its_limit(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, ONE_NODE, "elastic-scaling:interval_s=1000")
    elastic(site, run_time_s=10 * HOUR_S)
    assert ends(site) == {"TIMEOUT"}
    assert not site.events("stop")


def test_a_limit_that_a_person_sets_is_the_jobs_own(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, ONE_NODE, "elastic-scaling:interval_s=1000")
    jobs = [elastic(site) for _ in range(8)]
    site.run_to(60)
    site.slurm.set_node("r0m0", "drain")
    site.slurm.requeue(jobs[0])
    site.run_to(70)
    site.slurm.update(jobs[0], time_limit_s=3 * HOUR_S)
    site.run_to(80)
    site.slurm.set_node("r0m0")
    site.run_to(2000)
    assert limits(site)[jobs[0]] == pytest.approx(12.0, abs=0.02)


@pytest.mark.parametrize("policy", policy_names())
def test_jobs_on_slow_gpus_end_completed(tmp_path: Path, policy: str) -> None:
    site = FakeSite(tmp_path, TYPES, policy, load_profiles("gavel"))
    state = site.controller.scheduler.state

    def as_predicted(gpus: Mapping[str, int]) -> float:
        allocation = tuple((TYPES.machine_index[node], count) for node, count in gpus.items())
        return HOUR_S * state.costs.cost(Job("1", 0.0, 2, HOUR_S, model="resnet-50"), allocation).slowdown

    for signal in ("USR1", "USR1", "USR1", "", "", ""):
        site.submit(
            "resnet-50",
            signal,
            60,
            gpus_per_node=2,
            run_time_s=as_predicted,
            time_limit_s=1.5 * HOUR_S,
            checkpoint_exit_s=1.0,
            resumes=True,
        )
    assert ends(site) == {"COMPLETED"}
