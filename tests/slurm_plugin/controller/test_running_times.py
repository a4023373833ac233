"""What the live controller goes by of running times, and that it is kept."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge
from dally.scheduling.learnt_beliefs import Learnt
from dally.scheduling.recording.replay import replay
from dally.testing.worlds import racks
from slurm_plugin.client.command_line import read_ended
from slurm_plugin.client.slurm import SlurmUnavailableError
from slurm_plugin.controller.controller import TAUGHT_DAYS
from slurm_plugin.controller.journal import read_events
from slurm_plugin.controller.running_times import in_words
from tests.slurm_plugin.worlds import FakeSite

ONE_GPU = racks([[1]])


def ended(count: int) -> tuple[Job, ...]:
    """Jobs of two users, a minute and a day long, with the partition's limit."""
    return tuple(
        Job(
            str(number),
            100.0 * number,
            1,
            (60.0, 80_000.0)[number % 2] + number,
            user=("quick", "slow")[number % 2],
            time_limit_s=86_400.0,
        )
        for number in range(count)
    )


def said(site: FakeSite) -> str:
    lessons = asdict(site.controller.scheduler.beliefs.lessons())
    return in_words({"configured": site.config.knowledge, **lessons})


def taught(folder: Path, **settings: Any) -> FakeSite:
    """A controller at its first start on a site whose accounting has a past."""
    site = FakeSite(folder, ONE_GPU, "srsf-delay")
    site.controller._journal.close()
    (folder / "journal.sqlite").unlink()
    site.slurm.accounting = ended(80)
    site.config = type(site.config)(("gpu",), policy="srsf-delay", **settings)
    site.controller = site.new_controller()
    return site


def first(site: FakeSite) -> str:
    """Whose job starts first of two that wait when the only GPU comes free, the slow user's before."""
    blocker = site.submit(gpus_per_node=1, run_time_s=30.0, user="new", time_limit_s=86_400.0)
    site.run_to(1)
    users = {
        site.submit(gpus_per_node=1, run_time_s=50.0, user=user, time_limit_s=86_400.0): user
        for user in ("slow", "quick")
    }
    site.run_to(40)
    return next(users[job] for job, state in site.states().items() if job != blocker and state == "RUNNING")


def test_at_its_first_start_it_learns_from_accounting(tmp_path: Path) -> None:
    site = taught(tmp_path)
    assert said(site).startswith("history since ")
    found = re.search(
        r"on 80 ended jobs: of two jobs, limits told the longer one in 4\d % of the pairs", said(site)
    )
    assert found
    assert said(site).endswith("history in 98 %")
    assert first(site) == "quick"
    (event,) = [each for each in read_events(tmp_path) if each["event"] == "history_read"]
    assert (event["jobs"], event["days"]) == (80, TAUGHT_DAYS)


@pytest.mark.parametrize(("knowledge", "who"), [("history", "quick"), ("limits", "slow"), ("none", "slow")])
def test_what_is_pinned_is_gone_by(knowledge: str, who: str, tmp_path: Path) -> None:
    site = taught(tmp_path, knowledge=knowledge)
    assert first(site) == who
    assert said(site).startswith(f"{knowledge}, as dally.toml says")


def test_without_accounting_it_starts_with_limits_and_one_line(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, ONE_GPU, "srsf-delay")
    site.slurm.accounting = None
    site.restart()
    site.run_to(1)
    site.restart()
    site.run_to(2)
    events = [each for each in read_events(tmp_path) if each["event"] == "history_unread"]
    assert [each["reason"] for each in events] == ["sacct: Slurm accounting storage is disabled"]
    assert said(site) == "limits, until 50 jobs have ended; 0 so far"


