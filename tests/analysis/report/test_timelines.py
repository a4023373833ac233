"""The timelines hold every event of a job in words, and stay small."""

import base64
import zlib

import pytest

from analysis.report import timelines
from analysis.report.timelines import LEFT_OUT, JobTimelines, pack_timelines
from tests.analysis.report.folders import started, waits


def unfolded(block: str) -> list[str]:
    return zlib.decompress(base64.b64decode(block)).decode().split("\x01")


def test_a_timeline_has_each_event_with_its_reason() -> None:
    told = JobTimelines({"a": 0, "b": 1})
    told.add({"t": 0, "event": "submit", "job": "a", "gpus": 2, "model": ""})
    told.add(waits(1, "a", "machine", 3700, "no machine has 2 free GPUs"))
    told.add(started(90_000, "a", {"m0": 2}))
    told.add({"t": 90_001, "event": "machine_down", "machine": "m0"})
    assert told.texts() == [
        "0\tsubmitted, asks for 2 GPUs\n"
        "1\twaits for one machine until 01:01:40: no machine has 2 free GPUs\n"
        "90000\tstarts on m0 x2 (one machine): machine has free GPUs",
        "",
    ]


def test_a_preemption_is_told_of_both_sides() -> None:
    told = JobTimelines({"a": 0, "b": 1})
    told.add({"t": 5, "event": "preempt", "job": "a", "by": ["b"], "reason": "lease over"})
    assert told.texts() == ["5\tloses its GPUs to b: lease over", "5\ttook GPUs of a: lease over"]


def test_of_a_long_timeline_the_middle_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelines, "MOST_LINES", 4)
    told = JobTimelines({"a": 0})
    for t in range(10):
        told.add({"t": t, "event": "end", "job": "a", "status": "COMPLETED"})
    lines = told.texts()[0].split("\n")
    assert [line.partition("\t")[0] for line in lines] == ["0", "1", "2", "8", "9"]
    assert lines[2] == "2\t… 6 more events …"


def test_timelines_lie_in_blocks() -> None:
    packed, left_out = pack_timelines([[f"line {job}" for job in range(600)]], [0.0] * 600)
    assert [len(unfolded(block)) for block in packed[0]] == [256, 256, 88]
    assert unfolded(packed[0][2])[3] == "line 515"
    assert left_out == 0


def test_if_there_is_no_room_the_jobs_that_waited_least_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [[f"{job * 7919 % 1000003}" for job in range(100)]]
    whole = sum(map(len, pack_timelines(texts, [0.0] * 100)[0][0]))
    monkeypatch.setattr(timelines, "MOST_BYTES", whole // 2)
    packed, left_out = pack_timelines(texts, [float(job) for job in range(100)])
    kept = [job for job, text in enumerate(unfolded(packed[0][0])) if text != LEFT_OUT]
    assert kept == list(range(left_out, 100))
    assert 45 <= left_out <= 55
