"""A journal of Dally 0.1 (schema 1) is read as it is, and brought into today's form when it is opened."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from slurm_plugin.client.slurm import Hold
from slurm_plugin.controller.journal import NAME, Journal, read_events, read_managed_jobs
from slurm_plugin.controller.managed_job import JobPhase, StoppingPhase, StopPurpose
from tests.slurm_plugin.worlds import RACKS, FakeSite

DUMP = Path(__file__).with_name("journal_schema_1.sql")
PHASES = {"2": JobPhase.STOPPING, "3": JobPhase.INELIGIBLE, "4": JobPhase.RELEASED}


def put_old_journal(folder: Path) -> None:
    """The journal that 0.1 wrote at 1020 s of `site_of_the_dump`."""
    (folder / NAME).unlink(missing_ok=True)
    with closing(sqlite3.connect(folder / NAME)) as database:
        database.executescript(DUMP.read_text())


def tables(folder: Path) -> set[str]:
    with closing(sqlite3.connect(folder / NAME)) as database:
        return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_its_jobs_and_events_are_read_before_a_controller_has_opened_it(tmp_path: Path) -> None:
    put_old_journal(tmp_path)
    jobs = read_managed_jobs(tmp_path)
    assert {job_id: managed.phase.name for job_id, managed in jobs.items()} == PHASES
    assert "tickets" in tables(tmp_path), "whoever only reads changes nothing"
    kinds = [event["event"] for event in read_events(tmp_path)]
    assert kinds.count("start_failed") == kinds.count("released") == 1
    assert not {"refuse", "leave"} & set(kinds)


def test_opening_it_brings_it_into_todays_form_once(tmp_path: Path) -> None:
    put_old_journal(tmp_path)
    before = read_managed_jobs(tmp_path)
    for _ in range(2):
        journal = Journal(tmp_path)
        memory = journal.load()
        journal.close()
        assert memory.managed_jobs == before
        assert (memory.lost, memory.now_s, memory.policy.partition(":")[0]) == ("", 1020.0, "tiresias")
        assert memory.learnt.keys() >= {"services"}
        assert memory.believed["knowledge"] == "auto"
        assert tables(tmp_path) == {"facts", "jobs", "events"}
    stopping = before["2"].phase
    assert isinstance(stopping, StoppingPhase)
    assert (stopping.reason, stopping.preempted_for) == (
        "in queue 2 after 8.62 GPU-hours; 4 is in queue 0",
        ("4",),
    )
    assert (stopping.signalled, stopping.purpose, stopping.interval.since_s) == (
        True,
        StopPurpose.PREEMPT,
        30.0,
    )
    assert before["2"].placed_once


@pytest.mark.parametrize("body", ["[]", "{", '{"standing": "nowhere"}'])
def test_a_damaged_job_of_it_is_met_as_new_and_that_is_said(tmp_path: Path, body: str) -> None:
    put_old_journal(tmp_path)
    with closing(sqlite3.connect(tmp_path / NAME)) as database, database:
        database.execute("UPDATE tickets SET body = ? WHERE job = '3'", (body,))
    journal = Journal(tmp_path)
    memory = journal.load()
    journal.close()
    assert memory.managed_jobs.keys() == {"2", "4"}
    assert memory.lost.startswith("record of job 3: ")


def site_of_the_dump(folder: Path) -> FakeSite:
    """What happened until 0.1 wrote the journal."""
    site = FakeSite(folder, RACKS, policy="tiresias:regroup_s=0,quantum_s=0", start_timeout_s=20.0)
    site.slurm.start_delay_s = 1e6
    never = site.submit(gpus_per_node=8, run_time_s=10.0)
    site.run_to(30)
    site.slurm.cancel(never)
    site.slurm.start_delay_s = 0.0
    site.submit(
        nodes=4,
        gpus_per_node=8,
        signal="USR1",
        grace_s=30,
        tag="aa",
        user="alice",
        model="vgg16",
        run_time_s=5000.0,
    )
    site.run_to(1000)
    site.slurm.hold(site.submit(gpus_per_node=8, run_time_s=10.0, user="bob"), Hold.ADMIN)
    left = site.submit(gpus_per_node=4, run_time_s=10.0, user="bob")
    site.run_to(1005)
    site.slurm.release(left)
    site.run_to(1020)
    return site


def test_a_controller_goes_on_where_the_older_one_was(tmp_path: Path) -> None:
    site = site_of_the_dump(tmp_path)
    assert {job_id: site.managed(job_id).phase.name for job_id in PHASES} == PHASES
    site.controller._journal.close()
    put_old_journal(tmp_path)
    site.controller = site.new_controller()
    assert not site.events("journal_lost", "policy_memory_lost", "history_lost")
    site.run_to(1100)
    assert site.events("preempt", "fail") == [("preempt", "2")]
    assert site.outcome() == {"2": ("RUNNING", 1), "3": ("PENDING", 0), "4": ("COMPLETED", 0)}
