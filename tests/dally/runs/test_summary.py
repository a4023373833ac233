"""The headline numbers, by hand."""

from dataclasses import replace

import pytest

from dally.runs.records import JobRecord
from dally.runs.summary import quantile, spread, summarise


def record(name: str, gpus: int, submit_s: float, run_s: float, queue_s: float) -> JobRecord:
    """A completed job that ran twice as long as it should, on one machine."""
    start_s = submit_s + queue_s
    return JobRecord(
        job_id=name,
        user="",
        group="",
        model="",
        gpus=gpus,
        submit_s=submit_s,
        start_s=start_s,
        end_s=start_s + run_s,
        ideal_s=run_s / 2,
        run_s=run_s,
        queue_s=queue_s,
        comm_s=0.0,
        restart_s=0.0,
        lost_s=0.0,
        preemptions=0,
        failures=0,
        levels="machine:1",
        status="COMPLETED",
    )


def test_a_run_in_numbers() -> None:
    moved = record("a", 4, 100, 1000, 0)
    records = [
        replace(moved, comm_s=200.0, levels="machine:2;rack:1", preemptions=2, restart_s=20.0),
        replace(record("b", 1, 200, 4, 300), ideal_s=4.0),
        replace(record("c", 8, 300, 0, 0), status="REJECTED", end_s=None, start_s=None, levels=""),
    ]
    summary = summarise(records, gpus=8, end_s=1100)
    assert (summary.jobs, summary.completed, summary.makespan_s) == (3, 2, 1000)
    assert summary.jct_s.mean == pytest.approx((1000 + 304) / 2)
    assert summary.queue_s.mean == 150
    assert summary.slowdown.mean == pytest.approx((2 + 304 / 10) / 2), "a job under 10 s counts as 10 s"
    assert summary.comm_s.mean == 100
    assert summary.comm_mean_multi_s == 200
    assert summary.utilization == pytest.approx((4 * 1000 + 4) / 8000)
    assert summary.goodput == pytest.approx((4 * 500 + 4) / 8000)
    assert summary.placements == {"machine": 3, "rack": 1}
    assert (summary.preemptions, summary.restart_gpu_s) == (2, 80)
    assert summary.restart_share == pytest.approx(80 / 4004)


def test_who_waits_over_ten_times_its_own_length_is_starved() -> None:
    records = [
        record("long", 1, 0, run_s=2000, queue_s=9_999),
        record("starved", 1, 0, run_s=200, queue_s=1001),
        record("tiny", 1, 0, run_s=2, queue_s=100),
        record("tiny and starved", 1, 0, run_s=2, queue_s=101),
    ]
    summary = summarise(records, gpus=8, end_s=20_000)
    assert (summary.longest_wait_s, summary.starved) == (9_999, 0.5)


def test_gpus_that_vary_count_as_they_were_held() -> None:
    forked = replace(record("f", 4, 0, 1000, 0), gpu_s=6000.0, restart_s=20.0)
    summary = summarise([forked], gpus=8, end_s=1000)
    assert (summary.utilization, summary.restart_gpu_s) == (0.75, 120)


def test_percentiles_are_linear_between_neighbours() -> None:
    assert quantile([0, 10, 20, 30, 40], 0.95) == pytest.approx(38)
    assert spread(range(0, 101)).p90 == pytest.approx(90)
    assert spread([]) == spread([0.0])


def test_a_run_without_jobs() -> None:
    summary = summarise([], gpus=8, end_s=0)
    assert (summary.utilization, summary.longest_wait_s, summary.starved) == (0, 0, 0)