def test_what_was_learnt_survives_a_restart_and_the_next_policy(tmp_path: Path) -> None:
    site = taught(tmp_path)
    site.run_to(1)
    site.slurm.accounting = ()
    before = said(site)
    site.restart()
    assert said(site) == before
    assert first(site) == "quick"
    site.config = type(site.config)(("gpu",), policy="srtf")
    site.controller.write_beliefs()
    site.restart()
    beliefs = site.controller.scheduler.beliefs
    assert isinstance(beliefs, Learnt)
    assert beliefs.lessons().ended == 81
    assert beliefs.lessons().knowledge is Knowledge.HISTORY


def test_what_was_learnt_is_written_once_a_minute_at_most(tmp_path: Path) -> None:
    site = taught(tmp_path)
    written = []
    for second in range(1, 91):
        site.submit(gpus_per_node=1, run_time_s=0.5, user=f"user-{second}")
        site.run_to(second)
        written.append(json.dumps(site.controller._journal.load().believed))
    assert len({*written}) == 2
    site.slurm.accounting = ()
    site.restart()
    assert 80 + 50 < site.controller.scheduler.beliefs.lessons().ended < 80 + 70


def test_what_was_learnt_in_the_last_minute_is_written_at_a_clean_end(tmp_path: Path) -> None:
    site = taught(tmp_path)
    site.run_to(1)
    site.slurm.accounting = ()
    site.submit(gpus_per_node=1, run_time_s=5.0, user="quick")
    site.run_to(20)
    lessons = said(site)
    site.controller.write_beliefs()
    site.restart()
    assert said(site) == lessons
    assert "on 81 ended jobs" in lessons
    site.controller.write_beliefs()  # before its first cycle
    assert site.controller._journal.load().now_s == site.now_s


def test_what_cannot_be_read_is_one_line_and_learnt_anew(tmp_path: Path) -> None:
    site = taught(tmp_path)
    site.run_to(1)
    site.controller._journal.commit(site.now_s, believed={"groups": 7})
    site.restart()
    site.run_to(2)
    assert said(site) == "limits, until 50 jobs have ended; 0 so far"
    assert [each["event"] for each in read_events(tmp_path)].count("history_lost") == 1


def test_what_a_taught_controller_records_is_decided_again(tmp_path: Path) -> None:
    site = taught(tmp_path, record=str(tmp_path / "facts.jsonl"))
    first(site)
    site.restart()
    site.run_to(200)
    found = replay(tmp_path / "facts.jsonl")
    assert (found.segments, found.differing) == (2, 0)
    assert found.decisions > 5


SACCT = """\
JobIDRaw|User|Account|Submit|Start|ElapsedRaw|State|AllocTRES|ReqTRES|TimelimitRaw|JobName
17|alice|lab|1700000000|1700000100|3600|COMPLETED|billing=4,gres/gpu=4,node=1|gres/gpu=4|120|a|b
18|bob|lab|1700000001|1700000100|60|TIMEOUT|gres/gpu=1|gres/gpu=1|1|eval
19|bob|lab|1700000002|Unknown|0|CANCELLED by 7||gres/gpu=1|1|never
20|bob|lab|1700000003|1700000100|50|RUNNING|gres/gpu=1|gres/gpu=1|1|still
21|bob|lab|rubbish|1700000100|50|FAILED|gres/gpu=1|gres/gpu=1|1|broken
"""


def test_ended_gpu_jobs_are_read_from_sacct_in_the_order_of_their_ends() -> None:
    jobs = read_ended(SACCT)
    assert [(job.user, job.gpus, job.duration_s, job.time_limit_s, job.job_name) for job in jobs] == [
        ("bob", 1, 60.0, 60.0, "eval"),
        ("alice", 4, 3600.0, 7200.0, "a|b"),
    ]


@pytest.mark.parametrize("text", ["", "slurm_persist_conn_open: no dbd\n"])
def test_what_is_no_list_of_jobs_is_an_error(text: str) -> None:
    with pytest.raises(SlurmUnavailableError, match="sacct printed no jobs but"):
        read_ended(text)
