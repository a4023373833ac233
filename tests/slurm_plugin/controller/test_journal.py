"""The journal: what it survives, and what it makes a controller stop for."""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dally.jobs.job import Job
from slurm_plugin.controller import journal as journal_module
from slurm_plugin.controller.job_data import job_to_data
from slurm_plugin.controller.journal import (
    NAME,
    BusyError,
    FencedError,
    Journal,
    JournalError,
    heartbeat_s,
    read_events,
    read_managed_jobs,
)
from slurm_plugin.controller.journal_file import file_stat
from slurm_plugin.controller.managed_job import JobPhase, ManagedJob, StartingPhase
from slurm_plugin.request import Request
from tests.slurm_plugin.worlds import FakeSite


def managed(job_id: str = "1") -> ManagedJob:
    phase = StartingPhase(7.0, "they are free", {"n1": 8})
    return ManagedJob(Job(job_id, 5.0, 8, 100.0), Request(tag="ab"), phase)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A journal with one managed."""
    opened = Journal(tmp_path)
    opened.commit(10.0, [managed()], policy="fifo", learnt={"a": [1]})
    yield opened
    opened.close()


def test_what_was_committed_is_remembered(journal: Journal, tmp_path: Path) -> None:
    journal.close()
    again = Journal(tmp_path)
    memory = again.load()
    again.close()
    assert memory.managed_jobs == {"1": managed()}
    assert (memory.policy, memory.learnt, memory.now_s, memory.lost) == ("fifo", {"a": [1]}, 10.0, "")


def test_two_controllers_on_one_machine_do_not_share_a_folder(journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(BusyError, match=f"process {os.getpid()} on"):
        Journal(tmp_path)


def test_a_controller_elsewhere_fences_the_first_one(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    other = Journal(tmp_path)
    with pytest.raises(FencedError, match="another controller has taken over"):
        journal.commit(11.0, [managed("2")])
    assert other.load().managed_jobs.keys() == {"1"}
    other.close()


def test_a_fenced_controller_orders_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = FakeSite(tmp_path)
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    other = Journal(tmp_path)
    job = site.submit(gpus_per_node=8)
    with pytest.raises(FencedError):
        site.controller.cycle()
    assert site.states() == {job: "PENDING"}
    other.close()


@pytest.mark.parametrize("rest", [b"garbage" * 1000, b"SQLite format 3\0" + b"\1" * 3000])
def test_a_journal_that_cannot_be_read_is_set_aside(journal: Journal, tmp_path: Path, rest: bytes) -> None:
    journal.close()
    (tmp_path / NAME).write_bytes(rest)
    again = Journal(tmp_path)
    memory = again.load()
    again.close()
    assert not memory.managed_jobs
    assert "the journal was broken" in memory.lost
    assert len([*tmp_path.glob(f"{NAME}.broken-*")]) == 1


def test_a_journal_cut_short_is_set_aside_or_read(journal: Journal, tmp_path: Path) -> None:
    journal.close()
    whole = (tmp_path / NAME).read_bytes()
    for length in range(0, len(whole), 1000):
        (tmp_path / NAME).write_bytes(whole[:length])
        again = Journal(tmp_path)
        assert again.load().managed_jobs.keys() <= {"1"}
        again.commit(12.0, [managed("2")])
        again.close()


def test_another_kind_of_database_is_set_aside(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / NAME)
    database.execute("CREATE TABLE facts (something)")
    database.close()
    journal = Journal(tmp_path)
    assert "another kind of database" in journal.load().lost
    journal.close()


def test_a_job_that_cannot_be_read_is_left_out(journal: Journal, tmp_path: Path) -> None:
    journal.commit(11.0, [managed("2")])
    journal._database.execute("UPDATE jobs SET body = '[]' WHERE job = '2'")
    memory = journal.load()
    assert memory.managed_jobs.keys() == {"1"}
    assert "record of job 2" in memory.lost


@pytest.mark.parametrize("facts", ["not JSON", "[]", "1e999", '"x"'])
def test_facts_that_cannot_be_read_are_left_out(journal: Journal, facts: str) -> None:
    journal._set("now_s", facts)
    journal._set("learnt", facts)
    memory = journal.load()
    assert (memory.now_s, memory.learnt) == (0.0, {})


@pytest.mark.parametrize(("policy", "learnt"), [("fifo", {}), ("dally:lease_s=100", {"leases": 3})])
def test_a_policy_that_cannot_take_up_what_was_learnt_starts_fresh(
    tmp_path: Path, policy: str, learnt: dict[str, object]
) -> None:
    journal = Journal(tmp_path)
    journal.commit(0.0, policy=policy, learnt=learnt)
    journal.close()
    site = FakeSite(tmp_path)
    job = site.submit(gpus_per_node=8, run_time_s=5.0)
    site.run_to(20)
    assert site.states() == {job: "COMPLETED"}
    assert [kind for kind, _ in site.events("policy_memory_lost")] == ["policy_memory_lost"]


def test_a_full_disk_keeps_orders_back_until_there_is_room(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    job = site.submit(gpus_per_node=8, run_time_s=5.0)
    database = site.controller._journal._database
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count = {pages}")
    site.controller._journal.write(0.0, "large", text="x" * 100_000)
    for _ in range(3):
        site.sleep(1.0)
        with pytest.raises(JournalError, match="full"):
            site.controller.cycle()
    assert site.states() == {job: "PENDING"}
    database.execute("PRAGMA max_page_count = 1000000")
    site.live(60.0)
    assert site.states() == {job: "COMPLETED"}


def test_a_journal_locked_for_long_is_an_error_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "BUSY_S", 0.05)
    journal = Journal(tmp_path)
    other = sqlite3.connect(tmp_path / NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalError, match="locked"):
        journal.commit(1.0, [managed()])
    other.execute("COMMIT")
    other.execute("BEGIN")
    other.execute("SELECT * FROM facts").fetchall()
    with pytest.raises(JournalError, match="locked"):
        journal.commit(2.0, [managed()])
    other.execute("COMMIT")
    journal.commit(3.0, [managed()])
    assert journal.load().now_s == 3.0
    other.close()
    journal.close()


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=f"{tmp_path}/file/state"):
        Journal(tmp_path / "file" / "state")


def test_after_an_error_the_lock_is_free_again(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(JournalError):
        Journal(tmp_path)
    (tmp_path / NAME).rmdir()
    Journal(tmp_path).close()


def test_deleted_while_at_work_it_is_written_anew(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.submit(nodes=4, gpus_per_node=8, run_time_s=100.0)
    site.submit(nodes=4, gpus_per_node=8, run_time_s=100.0)
    site.run_to(20)
    for each in tmp_path.iterdir():
        each.unlink()
    site.run_to(40)
    site.restart()
    assert {each: site.managed(each).phase.name for each in "12"} == {
        "1": JobPhase.RUNNING,
        "2": JobPhase.PENDING,
    }
    site.run_to(300)
    assert {*site.states().values()} == {"COMPLETED"}


def garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 1000)


def garbage_behind_the_first_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


def cut_off(path: Path) -> None:
    os.truncate(path, 5000)


def put_in_its_place(path: Path) -> None:
    garbage(path.with_name("other"))
    path.with_name("other").rename(path)


@pytest.mark.parametrize("damage", [garbage, garbage_behind_the_first_page, cut_off, put_in_its_place])
def test_damaged_while_at_work_it_is_set_aside_and_nothing_is_forgotten(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    site = FakeSite(tmp_path)
    for _ in range(2):
        site.submit(nodes=4, gpus_per_node=8, run_time_s=100.0)
    site.run_to(20)
    damage(tmp_path / NAME)
    site.run_to(40)
    (lost,) = (event for event in read_events(tmp_path) if event["event"] == "journal_lost")
    (aside,) = tmp_path.glob(f"{NAME}.broken-*")
    assert aside.name in lost["reason"]
    goes_on(site)


def test_emptied_while_at_work_it_is_written_anew(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    for _ in range(2):
        site.submit(nodes=4, gpus_per_node=8, run_time_s=100.0)
    site.run_to(20)
    os.truncate(tmp_path / NAME, 0)
    site.run_to(40)
    assert [kind for kind, _ in site.events("journal_lost")] == ["journal_lost"]
    goes_on(site)


def goes_on(site: FakeSite) -> None:
    """The next controller knows of both jobs what this one knew, and both come to their end."""
    site.restart()
    phases = [site.managed(each).phase.name for each in "12"]
    assert phases == [JobPhase.RUNNING, JobPhase.PENDING]
    site.run_to(300)
    assert {*site.states().values()} == {"COMPLETED"}


@pytest.mark.parametrize("is_met_by_a_commit", [True, False])
def test_a_damage_that_is_met_in_a_cycle_costs_one_at_most(tmp_path: Path, is_met_by_a_commit: bool) -> None:
    site = FakeSite(tmp_path)
    job = site.submit(gpus_per_node=8, run_time_s=5.0)
    if is_met_by_a_commit:
        site.run_to(1)
    journal = site.controller._journal
    (page,) = journal._database.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = 'events_of_job'"
    ).fetchone()
    journal.close()
    with (tmp_path / NAME).open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\x0a\x00\x00\xff\xff" + b"\xff" * 60)
    journal._lock = (tmp_path / "lock").open()
    journal._connect()
    journal._left = file_stat(tmp_path / NAME)
    if is_met_by_a_commit:
        site.slurm.requeue(job)
        with pytest.raises(JournalError, match="malformed"):
            site.controller.cycle()
        assert site.states() == {job: "PENDING"}
    site.run_to(300)
    assert site.states() == {job: "COMPLETED"}
    assert len([*tmp_path.glob(f"{NAME}.broken-*")]) == 1


def test_one_that_somebody_only_touched_is_kept(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.submit(gpus_per_node=8, run_time_s=5.0)
    os.utime(tmp_path / NAME, (1.0, 1.0))
    site.run_to(20)
    assert not site.events("journal_lost")
    assert not [*tmp_path.glob(f"{NAME}.broken-*")]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("phase.reason", 5),
        ("phase.gpus", {"n1": "8"}),
        ("phase.gpus", {"n1": -8}),
        ("phase.since_s", "soon"),
        ("phase.since_s", 1e300),
        ("placed_once", 1),
        ("left_nodes", [2]),
        ("tasks", 1.5),
    ],
)
def test_a_job_of_wrong_types_is_left_out(
    journal: Journal, tmp_path: Path, field: str, value: object
) -> None:
    data = job_to_data(managed())
    where, _, name = field.rpartition(".")
    (data[where] if where else data)[name] = value
    body = json.dumps(data)
    with sqlite3.connect(tmp_path / NAME) as file:
        file.execute("UPDATE jobs SET body = ?", (body,))
    memory = journal.load()
    assert not memory.managed_jobs
    assert f"{field} is " in memory.lost


def test_what_was_learnt_is_forgotten_if_a_byte_of_it_is_another(journal: Journal, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / NAME) as file:
        file.execute("UPDATE facts SET value = replace(value, '1', '2') WHERE name = 'learnt'")
    assert journal.load().learnt == {}


def test_a_damaged_event_hides_no_other(journal: Journal, tmp_path: Path) -> None:
    for number in range(5):
        journal.write(float(number), "event", number=number)
    journal.commit(5.0)
    bodies = ["{", "[]", '{"t": "now", "event": "end"}', b"\xff"]
    with sqlite3.connect(tmp_path / NAME) as file:
        for number, body in enumerate(bodies, 1):
            file.execute("UPDATE events SET body = ? WHERE number = ?", (body, number))
    assert [event["number"] for event in read_events(tmp_path)] == [4]


def test_another_journal_in_its_place_fences_it(journal: Journal, tmp_path: Path) -> None:
    (tmp_path / NAME).unlink()
    (tmp_path / "lock").unlink()
    other = Journal(tmp_path)
    with pytest.raises(FencedError):
        journal.renew_if_lost()
    other.close()


def test_old_events_and_those_beyond_the_most_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "MOST_EVENTS", 10)
    monkeypatch.setattr(journal_module, "_TRIM_EVERY", 1)
    journal = Journal(tmp_path)
    for number in range(30):
        journal.write(float(number), "event", number=number)
        journal.commit(float(number))
    assert [event["number"] for event in read_events(tmp_path)] == [*range(20, 30)]
    journal.commit(journal_module.KEEP_S + 25.0)
    assert [event["number"] for event in read_events(tmp_path)] == [*range(25, 30)]
    journal.close()


@pytest.mark.parametrize("text", ["'); DROP TABLE jobs; --", "\ud800", "\0", "a\nb", "ü"])
def test_what_users_write_is_only_text(journal: Journal, tmp_path: Path, text: str) -> None:
    journal.write(1.0, "odd", job=text.encode(errors="replace").decode(), text=text)
    journal.commit(2.0, gone=[text.encode(errors="replace").decode()])
    assert read_events(tmp_path)[-1]["text"] == text
    assert journal.load().managed_jobs.keys() == {"1"}


def test_it_can_be_read_while_a_controller_has_it(journal: Journal, tmp_path: Path) -> None:
    journal.write(1.0, "event", job="1")
    journal.write(2.0, "event", job="2")
    journal.commit(2.0)
    assert read_managed_jobs(tmp_path) == {"1": managed()}
    assert [event["job"] for event in read_events(tmp_path)] == ["1", "2"]
    assert [event["t"] for event in read_events(tmp_path, "2")] == [2.0]


@pytest.mark.parametrize("body", ["{", "[]", '{"job": {}, "history": null}'])
def test_a_job_that_cannot_be_read_hides_no_other(journal: Journal, tmp_path: Path, body: str) -> None:
    with sqlite3.connect(tmp_path / NAME) as file:
        file.execute("INSERT INTO jobs VALUES ('0', ?)", (body,))
    assert read_managed_jobs(tmp_path) == {"1": managed()}
    assert journal.load().lost.startswith("record of job 0: ")


def test_a_journal_that_is_being_written_is_a_sign_of_life(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_READ_BUSY_S", 0.0)
    os.utime(tmp_path / NAME, (50.0, 50.0))
    with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        assert heartbeat_s(tmp_path) == 50.0


def test_there_is_no_sign_of_life_without_a_journal(tmp_path: Path) -> None:
    assert heartbeat_s(tmp_path) is None
    assert read_managed_jobs(tmp_path) == {}
    with pytest.raises(JournalError, match="cannot read the journal"):
        read_events(tmp_path)


def test_nobody_else_may_read_a_journal_and_so_lock_it(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    (folder / NAME).touch(mode=0o644)
    Journal(folder).close()
    assert [path.stat().st_mode & 0o077 for path in (folder, folder / NAME)] == [0, 0]
