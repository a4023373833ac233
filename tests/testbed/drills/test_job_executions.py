"""What the jobs' own records tell: made-up script logs and step logs."""

import json
from collections.abc import Iterable

from testbed.drills.job_executions import JobExecution, build_execution, steps_out_of_order


def log(*steps: tuple[int, float]) -> str:
    return "".join(json.dumps({"step": number, "time": t, "seconds": 0.5}) + "\n" for number, t in steps)


def run_of(numbers: Iterable[int], from_s: float) -> list[tuple[int, float]]:
    """Steps of which one ends each second."""
    return [(number, from_s + place + 1) for place, number in enumerate(numbers)]


def execution(script_log: str, steps: list[tuple[int, float]]) -> JobExecution:
    return build_execution("a", 6, "COMPLETED", script_log, log(*steps))


def test_an_end_belongs_to_the_start_with_the_same_count_of_restarts() -> None:
    told = execution("start 100 n1 2 0\nstart 120 n2 2 1\nend 125 1 0\nend 130 0 1\n", [])
    assert [(run.start_s, run.end_s, run.code) for run in told.runs] == [(100, 125, 1), (120, 130, 0)]


def test_a_script_that_was_killed_lasted_until_its_last_step() -> None:
    steps = [*run_of([1, 2, 3], 100), *run_of([1, 2], 110)]
    told = execution("start 100 n1 2 0\nstart 110 n2 2 1\nend 113 0 1\n", steps)
    assert [(run.end_s, run.code) for run in told.runs] == [(103, None), (113, 0)]


def test_one_that_was_killed_before_its_first_step_lasted_no_time() -> None:
    told = execution("start 100 n1 2 0\nstart 110 n2 2 1\nend 113 0 1\n", run_of([1, 2], 110))
    assert told.runs[0].end_s == 100


def test_a_start_that_slurm_forgot_was_over_when_the_next_of_the_same_count_began() -> None:
    steps = [*run_of([1, 2, 3], 100), *run_of([1, 2], 110)]
    told = execution("start 100 n1 2 0\nstart 110 n2 2 0\nend 113 0 0\n", steps)
    assert [(run.end_s, run.code) for run in told.runs] == [(103, None), (113, 0)]


def test_a_line_cut_off_by_a_kill_is_no_start() -> None:
    assert len(execution("start 100 n1 2 0\nstart 11", []).runs) == 1


def test_going_on_from_a_checkpoint_is_not_running_twice() -> None:
    steps = [*run_of([1, 2, 3], 100), *run_of([3, 4, 5, 6], 110)]
    assert (
        steps_out_of_order(
            execution("start 100 n1 2 0\nend 104 85 0\nstart 110 n1 2 1\nend 115 0 1\n", steps)
        )
        == []
    )


def test_steps_of_two_intervals_among_each_other_are_running_twice() -> None:
    steps = sorted([*run_of([1, 2, 3, 4, 5, 6], 100), *run_of([1, 2, 3], 103.5)], key=lambda step: step[1])
    assert steps_out_of_order(execution("start 100 n1 2 0\nstart 103 n2 2 1\n", steps)) != []


def test_a_start_that_skips_steps_is_odd() -> None:
    steps = [*run_of([1, 2], 100), *run_of([5, 6], 110)]
    assert steps_out_of_order(execution("start 100 n1 2 0\nend 103 85 0\nstart 110 n1 2 1\n", steps)) == [5]
