"""The file of a recording: whole lines or none, never more than it may hold, and it never breaks a run."""

import json
from math import inf
from pathlib import Path

import pytest

from dally.jobs.job import Job, JobKind
from dally.plan import Migrate, Plan, Preempt, Start, Wait
from dally.scheduling.recording.plain import job_data, past_data, plan_data, to_job, to_plan
from dally.scheduling.recording.recorder import Recording
from dally.state import JobHistory
from tests.dally.recording.recorded import read, refuse


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "facts.jsonl"


def test_lines_are_there_after_a_flush(path: Path) -> None:
    recording = Recording(path, refuse)
    recording.add({"n": 1})
    assert not path.exists()
    recording.flush()
    recording.add({"n": 2})
    recording.flush()
    recording.flush()
    assert path.read_text() == '{"n":1}\n{"n":2}\n'


def test_much_is_written_without_being_asked(path: Path) -> None:
    recording = Recording(path, refuse)
    for _ in range(20):
        recording.add({"text": "x" * 100_000})
    assert path.stat().st_size > 1_000_000


def test_a_second_recording_goes_on_behind_a_torn_line(path: Path) -> None:
    path.write_text('{"n":1}\n{"n"')
    recording = Recording(path, refuse)
    recording.add({"n": 2})
    recording.flush()
    assert path.read_text() == '{"n":1}\n{"n"\n{"n":2}\n'


def test_a_file_that_somebody_else_writes_to_is_left_to_him(path: Path) -> None:
    reasons: list[str] = []
    first, second = Recording(path, reasons.append), Recording(path, refuse)
    for recording in (first, second, first, second):
        recording.add({"n": 1})
        recording.flush()
    assert reasons == [f"{path}: is not as it was left; does another controller write to it?"]
    assert len(read(path)) == 3


def test_a_file_that_was_moved_away_ends_the_recording(path: Path) -> None:
    reasons: list[str] = []
    recording = Recording(path, reasons.append)
    recording.add({"n": 1})
    recording.flush()
    path.rename(path.with_name("moved"))
    recording.add({"n": 2})
    recording.flush()
    assert len(reasons) == 1
    assert read(path.with_name("moved")) == [{"n": 1}]


def test_a_full_file_holds_whole_lines_and_is_told_once(path: Path) -> None:
    reasons: list[str] = []
    recording = Recording(path, reasons.append, most_bytes=100)
    for number in range(50):
        recording.add({"number": number})
        recording.flush()
    assert reasons == [f"{path}: is full: 100 bytes are the most"]
    assert 80 < path.stat().st_size <= 100
    assert [line["number"] for line in read(path)] == list(range(len(read(path))))


def test_a_file_more_than_half_full_makes_room(path: Path) -> None:
    path.write_text("x" * 51)
    recording = Recording(path, refuse, most_bytes=100)
    recording.add({"n": 1})
    recording.flush()
    assert path.with_name("facts.jsonl.1").read_text() == "x" * 51
    assert path.read_text() == '{"n":1}\n'


def test_what_is_no_plain_data_ends_the_recording(path: Path) -> None:
    reasons: list[str] = []
    recording = Recording(path, reasons.append)
    recording.add({"n": 1})
    recording.add({"n": object()})
    recording.add({"n": 2})
    recording.flush()
    assert len(reasons) == 1
    assert reasons[0].startswith("what was said is no plain data: Object of type object")


PLANS = (
    Plan(),
    Plan((Start("a", ((0, 2), (3, 1)), 1, "é\ud800"),), 0.1 + 0.2),
    Plan((Wait("a", 0, inf, "r"), Wait("b", 1, 1e-17, "r")), 1.7e9 + 1e-7),
    Plan((Preempt("a", ("b", "c"), ""), Preempt("b", (), ""), Migrate("c", ((1, 1),), 0, "")), inf),
)


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_comes_back_from_json(plan: Plan) -> None:
    text = json.dumps(plan_data(plan), allow_nan=False)
    assert to_plan(json.loads(text)) == plan


JOBS = (
    Job("a", 0.1, 1, 1e-9),
    Job("b", 1.7e9, 8, 3.0, "u", "g", "m", "DONE", "t", JobKind.ELASTIC, 4, 16, 1, 60.5, 4, False),
)


@pytest.mark.parametrize("job", JOBS)
def test_a_job_comes_back_from_json(job: Job) -> None:
    assert to_job(json.loads(json.dumps(job_data(job), allow_nan=False))) == job


@pytest.mark.parametrize("past", [JobHistory(0.1), JobHistory(0.1, 5.5, 1.0, 2.0, 3.0, 4, 5.0)])
def test_a_past_comes_back_from_json(past: JobHistory) -> None:
    assert JobHistory(**json.loads(json.dumps(past_data(past), allow_nan=False))) == past
