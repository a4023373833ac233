"""Checking a drill: made-up executions of jobs, answers of the controller and events."""

from pathlib import Path

import pytest

from testbed.drills.checks import (
    controller_back,
    fault_struck,
    no_gpu_shared,
    none_lost,
    none_twice,
    replays_same,
)
from testbed.drills.fault_context import Fault
from testbed.drills.health import HealthSample
from testbed.drills.job_executions import JobExecution, ScriptRun
from testbed.running.intervals import Step

STEPS = tuple(Step(number, 100.0 + number, 1.0) for number in (1, 2, 3))
WELL = [HealthSample(float(t), True, 0.2) for t in range(100, 120)]


def run(start_s: float, end_s: float, node: str = "n1", gpus: int = 2, job: str = "a") -> ScriptRun:
    return ScriptRun(job, start_s, end_s, {node: gpus}, 0)


def execution(*runs: ScriptRun, state: str = "COMPLETED", done: tuple[Step, ...] = STEPS) -> JobExecution:
    return JobExecution("a", 3, state, runs or (run(100, 104),), done)


def fault(mended_s: float | None = 110.0) -> Fault:
    return Fault("it is broken", 105.0, mended_s)


def test_a_job_that_completed_with_every_step_is_not_lost() -> None:
    assert none_lost([execution()]).passed


@pytest.mark.parametrize("state", ["FAILED", "NODE_FAIL", "CANCELLED", "PENDING", "GONE", ""])
def test_a_job_that_did_not_complete_is_lost(state: str) -> None:
    check = none_lost([execution(), execution(state=state)])
    assert (check.passed, state in check.said) == (False, True)


def test_a_job_that_says_it_completed_and_left_a_step_out_is_lost() -> None:
    check = none_lost([execution(done=(STEPS[0], STEPS[2]))])
    assert not check.passed
    assert "step 2" in check.said


def test_intervals_one_after_the_other_are_fine() -> None:
    assert none_twice([execution(run(90, 99), run(100, 104))]).passed


def test_overlapping_intervals_are_found_also_if_another_lies_between_their_starts() -> None:
    check = none_twice([execution(run(80, 102), run(90, 91), run(100, 104))])
    assert not check.passed
    assert "ran twice for 2.0 s" in check.said


def test_two_jobs_may_share_a_node_that_has_gpus_for_both() -> None:
    other = JobExecution("b", 3, "COMPLETED", (run(101, 103, gpus=2, job="b"),), STEPS)
    assert no_gpu_shared([execution(), other], {"n1": 4}).passed
    check = no_gpu_shared([execution(), other], {"n1": 3})
    assert not check.passed
    assert "4 GPUs of n1 for a, b" in check.said


def test_gpus_may_pass_on_at_the_moment_when_a_job_ends() -> None:
    other = JobExecution("b", 3, "COMPLETED", (run(104, 106, job="b"),), STEPS)
    assert no_gpu_shared([execution(), other], {"n1": 2}).passed


def test_the_controller_is_back_with_the_first_whole_cycle_after_the_fault() -> None:
    samples = [HealthSample(110.5, True, 8.0), HealthSample(112.0, False), HealthSample(114.0, True, 0.5)]
    check = controller_back([fault()], samples, 5.0)
    assert (check.passed, check.said[:5]) == (True, "4.0 s")
    assert not controller_back([fault()], samples, 3.0).passed


def test_a_controller_that_never_cycles_again_is_not_back() -> None:
    assert not controller_back(
        [fault()], [HealthSample(104.0, True, 0.1), HealthSample(115.0, True, 9.0)], 60.0
    ).passed


def test_every_fault_counts() -> None:
    late = Fault("it is broken again", 118.0, 130.0)
    assert controller_back([fault()], WELL, 60.0).passed
    assert not controller_back([fault(), late], WELL, 60.0).passed


def test_a_controller_that_was_never_well_is_not_back() -> None:
    assert not controller_back([fault(None)], [HealthSample(104.0, False)], 60.0).passed


def test_where_nothing_was_to_be_mended_the_controller_must_be_well_at_the_end() -> None:
    assert controller_back([fault(None)], WELL, 60.0).passed
    ended = [*WELL, HealthSample(121.0, False)]
    assert not controller_back([fault(None)], ended, 60.0).passed
    assert controller_back([fault(None)], ended, 60.0, until_s=120.0).passed


def test_a_fault_that_left_no_trace_did_not_strike() -> None:
    events = [{"event": "preempt", "job": "a"}, {"event": "preempt", "job": "b"}]
    assert fault_struck(events, {"preempt": 2, "preempt a": 1}).passed
    assert not fault_struck(events, {"preempt a": 2}).passed


def test_no_recording_is_not_the_same(tmp_path: Path) -> None:
    assert not replays_same(tmp_path / "facts.jsonl").passed
