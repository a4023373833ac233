"""What a drill's report says."""

import json
from pathlib import Path

from testbed.drills.checks import DrillCheck
from testbed.drills.fault_context import Fault
from testbed.drills.report import DrillResult, event_words, fault_words, write_report


def outcome(passed: bool) -> DrillResult:
    checks = [
        DrillCheck("no job lost", True, "all 6"),
        DrillCheck("none run twice at once", passed, "a ran twice"),
    ]
    return DrillResult(
        "uplink-cut", "a link is cut", ["at 3.0 s it is cut"], "jobs were started 7 times", checks, 61.0
    )


def test_one_check_that_fails_fails_the_drill_and_the_whole(tmp_path: Path) -> None:
    write_report(tmp_path, [outcome(True), outcome(False)])
    said = json.loads((tmp_path / "drills.json").read_text())
    assert (said["passed"], [drill["passed"] for drill in said["drills"]]) == (False, [True, False])
    text = (tmp_path / "drills.md").read_text()
    assert "| none run twice at once | FAILED | a ran twice |" in text
    assert "- at 3.0 s it is cut" in text


def test_faults_are_told_on_the_clock_of_the_run() -> None:
    faults = [Fault("the uplink is cut", 1010.0, 1055.5), Fault("a kill", 1060.0, 1060.0)]
    assert fault_words(faults, 1000.0) == ["at 10.0 s the uplink is cut, over at 55.5 s", "at 60.0 s a kill"]


def test_events_become_words() -> None:
    said = event_words([{"event": "start", "job": "a"}, {"event": "start", "job": "b"}, {"event": "wait"}])
    assert said == "jobs were started 2 times"
