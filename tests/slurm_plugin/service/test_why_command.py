"""`dally why` on live jobs."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dally.commands import main
from dally.commands.why import event_text
from slurm_plugin.service.why_command import headline
from tests.slurm_plugin.service.test_queue_command import JOB, busy


def why(folder: Path, *arguments: str) -> Result:
    site = busy(folder)
    results: list[Result] = []
    site.run(lambda: results.append(site.dally("why", *arguments)))
    return results[0]


def test_a_waiting_job_says_for_what_since_when_and_until_when(tmp_path: Path) -> None:
    lines = why(tmp_path, "2").stdout.splitlines()
    assert lines[0].startswith("2 of bob: asks for 16 GPUs, waits for GPUs since ")
    assert lines[1] == "  no rack has 16 free GPUs; declines farther ones for 2 leases"
    assert lines[2].startswith("  takes any GPUs from ")
    assert lines[3] == (
        "  it names no model, so it has no profile: each level farther apart than need be is assumed "
        "to make it 1.25 x slower"
    )
    assert "  submitted, asks for 16 GPUs" in lines[4]
    assert "  waits for one rack until " in lines[5]


def test_a_running_job_says_where(tmp_path: Path) -> None:
    lines = why(tmp_path, "1").stdout.splitlines()
    assert lines[0].startswith("1 of alice: asks for 32 GPUs, model vgg16, runs on n[1-4] since ")
    assert "starts on n1 x8, n2 x8, n3 x8, n4 x8 (over the network): network has 32 free GPUs" in lines[3]


def test_a_job_that_may_not_start_says_what_is_in_its_way(tmp_path: Path) -> None:
    lines = why(tmp_path, "3").stdout.splitlines()
    assert ("cannot be placed yet" in lines[0], lines[1]) == (True, "  held by its user")


@pytest.mark.parametrize(
    ("known", "last"),
    [
        ({"model": "a", "assumed_slowdown": None}, "  no free GPUs"),
        (
            {"model": "a", "assumed_slowdown": 1.5},
            "  no profile of a: each level farther apart than need be is assumed to make it 1.5 x slower",
        ),
        (
            {"model": "a", "assumed_slowdown": 1.0},
            "  no profile of a: distance is assumed to cost it nothing",
        ),
        ({"model": "a", "assumed_slowdown": 1.5, "gpus": 1}, "  no profile of a"),
    ],
)
def test_a_job_without_a_profile_says_what_is_assumed(known: dict[str, Any], last: str) -> None:
    job = {**JOB, "reason": "no free GPUs", "until_s": None, "refusals": 0, **known}
    assert [*headline(job, 0.0)][-1] == last


def test_a_job_with_a_plan_says_what_it_is_good_for() -> None:
    plan = "what placements cost follows from its plan tp=8,dp=2,micro=1,sequence=4096 with batches of 64"
    job = {**JOB, "reason": "", "until_s": None, "refusals": 0, "assumed_slowdown": None, "plan": plan}
    assert [*headline(job, 0.0)][-1] == f"  {plan}"


def test_json_has_the_job_and_its_events(tmp_path: Path) -> None:
    said = json.loads(why(tmp_path, "2", "--json").stdout)
    assert said["job"]["level"] == "rack"
    assert [event["event"] for event in said["events"]] == ["submit", "wait"]


@pytest.mark.parametrize("job", ["99", "99_1"])
def test_a_job_that_is_none_of_dallys_is_one_line(tmp_path: Path, job: str) -> None:
    result = why(tmp_path, job)
    assert result.exit_code == 1
    assert result.stderr.startswith("dally: the controller at http://127.0.0.1:")
    assert result.stderr.endswith(f" says: job {job} is none of Dally's\n")


@pytest.mark.parametrize("job", ["x", "1/../status", "1 2", "17_", "-1_2", "1" * 11])
def test_what_is_no_number_is_refused_before_anybody_is_asked(job: str) -> None:
    result = CliRunner().invoke(main, ["why", "--", job])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"dally: job {job!r} is no number of a Slurm job")


def test_a_job_that_was_refused_says_so_and_when_it_is_tried_again() -> None:
    job = {**JOB, "state": "ineligible", "reason": "could not start on n1: busy", "refusals": 2}
    lines = [*headline(job, 200.0)]
    assert lines[1] == "  could not start on n1: busy"
    assert lines[2].startswith("  will be tried again at ")
    assert lines[2].endswith(" (in 5m)")
    assert lines[3] == "  2 starts in a row failed"


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            {"event": "stop", "signal": "USR1", "grace_s": 60, "reason": "lease over"},
            "is asked by USR1 for its checkpoint, within 1 min: lease over",
        ),
        ({"event": "stop", "signal": "", "grace_s": 0, "reason": "r"}, "is stopped: r"),
        (
            {"event": "start_failed", "reason": "could not start on n1: busy", "again_in_s": 120.0},
            "could not start on n1: busy; left out for 2 min",
        ),
        (
            {"event": "order_refused", "order": "release_on_nodes", "said": "no"},
            "Slurm refused to release on nodes: no",
        ),
        ({"event": "released", "reason": "r"}, "is no longer Dally's: r"),
        ({"event": "fail", "lost_s": 0.0}, "a machine failed under it"),
        (
            {"event": "fail", "lost_s": 0.0, "reason": "was put back, and not by Dally"},
            "was put back, and not by Dally",
        ),
        ({"event": "fail", "lost_s": 20.0}, "a machine failed under it; 20 s of work are lost"),
        ({"event": "would_start", "gpus": {"n1": 8}, "reason": "r"}, "would start on n1 x8: r"),
        ({"event": "of a newer controller"}, "of a newer controller"),
    ],
)
def test_events_of_a_controller_are_told_in_words(event: dict[str, Any], words: str) -> None:
    assert event_text({"job": "1", **event}, "1", str) == words
