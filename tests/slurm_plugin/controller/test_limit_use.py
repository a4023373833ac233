"""Jobs at a limit of their QOS, account or user: they wait, stop nobody, and start as soon as it allows."""

from pathlib import Path
from typing import Any

import pytest

from dally.testing.worlds import racks
from slurm_plugin.client.slurm import ResourceLimit
from slurm_plugin.controller.limit_use import licenses_asked
from slurm_plugin.controller.managed_job import JobPhase
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import Site

FOUR = racks([[4, 4], [4, 4]])
PER_USER = ResourceLimit("MaxTRESPerUser of QOS low", "low", each="user", gpus=4)


def limited(folder: Path, *limits: ResourceLimit) -> Site:
    site = Site(folder, FOUR, policy="srtf")
    site.slurm.told_limits = limits
    return site


def test_a_user_at_his_limit_waits_and_stops_nobody(tmp_path: Path) -> None:
    site = limited(tmp_path, PER_USER)
    asked: dict[str, Any] = {"gpus_per_node": 4, "time_limit_s": 3600.0, "checkpoint_exit_s": 1.0}
    others = [site.submit("", "USR1", 20, user="bob", **asked) for _ in range(3)]
    first = site.submit(gpus_per_node=4, qos="low", run_time_s=100.0, time_limit_s=200.0)
    site.live(10)
    assert set(site.states().values()) == {"RUNNING"}
    second = site.submit(gpus_per_node=4, qos="low", run_time_s=10.0, time_limit_s=20.0)
    site.live(90)
    assert site.managed(second).phase.name is JobPhase.INELIGIBLE
    assert site.managed(second).reason == "MaxTRESPerUser of QOS low is 4 GPUs: 4 taken, 4 asked for"
    assert not site.events("stop", "start_failed")
    site.live(115)
    assert site.states()[second] in ("RUNNING", "COMPLETED")
    assert {site.states()[job] for job in others} == {"RUNNING"}
    assert site.states()[first] == "COMPLETED"


def test_no_more_jobs_are_promised_gpus_than_a_limit_allows(tmp_path: Path) -> None:
    site = limited(tmp_path, PER_USER)
    site.slurm.most_gpus["low"] = 4
    for _ in range(5):
        site.submit(gpus_per_node=2, qos="low", run_time_s=50.0, time_limit_s=60.0)
    site.live(400)
    assert set(site.states().values()) == {"COMPLETED"}
    assert not site.events("start_failed")


def test_a_limit_on_jobs_and_one_on_each_job(tmp_path: Path) -> None:
    jobs = ResourceLimit("GrpJobs of account lab", accounts=frozenset({"lab"}), jobs=1)
    size = ResourceLimit("MaxTRESPerJob of QOS low", "low", job_gpus=2)
    site = limited(tmp_path, jobs, size)
    one, two = (site.submit(gpus_per_node=1, account="lab", run_time_s=50.0) for _ in range(2))
    large = site.submit(gpus_per_node=4, qos="low")
    site.live(20)
    assert (site.states()[one], site.states()[two]) == ("RUNNING", "PENDING")
    assert site.managed(two).reason == "GrpJobs of account lab is 1 job: so many run or are about to"
    assert site.managed(large).reason == "MaxTRESPerJob of QOS low is 2 GPUs: it asks for 4"
    site.live(70)
    assert site.states()[two] == "RUNNING"


def test_limits_are_read_again_and_the_last_ones_hold_while_nobody_answers(tmp_path: Path) -> None:
    site = limited(tmp_path, PER_USER)
    site.live(5)
    site.slurm.told_limits = ()
    assert [*site.controller.reconciler.conditions.limits] == [PER_USER]
    site.submit(gpus_per_node=1, run_time_s=1000.0)
    site.live(400)
    assert not site.controller.reconciler.conditions.limits


def test_limits_that_cannot_be_read_are_told_once(tmp_path: Path) -> None:
    site = limited(tmp_path, PER_USER)
    site.slurm.told_limits = None
    site.submit(gpus_per_node=1, run_time_s=2000.0)
    site.live(1000)
    assert site.events("limits_unread") == [("limits_unread", "")]


def test_no_more_jobs_are_promised_licences_than_are_free(tmp_path: Path) -> None:
    site = limited(tmp_path)
    site.slurm.total_licenses["matlab"] = 2
    jobs = [site.submit(gpus_per_node=1, licenses="matlab", run_time_s=50.0) for _ in range(5)]
    site.live(20)
    assert [site.states()[job] for job in jobs] == ["RUNNING"] * 2 + ["PENDING"] * 3
    assert site.managed(jobs[2]).reason == "it asks for 1 of licence matlab, and 0 are free"
    site.live(400)
    assert {site.states()[job] for job in jobs} == {"COMPLETED"}
    assert not site.events("start_failed")


def test_a_licence_that_a_job_of_slurms_own_is_about_to_take_is_not_promised(tmp_path: Path) -> None:
    site = limited(tmp_path)
    site.slurm.start_delay_s = 30.0
    site.slurm.total_licenses["matlab"] = 1
    site.slurm.submit(SubmitSpec(licenses="matlab", held=False, run_time_s=100.0))
    job = site.submit(gpus_per_node=1, licenses="matlab", run_time_s=10.0)
    site.live(20)
    assert site.managed(job).reason == "it asks for 1 of licence matlab, and 0 are free"
    site.slurm.start_delay_s = 0.0
    site.live(200)
    assert site.states()[job] == "COMPLETED"
    assert not site.events("start_failed")


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("matlab", [("matlab", 1)]),
        ("matlab:2,ansys=3", [("matlab", 2), ("ansys", 3)]),
        ("matlab@server:2", [("matlab", 2)]),
        ("matlab|ansys", []),
        ("", []),
    ],
)
def test_licences_are_read_as_a_job_asks_for_them(text: str, asked: list[tuple[str, int]]) -> None:
    assert licenses_asked(text) == asked
