"""`dally release-all`, over the fake Slurm."""

import json
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dally.commands import main
from slurm_plugin.client.orders import Order, ReleaseOnNodes
from slurm_plugin.client.slurm import Hold, Reservation
from slurm_plugin.controller.unavailable_gpus import claim_name
from tests.slurm_plugin.daemons import NODES, DaemonSite
from tests.slurm_plugin.fake import FakeSlurm
from tests.slurm_plugin.fake_job import SubmitSpec


class Hanging(FakeSlurm):
    """Released jobs do not start for ever."""

    def __init__(self) -> None:
        super().__init__(NODES, start_delay_s=1e9)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DaemonSite:
    """A site without a controller."""
    site = DaemonSite(tmp_path, Hanging())
    monkeypatch.setattr("slurm_plugin.service.release_command.open_slurm", lambda backend: site.slurm)
    monkeypatch.setattr("slurm_plugin.service.release_command.WATCH_S", 0.0)
    return site


def release(site: DaemonSite, *arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, ["release-all", "--config", str(site.config), *arguments], input=typed)


def holds(site: DaemonSite) -> dict[str, Hold]:
    return {job.job_id: job.hold for job in site.slurm.jobs()}


def test_jobs_that_wait_for_dally_are_slurms_and_holds_of_others_stay(site: DaemonSite) -> None:
    site.submit(gpus_per_node=8)
    site.submit(gpus_per_node=1, array=(1, 2))
    site.submit(gpus_per_node=8, held=True)
    by_admin = site.submit(gpus_per_node=8)
    site.slurm.hold(by_admin, Hold.ADMIN)
    plain = site.slurm.submit(SubmitSpec(gpus_per_node=8))
    result = release(site, "--yes")
    assert (result.exit_code, result.stdout) == (0, "handed 3 jobs back to Slurm\n")
    released = [job for job, hold in holds(site).items() if hold is Hold.NONE]
    assert released == ["1", "2_1", "2_2"]
    assert holds(site)[plain] is Hold.USER


def test_a_job_whose_mark_was_forged_is_released_too(site: DaemonSite) -> None:
    job = site.slurm.submit(SubmitSpec(gpus_per_node=8, comment="dally:grace_s=soon"))
    release(site, "--yes")
    assert holds(site)[job] is Hold.NONE


def test_a_node_list_left_on_a_job_is_cleared(site: DaemonSite) -> None:
    job = site.submit(gpus_per_node=8)
    site.slurm.run([ReleaseOnNodes(job, ("n2",))])
    release(site, "--yes")
    assert site.slurm.jobs()[0].required_nodes == ()


@pytest.mark.parametrize(("nodes", "gpus"), [(1, 6), (2, 7)])
def test_a_job_that_was_placed_gets_its_own_number_of_nodes_back(
    site: DaemonSite, nodes: int, gpus: int
) -> None:
    job = site.submit(nodes=nodes, gpus=gpus)
    site.slurm.set_node("n1", "drain")
    site.start().run(once=True)
    site.slurm.run([ReleaseOnNodes(job, ("n2", "n3", "n4"))])
    assert site.slurm.jobs()[0].min_nodes == 3
    release(site, "--yes")
    assert site.slurm.jobs()[0].min_nodes == nodes


def test_nodes_that_were_kept_for_one_of_them_are_open_again(site: DaemonSite) -> None:
    job = site.submit(gpus_per_node=8)
    now_s = time.time()
    site.slurm.reserve(Reservation(claim_name(job, now_s), ("n1",), now_s, now_s + 3600), "alice")
    site.slurm.reserve(Reservation("maintenance", ("n1",), now_s, now_s + 3600), "root")
    release(site, "--yes")
    assert [each.name for each in site.slurm.reservations()] == ["maintenance"]


def test_it_asks_and_does_nothing_if_told_so(site: DaemonSite) -> None:
    job = site.submit(gpus_per_node=8)
    result = release(site, typed="n\n")
    assert result.exit_code == 1
    assert "Hand 1 job back to Slurm? [y/N]" in result.stderr
    assert holds(site)[job] is Hold.USER
    release(site, typed="y\n")
    assert holds(site)[job] is Hold.NONE


def beat(site: DaemonSite, ago_s: float) -> None:
    """The controller's last sign of life was some time ago."""
    site.start().run(once=True)
    with sqlite3.connect(site.state / "journal.sqlite") as file:
        file.execute("UPDATE facts SET value = ? WHERE name = 'heartbeat_s'", (str(time.time() - ago_s),))


@pytest.mark.parametrize(("ago_s", "hold"), [(100.0, Hold.USER), (1000.0, Hold.NONE), (None, Hold.NONE)])
def test_the_deadman_releases_only_after_silence(site: DaemonSite, ago_s: float | None, hold: Hold) -> None:
    if ago_s is not None:
        beat(site, ago_s)
    job = site.submit(gpus_per_node=8)
    result = release(site, "--if-silent-for", "900", "--yes")
    assert result.exit_code == 0
    assert holds(site)[job] is hold


