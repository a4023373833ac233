"""Known differences between a live run and its simulation are found where they were put, and nowhere else."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dally.jobs.job import Job
from testbed.fidelity.comparison import Comparison, JobComparison, compare
from testbed.fidelity.live_run import read_live_run
from tests.testbed.fidelity.live_folders import STEPS, Change, live_folder

JOBS = tuple(
    Job(f"j{number}", submit_s=30.0 * number, gpus=gpus, duration_s=120.0 + 40 * number, model=model)
    for number, (gpus, model) in enumerate(
        [(2, "resnet50"), (4, "vgg11"), (1, "resnet18"), (2, "alexnet"), (8, "resnet50"), (4, "alexnet")]
    )
)
LONG_THEN_SHORT = (
    Job("long", submit_s=0.0, gpus=8, duration_s=5000.0, model="resnet18"),
    Job("short", submit_s=1000.0, gpus=8, duration_s=100.0, model="resnet18"),
)
CROSSING = tuple(
    Job(f"c{number}", submit_s=10.0 * number, gpus=gpus, duration_s=100.0, model="vgg11")
    for number, gpus in enumerate([3, 3, 2])
)
"""On two racks of two nodes with two GPUs each, the last one takes what the others leave."""

CLOSE_S = pytest.approx(0.0, abs=0.05)
"""Times in the run folders are whole milliseconds, slowdowns in the events have four places."""


def compared(folder: Path) -> Comparison:
    return compare(read_live_run(folder), contention=False)


def assert_only(job: JobComparison, **expected_s: float) -> None:
    """The job has just these parts."""
    for name, value in asdict(job.parts).items():
        assert value == pytest.approx(expected_s.get(name, 0.0), abs=0.05), f"{job.real.job_id}: {name}"


def test_a_run_that_went_as_simulated_has_no_error(tmp_path: Path) -> None:
    comparison = compared(live_folder(tmp_path / "run", JOBS, Change()))
    assert len(comparison.jobs) == len(JOBS)
    for job in comparison.jobs:
        assert_only(job)
    assert comparison.job_error == pytest.approx(0.0, abs=1e-4)
    assert comparison.makespan_error == pytest.approx(0.0, abs=1e-4)


def test_a_run_in_which_jobs_slowed_each_other_as_simulated_has_no_error(tmp_path: Path) -> None:
    folder = live_folder(tmp_path / "run", CROSSING, Change(), contention=True)
    comparison = compare(read_live_run(folder), contention=True)
    assert any(item.shared_s > 1.1 * item.alone_s for job in comparison.jobs for item in job.intervals)
    for job in comparison.jobs:
        assert_only(job)


def test_later_starts_are_waiting(tmp_path: Path) -> None:
    for job in compared(live_folder(tmp_path / "run", JOBS, Change(wait_s=2.0))).jobs:
        assert_only(job, waiting_s=2.0)
        real_s, simulated_s = job.wait_s
        assert real_s - simulated_s == pytest.approx(2.0)


def test_slower_steps_are_step_times(tmp_path: Path) -> None:
    comparison = compared(live_folder(tmp_path / "run", JOBS, Change(step_factor=1.05)))
    for job in comparison.jobs:
        assert_only(job, step_times_s=0.05 * job.simulated.run_s)
        assert job.run_error == pytest.approx(1 / 1.05 - 1, abs=1e-4)


def test_a_slow_first_start_is_starting(tmp_path: Path) -> None:
    for job in compared(live_folder(tmp_path / "run", JOBS, Change(startup_s=4.0))).jobs:
        assert_only(job, starting_s=4.0)


def test_what_is_beside_steps_and_starting_is_the_rest(tmp_path: Path) -> None:
    for job in compared(live_folder(tmp_path / "run", JOBS, Change(rest_s=1.5))).jobs:
        assert_only(job, rest_s=1.5)


def test_slow_restarts_and_lost_steps_are_told_apart(tmp_path: Path) -> None:
    change = Change(restart_s=3.0, lost_steps=10)
    folder = live_folder(tmp_path / "run", LONG_THEN_SHORT, change, policy="tiresias")
    long = next(job for job in compared(folder).jobs if job.real.job_id == "long")
    intervals = len(long.intervals)
    assert intervals > 1
    lost_s = 10 * (intervals - 1) * long.intervals[0].alone_s
    assert long.parts.restarts_s == pytest.approx(3.0 * (intervals - 1), abs=0.05)
    assert long.parts.lost_steps_s == pytest.approx(lost_s)
    assert long.parts.step_times_s == CLOSE_S
    assert long.parts.neighbours_s == CLOSE_S


def test_other_gpus_than_simulated_are_placement(tmp_path: Path) -> None:
    job = replace(JOBS[0], model="vgg11")
    apart = Change(nodes=(("r0m0", 1), ("r1m0", 1)))
    (found,) = compared(live_folder(tmp_path / "run", [job], apart)).jobs
    assert (found.levels, found.simulated_levels) == (["network"], ["machine"])
    slowdown = STEPS * found.intervals[0].alone_s / job.duration_s
    assert slowdown > 1.5
    assert_only(found, placement_s=(slowdown - 1) * job.duration_s)
    assert found.run_error == pytest.approx(0.0, abs=1e-6)


def test_sharing_that_the_predictions_leave_out_shows_as_slow_steps(tmp_path: Path) -> None:
    folder = live_folder(tmp_path / "run", CROSSING, Change(), contention=True)
    jobs = compare(read_live_run(folder), contention=False).jobs
    assert max(job.parts.total_s for job in jobs) > 5.0
    for job in jobs:
        assert_only(job, step_times_s=job.parts.total_s)


def test_differences_of_all_kinds_add_up_to_the_error_of_each_job(tmp_path: Path) -> None:
    change = Change(2.0, 1.0, 3.0, step_factor=1.1, rest_s=0.7, lost_steps=7)
    jobs = (*LONG_THEN_SHORT, replace(JOBS[3], submit_s=1200.0))
    comparison = compared(live_folder(tmp_path / "run", jobs, change, policy="tiresias"))
    assert len(comparison.jobs) == 3
    for job in comparison.jobs:
        assert job.parts.total_s == pytest.approx(job.real.jct_s - job.simulated.jct_s, abs=1e-6)


def test_steps_that_were_not_timed_count_as_predicted(tmp_path: Path) -> None:
    folder = live_folder(tmp_path / "run", JOBS[:1], Change())
    path = folder / "stretches.jsonl"
    path.write_text(path.read_text().replace('"step_s": ', '"step_s": null, "was": '))
    (job,) = compared(folder).jobs
    assert job.parts.step_times_s == 0.0
    assert job.parts.total_s == CLOSE_S
    assert job.intervals[0].real_step_s == pytest.approx(JOBS[0].duration_s / STEPS)


def test_parts_add_up_where_the_simulator_decided_otherwise(tmp_path: Path) -> None:
    folder = live_folder(tmp_path / "run", (*LONG_THEN_SHORT, *JOBS), Change(2.0), policy="tiresias")
    path = folder / "run.json"
    path.write_text(path.read_text().replace('"tiresias"', '"fifo"'))
    comparison = compare(read_live_run(folder), contention=True)
    long = next(job for job in comparison.jobs if job.real.job_id == "long")
    assert (long.real.preemptions > 0, long.simulated.preemptions) == (True, 0)
    assert len({tuple(job.levels) == tuple(job.simulated_levels) for job in comparison.jobs}) == 2
    for job in comparison.jobs:
        assert job.parts.total_s == pytest.approx(job.real.jct_s - job.simulated.jct_s, abs=1e-6)
