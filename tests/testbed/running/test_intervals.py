"""Intervals of running, told from Slurm, the job's script log and its step log."""

import json

from slurm_plugin.client.slurm import State
from testbed.running.intervals import find_intervals, read_script_log
from testbed.running.observer import JobObservation

ON_ONE = {"n1": 2}


def observed(t: float, state: State, start_s: float | None = None, restarts: int = 0) -> JobObservation:
    gpus = ON_ONE if start_s is not None and state is not State.ENDED else {}
    return JobObservation(t, "a", "7", state.value, state.name, start_s, gpus, restarts)


def log(*steps: tuple[int, float]) -> str:
    return "".join(json.dumps({"step": step, "time": t, "seconds": 0.5}) + "\n" for step, t in steps)


PREEMPTED = [
    observed(99.0, State.PENDING),
    observed(100.4, State.RUNNING, 100.0),
    observed(110.2, State.PENDING, None, 1),
    observed(115.3, State.RUNNING, 115.0, 1),
    observed(121.0, State.ENDED, 115.0, 1),
]


def times(
    observations: list[JobObservation], script_log: str = "", steps: str = ""
) -> list[tuple[float, float | None]]:
    return [(part.start_s, part.end_s) for part in find_intervals(observations, script_log, steps)]


def test_a_preempted_job_has_two_intervals() -> None:
    assert times(PREEMPTED) == [(100.0, 110.2), (115.0, 121.0)]


def test_a_job_that_still_runs_has_an_open_interval() -> None:
    assert times(PREEMPTED[:2]) == [(100.0, None)]


def test_a_requeue_between_two_looks_is_seen_by_the_start_time() -> None:
    observations = [observed(100.4, State.RUNNING, 100.0), observed(109.0, State.RUNNING, 108.0, 1)]
    assert times(observations) == [(100.0, 108.0), (108.0, None)]


def test_a_whole_run_between_two_looks_is_an_interval() -> None:
    assert times([observed(99.0, State.PENDING), observed(103.0, State.ENDED, 100.0)]) == [(100.0, 103.0)]


def test_a_job_that_was_cancelled_in_the_queue_has_not_run() -> None:
    cancelled = JobObservation(105.0, "a", "7", State.ENDED.value, "CANCELLED", 104.0)
    assert times([observed(99.0, State.PENDING), cancelled]) == []


def test_a_job_on_its_way_out_still_holds_its_gpus() -> None:
    observations = [
        observed(100.4, State.RUNNING, 100.0),
        observed(105.0, State.COMPLETING, 100.0),
        observed(106.0, State.ENDED, 100.0),
    ]
    assert times(observations) == [(100.0, 106.0)]


def test_slurm_gives_a_requeued_job_on_its_way_out_another_start() -> None:
    observations = [
        observed(100.4, State.RUNNING, 100.0),
        observed(105.0, State.COMPLETING, 104.0, 1),
        observed(106.0, State.PENDING, None, 1),
    ]
    assert times(observations) == [(100.0, 106.0)]


def test_the_script_log_tells_finer_times() -> None:
    script_log = "start 100.3 n1 2\nend 109.8 85\nstart 115.9 n1 2\nend 120.7 0\n"
    assert times(PREEMPTED, script_log) == [(100.3, 109.8), (115.5, 120.7)]


def test_intervals_that_nobody_saw_are_in_the_script_log() -> None:
    script_log = "start 100.3 n[1-3] 2(x2),1\nend 109.8 85\nstart 115.2 n1 2\nend 120.7 0\n"
    found = find_intervals([observed(99.0, State.PENDING), observed(500.0, State.ENDED)], script_log, "")
    assert [(part.start_s, part.end_s) for part in found] == [(100.3, 109.8), (115.2, 120.7)]
    assert found[0].gpus == {"n1": 2, "n2": 2, "n3": 1}


def test_a_script_log_that_was_cut_off_is_read_as_far_as_it_goes() -> None:
    assert [entry.t for entry in read_script_log("start 100.3 n1 2\nend 1")] == [100.3]


def test_steps_belong_to_the_interval_in_which_they_ended() -> None:
    found = find_intervals(PREEMPTED, "", log((1, 103.0), (2, 103.5), (3, 119.0)))
    assert [[step.number for step in part.steps] for part in found] == [[1, 2], [3]]
    assert [part.first_step_s for part in found] == [103.0, 119.0]
    assert found[1].restart_s(200.0) == 119.0 - 0.5 - 115.0


def test_steps_that_are_done_again_are_lost_where_they_were_done_first() -> None:
    found = find_intervals(PREEMPTED, "", log((1, 103.0), (2, 103.5), (3, 104.0), (2, 119.0), (3, 119.5)))
    assert [part.lost_steps for part in found] == [2, 0]


def test_communication_is_what_steps_take_beyond_computing() -> None:
    (part,) = find_intervals(PREEMPTED[:2], "", log((1, 103.0), (2, 103.5)))
    assert part.comm_s(0.4) == 0.2 or abs(part.comm_s(0.4) - 0.2) < 1e-9
    assert part.comm_s(0.6) == 0.0


def test_a_slot_of_copies_counts_the_steps_of_all_and_waits_for_no_network() -> None:
    line = '{"step": 9, "time": 103.0, "seconds": 2.0, "copies": {"0": 6, "1": 3}}\n'
    (part,) = find_intervals(PREEMPTED[:2], "", line)
    assert [(step.count, step.seconds) for step in part.steps] == [(9, 2.0)]
    assert (part.step_s, part.comm_s(0.1)) == (2.0 / 9, 0.0)


def test_a_torn_line_of_the_log_is_left_out() -> None:
    (part,) = find_intervals(PREEMPTED[:2], "", log((1, 103.0)) + '{"step": 2, "ti')
    assert len(part.steps) == 1