@pytest.mark.parametrize("off_s", [3600.0, -3600.0])
def test_a_clock_that_is_wrong_for_a_moment_makes_no_dead_controller(
    site: DaemonSite, monkeypatch: pytest.MonkeyPatch, off_s: float
) -> None:
    beat(site, off_s)
    job = site.submit(gpus_per_node=8)
    monkeypatch.setattr("time.sleep", lambda _: (site.state / "journal.sqlite").touch())
    result = release(site, "--if-silent-for", "900", "--yes")
    assert (result.exit_code, holds(site)[job]) == (0, Hold.USER)
    assert result.output.startswith("heard the controller just now")


@pytest.mark.parametrize("beat_s", ["soon", "", "nan", "1e999", b"\xff", 32_503_680_000.0])  # the year 3000
def test_a_sign_of_life_that_cannot_be_is_none(site: DaemonSite, beat_s: object) -> None:
    beat(site, 0.0)
    with sqlite3.connect(site.state / "journal.sqlite") as file:
        file.execute("UPDATE facts SET value = ? WHERE name = 'heartbeat_s'", (beat_s,))
    job = site.submit(gpus_per_node=8)
    result = release(site, "--if-silent-for", "900", "--yes")
    assert (result.exit_code, result.output) == (0, "handed 1 job back to Slurm\n")
    assert holds(site)[job] is Hold.NONE


@pytest.mark.parametrize(("ago_s", "hold"), [(100.0, Hold.USER), (1000.0, Hold.NONE)])
def test_a_broken_journal_says_by_its_file_when_it_was_written(
    site: DaemonSite, ago_s: float, hold: Hold
) -> None:
    beat(site, 0.0)
    journal = site.state / "journal.sqlite"
    journal.write_bytes(b"garbage" * 1000)
    os.utime(journal, (time.time() - ago_s,) * 2)
    job = site.submit(gpus_per_node=8)
    assert release(site, "--if-silent-for", "900", "--yes").exit_code == 0
    assert holds(site)[job] is hold


def test_a_folder_that_cannot_be_looked_into_has_no_sign_of_life(site: DaemonSite) -> None:
    site.configure(state_dir="/dev/null/state")
    job = site.submit(gpus_per_node=8)
    assert release(site, "--if-silent-for", "900", "--yes").exit_code == 0
    assert holds(site)[job] is Hold.NONE


def test_with_a_controller_at_work_it_says_what_will_happen(site: DaemonSite) -> None:
    beat(site, 5.0)
    site.submit(gpus_per_node=8)
    result = release(site, typed="n\n")
    assert "A controller is at work (sign of life 5s ago). It will leave these jobs to Slurm" in result.stderr


def test_refusals_are_told_and_fail(site: DaemonSite) -> None:
    for _ in range(2):
        site.submit(gpus_per_node=8)
    site.slurm.refuse["2"] = "Access denied"
    result = release(site, "--yes")
    assert result.exit_code == 1
    assert result.stdout == "handed 1 job back to Slurm\nrefused 2: Access denied\n"


class Vanishing(Hanging):
    """A job is cancelled between the look and the order."""

    def run(self, orders: Sequence[Order]) -> tuple[str | None, ...]:
        self.cancel("1")
        return super().run(orders)


def test_a_job_that_left_meanwhile_is_no_failure(site: DaemonSite) -> None:
    site.slurm = Vanishing()
    site.submit(gpus_per_node=8)
    assert release(site, "--yes").exit_code == 0


def test_json_names_the_jobs(site: DaemonSite) -> None:
    site.submit(gpus_per_node=8)
    assert json.loads(release(site, "--yes", "--json").stdout)["released"] == ["1"]


def test_nothing_to_do_is_told_and_nothing_asked(site: DaemonSite) -> None:
    result = release(site)
    assert (result.exit_code, result.stdout) == (0, "no job is held for Dally\n")


def test_without_slurm_it_is_one_line(site: DaemonSite) -> None:
    site.slurm.unavailable = True
    result = release(site, "--yes")
    assert result.exit_code == 1
    assert result.stderr == "dally: squeue: Unable to contact slurm controller (connect failure)\n"


def test_a_controller_that_is_alive_leaves_the_released_jobs_to_slurm(site: DaemonSite) -> None:
    job = site.submit(nodes=4, gpus_per_node=8)
    site.submit(nodes=4, gpus_per_node=8)
    site.slurm.start_delay_s = 0.0
    site.run(lambda: release(site, "--yes"), lambda: None)
    assert site.states()[job] == "RUNNING"
    assert [event["job"] for event in site.events("released")] == ["2"]
    assert holds(site)["2"] is Hold.NONE
