"""The run folder of a live run, made of what Slurm showed, the jobs wrote and the controller told."""

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dally.commands.why import tell_run
from dally.runs.records import read_events, read_jobs, read_run
from slurm_plugin.client.slurm import State
from testbed.running.collect import INTERVALS, write_run_folder
from testbed.running.folder import CONTROLLER, OBSERVED, RunState, begin_run, write_state
from testbed.running.json_lines import append_line, read_lines
from testbed.running.observer import JobObservation
from tests.testbed.running.worlds import TFLOPS, inputs, job

ORIGIN_S = 1000.0
NEAR, FAR = {"r1h1": 2}, {"r1h1": 1, "r2h1": 1}
STATE = RunState("demo-1", "fifo", "/scratch/demo-1", TFLOPS, "gloo", {"seed": 3}, origin_s=ORIGIN_S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "fifo"
    begin_run(place, STATE, inputs(job("a"), job("b", submit_s=2.0)))
    write_state(place, replace(STATE, end_s=ORIGIN_S + 60.0))
    return place


def see(folder: Path, t: float, job_id: str, state: State, name: str = "", **more: Any) -> None:
    number = {"a": "7", "b": "8"}[job_id]
    observed = JobObservation(ORIGIN_S + t, job_id, number, state.value, name or state.name, **more)
    append_line(folder / OBSERVED, **asdict(observed))


def run_through(folder: Path) -> None:
    """Job a runs far apart from 1 to 11, is stopped, and again from 20 to 25; job b from 12 to 19."""
    see(folder, 0.0, "a", State.PENDING)
    see(folder, 1.2, "a", State.RUNNING, start_s=ORIGIN_S + 1, gpus=FAR)
    see(folder, 2.0, "b", State.PENDING)
    see(folder, 11.0, "a", State.PENDING, restarts=1)
    see(folder, 12.3, "b", State.RUNNING, start_s=ORIGIN_S + 12, gpus=NEAR)
    see(folder, 19.0, "b", State.ENDED, "COMPLETED", start_s=ORIGIN_S + 12)
    see(folder, 20.5, "a", State.RUNNING, start_s=ORIGIN_S + 20, gpus=NEAR, restarts=1)
    see(folder, 25.0, "a", State.ENDED, "COMPLETED", start_s=ORIGIN_S + 20, restarts=1)


def told(folder: Path, t: float, event: str, **said: Any) -> None:
    append_line(folder / CONTROLLER, t=ORIGIN_S + t, event=event, **said)


def tell_stop(folder: Path) -> None:
    told(folder, 0.9, "start", job="7", reason="free GPUs")
    told(folder, 2.5, "wait", job="8", level="machine", until=ORIGIN_S + 30, reason="none is free")
    told(folder, 9.0, "stop", job="7", signal="USR1", grace_s=30, reason="b needs them")
    told(folder, 11.1, "preempt", job="7", by=["8"], reason="b needs them")
    told(folder, 11.2, "start", job="99", reason="a job of somebody else")


def events(folder: Path, job_id: str, *kinds: str) -> list[dict[str, Any]]:
    return [
        event
        for event in read_events(folder)
        if event.get("job") == job_id and (not kinds or event["event"] in kinds)
    ]


def steps(numbers: Iterable[int], from_s: float, seconds: float) -> str:
    lines = [
        {"step": number, "time": ORIGIN_S + from_s + place * seconds, "seconds": seconds}
        for place, number in enumerate(numbers)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def write_log(folder: Path, text: str) -> None:
    place = folder / "jobs" / "a" / "steps.jsonl"
    place.parent.mkdir(parents=True)
    place.write_text(text)


def test_times_and_counts_of_a_preempted_job(folder: Path) -> None:
    run_through(folder)
    tell_stop(folder)
    write_run_folder(folder)
    a, b = read_jobs(folder)
    assert (a.start_s, a.end_s, a.run_s, a.queue_s) == (1.0, 25.0, 15.0, 10.0)
    assert (a.preemptions, a.failures, a.levels) == (1, 0, "machine:1;network:1")
    assert (b.submit_s, b.queue_s, b.run_s, b.status) == (2.0, 10.0, 7.0, "COMPLETED")


def test_a_requeue_that_the_controller_did_not_want_is_a_failure(folder: Path) -> None:
    run_through(folder)
    write_run_folder(folder)
    a = read_jobs(folder)[0]
    assert (a.preemptions, a.failures) == (0, 1)
    assert [event["event"] for event in events(folder, "a")] == ["submit", "start", "fail", "start", "end"]


def test_network_restart_and_lost_times_are_from_the_step_log(folder: Path) -> None:
    run_through(folder)
    write_log(folder, steps([1, 2, 3], 5.0, 0.3) + steps([3, 4], 23.0, 0.15))
    write_run_folder(folder)
    a = read_jobs(folder)[0]
    assert a.comm_s == pytest.approx(3 * 0.2 + 2 * 0.05)
    assert a.restart_s == pytest.approx(3.0 - 0.15)
    assert a.lost_s == pytest.approx(0.125)
    first, second = (line for line in read_lines(folder / INTERVALS) if line["job"] == "a")
    assert (first["steps"], first["lost_steps"], first["gpus"]) == (3, 1, FAR)
    assert (first["first_step_s"], second["start_s"], second["compute_s"]) == (5.0, 20.0, 0.1)


def test_events_are_in_order_with_the_controllers_reasons(folder: Path) -> None:
    run_through(folder)
    tell_stop(folder)
    write_run_folder(folder)
    times = [event["t"] for event in read_events(folder)]
    assert times == sorted(times)
    (start, again) = events(folder, "a", "start")
    assert (start["level"], start["gpus"], start["reason"]) == ("network", FAR, "free GPUs")
    assert again["reason"] == "Slurm started it"
    (preempt,) = events(folder, "a", "preempt")
    assert (preempt["t"], preempt["by"]) == (11.0, ["b"])
    (wait,) = events(folder, "b", "wait")
    assert wait["until"] == 30.0


def test_why_reads_the_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_through(folder)
    tell_stop(folder)
    write_run_folder(folder)
    tell_run("a", folder, as_json=False)
    said = capsys.readouterr().out
    assert "loses its GPUs to b: b needs them" in said
    assert "asked by USR1 for its checkpoint" in said


def test_run_json_tells_what_it_is_and_holds_the_summary(folder: Path) -> None:
    run_through(folder)
    run = write_run_folder(folder)
    facts = read_run(folder)
    assert (facts["kind"], facts["complete"], facts["seed"], facts["end_s"]) == ("testbed", True, 3, 25.0)
    assert facts["policy"]["spec"] == "fifo"
    assert facts["cluster"]["gpus"] == 8
    assert facts["summary"]["makespan_s"] == run.summary.makespan_s == 25.0


def test_a_run_that_was_cut_off_is_collected_as_far_as_it_went(folder: Path) -> None:
    write_state(folder, STATE)
    see(folder, 0.0, "a", State.PENDING)
    see(folder, 1.2, "a", State.RUNNING, start_s=ORIGIN_S + 1, gpus=NEAR)
    see(folder, 8.0, "b", State.PENDING)
    run = write_run_folder(folder)
    assert (run.complete, run.note) == (False, "it was cut off")
    a, b = read_jobs(folder)
    assert (a.status, a.end_s, a.run_s) == ("RUNNING", None, 7.0)
    assert (b.status, b.start_s) == ("WAITING", None)


def test_jobs_that_were_cancelled_at_the_end_did_not_end(folder: Path) -> None:
    write_state(folder, replace(STATE, end_s=ORIGIN_S + 9.0, note="interrupted"))
    see(folder, 1.2, "a", State.RUNNING, start_s=ORIGIN_S + 1, gpus=NEAR)
    see(folder, 8.0, "a", State.ENDED, "CANCELLED", start_s=ORIGIN_S + 1)
    see(folder, 8.0, "b", State.ENDED, "CANCELLED")
    run = write_run_folder(folder)
    records = read_jobs(folder)
    assert [record.status for record in records] == ["RUNNING", "WAITING"]
    assert [record.end_s for record in records] == [None, None]
    assert not run.complete


def test_a_job_that_failed_has_failed(folder: Path) -> None:
    run_through(folder)
    see(folder, 30.0, "b", State.ENDED, "TIMEOUT", start_s=ORIGIN_S + 12)
    write_run_folder(folder)
    assert [record.status for record in read_jobs(folder)] == ["COMPLETED", "FAILED"]
